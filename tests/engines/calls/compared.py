"""The comparison of two servers' answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Difference:
    """One field of one answer.

    :param where: the answer's name, and the path of the field: ``get_database('lake') .ownerName``.
    :param hive: the value in Hive's answer; None when it has no such field.
    :param ours: the value in our answer.
    """

    where: str
    hive: Any
    ours: Any

    def __str__(self) -> str:
        return f"{self.where}\n    hive {self.hive!r}\n    ours {self.ours!r}"


def differences(hive: Mapping[str, Any], ours: Mapping[str, Any]) -> list[Difference]:
    """All differences, in the order of the calls."""
    assert list(hive) == list(ours), "other calls were made"
    return [one for name in hive for one in _within(f"{name} ", hive[name], ours[name])]


def _within(path: str, hive: Any, ours: Any) -> Iterator[Difference]:
    if isinstance(hive, dict) and isinstance(ours, dict):
        for name in [*hive, *(name for name in ours if name not in hive)]:
            yield from _within(f"{path}.{name}", hive.get(name), ours.get(name))
    elif isinstance(hive, list) and isinstance(ours, list) and len(hive) == len(ours):
        for number, (one, other) in enumerate(zip(hive, ours, strict=True)):
            yield from _within(f"{path}[{number}]", one, other)
    elif hive != ours:
        yield Difference(path.rstrip(), hive, ours)
