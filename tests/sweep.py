"""Sweeps kill, pause or overtake an actor at every moment of its work; a push tries a share of the moments.

The commit decides which share: a second run of a commit tries the same moments, other commits try others.
``SWEEP=all``, as in `make soak`, tries every moment; ``SWEEP=2`` tries share 2.
"""

from __future__ import annotations

import os
import subprocess
import zlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest

SHARES = 8
Moment = TypeVar("Moment")


@cache
def chosen() -> int | None:
    """The number of this run's share, or ``None`` if it tries every moment."""
    if wanted := os.environ.get("SWEEP"):
        return None if wanted == "all" else int(wanted) % SHARES
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True
    )
    return int(head.stdout[:8] or "0", 16) % SHARES


def share_of(moments: Iterable[Moment], shares: int = SHARES) -> list[Moment]:
    """This run's share of a sweep's moments; the first and the last are in each share.

    :param moments: all of them, in their order.
    :param shares: the number of shares.
    """
    all_of_them = list(moments)
    share = chosen()
    if share is None:
        return all_of_them
    last = len(all_of_them) - 1
    return [
        moment
        for number, moment in enumerate(all_of_them)
        if number % shares == share % shares or number in (0, last)
    ]


def one_value_a_test(items: list[pytest.Item], folder: Path, *names: str) -> list[pytest.Item]:
    """Leave out tests, so that each tries one value of some parameters; the commit decides which.

    :param items: the tests of a run; those that do not run are removed.
    :param folder: tests elsewhere stay.
    :param names: the parameters.
    :return: the tests that do not run.
    """
    values: dict[tuple[str, str], list[object]] = {}
    for item in items:
        for name, value in _given(item, folder, names):
            known = values.setdefault((_test(item), name), [])
            if value not in known:
                known.append(value)

    def is_left_out(item: pytest.Item) -> bool:
        for name, value in _given(item, folder, names):
            known = values[_test(item), name]
            if value not in one_of(_test(item), known):
                return True
        return False

    left_out = list(filter(is_left_out, items))
    items[:] = [item for item in items if item not in left_out]
    return left_out


def one_of(test: str, values: list[Moment]) -> list[Moment]:
    """The value that this run tries in a test, which is not the first one in all tests; or all values.

    :param test: the test's name.
    :param values: all values.
    """
    share = chosen()
    return values if share is None else [values[(share + zlib.crc32(test.encode())) % len(values)]]


def _test(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _given(item: pytest.Item, folder: Path, names: Iterable[str]) -> list[tuple[str, object]]:
    if not isinstance(item, pytest.Function) or not str(item.path).startswith(f"{folder}{os.sep}"):
        return []
    given = item.callspec.params if hasattr(item, "callspec") else {}
    return [(name, given[name]) for name in names if name in given]


def describe() -> str:
    """For the header of a test run."""
    share = chosen()
    return f"sweeps: {'every moment' if share is None else f'share {share} of {SHARES} (SWEEP={share})'}"
