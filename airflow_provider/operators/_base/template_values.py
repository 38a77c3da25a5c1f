"""Arguments that a template may have rendered to text."""

from __future__ import annotations

from datetime import timedelta

from airflow_provider.exceptions import InvalidInputError


def seconds(given: timedelta | float | str | None, name: str) -> float | None:
    """A duration in seconds.

    :param given: a timedelta, or seconds as a number or as text; None or its text for none.
    :param name: of the argument, for the error.
    :raises InvalidInputError: when it is none of these, or below 0.
    """
    if given is None or given == "None":
        return None
    try:
        found = given.total_seconds() if isinstance(given, timedelta) else float(given)
    except ValueError:
        found = -1.0
    if found < 0:
        raise InvalidInputError(f"{name} must be 0 seconds or more, or a timedelta, not {given!r}")
    return found


def flag(given: bool | str, name: str) -> bool:
    """Yes or no.

    :param given: True or False, or the text of either.
    :param name: of the argument, for the error.
    :raises InvalidInputError: when it is something else.
    """
    text = str(given).strip().lower()
    if text not in ("true", "false"):
        raise InvalidInputError(f"{name} must be True or False, not {given!r}")
    return text == "true"


def count(given: int | str | None, name: str) -> int | None:
    """A number of things.

    :param given: a whole number, or its text; None or its text for none.
    :param name: of the argument, for the error.
    :raises InvalidInputError: when it is no whole number, or below 0.
    """
    if given is None or given == "None":
        return None
    if not str(given).strip().isdecimal():
        raise InvalidInputError(f"{name} must be a whole number, 0 or more, not {given!r}")
    return int(given)
