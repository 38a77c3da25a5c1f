"""Kinds of values: how an option's text is read, and how Hudi writes the value."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_MIB = 1024 * 1024


@dataclass(frozen=True)
class Kind:
    """A kind of values.

    :param name: a description for people, with the unit and the bounds.
    :param read: turns a text into a value, with durations in seconds and sizes in bytes; it raises
        ``ValueError`` when the text is no such value.
    :param write: turns a value into Hudi's text.
    """

    name: str
    read: Callable[[str], Any]
    write: Callable[[Any], str] = str


def whole(unit: str = "", *, least: int = 0, most: int | None = None) -> Kind:
    """Whole numbers.

    :param unit: the unit, for people.
    :param least: the smallest value.
    :param most: the largest value; None for no bound.
    """

    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or int(text) < least:
            raise ValueError
        if most is not None and int(text) > most:
            raise ValueError
        return int(text)

    bounds = f"{least} or more" if most is None else f"{least} to {most}"
    return Kind(f"whole number{f' of {unit}' if unit else ''}, {bounds}", read)


def duration(unit: str, seconds: Fraction) -> Kind:
    """Durations above 0. The values are seconds.

    :param unit: Hudi's unit, for people.
    :param seconds: the seconds in one unit.
    """
    count = whole(unit, least=1)
    return Kind(
        count.name,
        lambda text: float(count.read(text) * seconds),
        lambda value: str(round(Fraction(value) / seconds)),
    )


def one_of(ours: Mapping[str, str]) -> Kind:
    """One of several names, in upper or lower case.

    :param ours: this package's name for each of Hudi's names. If several of Hudi's names have one meaning,
        the first is written.
    """
    known = {name.upper(): value for name, value in ours.items()}

    def read(text: str) -> str:
        if text.upper() not in known:
            raise ValueError
        return known[text.upper()]

    def write(value: str) -> str:
        return next(name for name, other in ours.items() if other == value)

    return Kind(" or ".join(f"`{write(value)}`" for value in dict.fromkeys(ours.values())), read, write)


def _zone(text: str) -> str:
    try:
        return ZoneInfo(text).key
    except (OSError, ZoneInfoNotFoundError):
        raise ValueError from None


TIME_ZONE = Kind("name of a time zone, such as `America/Chicago`", _zone)


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower() == "true"


def _above_0(text: str) -> float:
    if not 0 < (number := float(text)) < float("inf"):
        raise ValueError
    return number


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise ValueError
    return names


def _regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error:
        raise ValueError from None
    return _text(text)


def _text(text: str) -> str:
    if not text:
        raise ValueError
    return text


def _servers(text: str) -> str:
    # Many people can read tables and DAGs, so a password belongs in the connection.
    if not text or re.search(r":(?!//)[^@]*@", text) or "password=" in text.lower():
        raise ValueError
    return text


FLAG = Kind("`true` or `false`", _flag, lambda value: str(value).lower())
NUMBER = Kind("number above 0", _above_0)
NAMES = Kind("names with commas between them, each once", _names, ",".join)
TEXT = Kind("text", _text)
SERVERS = Kind("text, without a password", _servers)
BYTES = whole("bytes", least=1)
MEGABYTES = Kind(
    whole("MiB", least=1).name,
    lambda text: whole(least=1).read(text) * _MIB,
    lambda value: str(-(-value // _MIB)),
)
REGEX = Kind("regular expression", _regex)
MILLISECONDS = duration("milliseconds", Fraction(1, 1000))
SECONDS = duration("seconds", Fraction(1))
