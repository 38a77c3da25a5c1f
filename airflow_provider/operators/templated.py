"""Reading arguments that a template may have turned into text."""

from __future__ import annotations

from datetime import timedelta

from airflow_provider.exceptions import InvalidInputError


def flag(given: bool | str, name: str) -> bool:
    """A yes or no.

    :param given: the argument.
    :param name: its name, for the error.
    :raises InvalidInputError: when it is neither.
    """
    text = str(given).strip().lower()
    if text not in ("true", "false"):
        raise InvalidInputError(f"{name} must be True or False, not {given!r}")
    return text == "true"


def seconds(given: timedelta | float | str | None, name: str) -> float | None:
    """A length of time.

    :param given: the argument.
    :param name: its name, for the error.
    :return: seconds; None for None.
    :raises InvalidInputError: when it is no length of time, or below 0.
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


def count(given: int | str | None, name: str) -> int | None:
    """A number of things.

    :param given: the argument.
    :param name: its name, for the error.
    :return: None for None.
    :raises InvalidInputError: when it is no whole number, or below 0.
    """
    if given is None or given == "None":
        return None
    if not str(given).strip().isdecimal():
        raise InvalidInputError(f"{name} must be a whole number, 0 or more, not {given!r}")
    return int(given)
