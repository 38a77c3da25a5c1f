"""Arguments that may be text, because a template rendered them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

from pydantic import ByteSize, TypeAdapter, ValidationError

from airflow_provider.exceptions import InvalidInputError

_SIZE = TypeAdapter(ByteSize)


def seconds(given: timedelta | float | str | None, name: str) -> float | None:
    """A duration in seconds.

    :param given: a timedelta, or seconds as a number or as text; None or its text for none.
    :param name: the argument's name, for the error.
    :raises InvalidInputError: when it is none of these, or below 0.
    """
    if given is None or given == "None":
        return None
    try:
        found = given.total_seconds() if isinstance(given, timedelta) else float(given)
    except (TypeError, ValueError):
        found = -1.0
    if found < 0:
        raise InvalidInputError(f"{name} must be 0 seconds or more, or a timedelta, not {given!r}")
    return found


def flag(given: bool | str, name: str) -> bool:
    """Yes or no.

    :param given: True or False, or the text of either.
    :param name: the argument's name, for the error.
    :raises InvalidInputError: when it is something else.
    """
    text = str(given).strip().lower()
    if text not in ("true", "false"):
        raise InvalidInputError(f"{name} must be True or False, not {given!r}")
    return text == "true"


def count(given: int | str | None, name: str) -> int | None:
    """A count.

    :param given: a whole number, or its text; None or its text for none.
    :param name: the argument's name, for the error.
    :raises InvalidInputError: when it is no whole number, or below 0.
    """
    if given is None or given == "None":
        return None
    if not str(given).strip().isdecimal():
        raise InvalidInputError(f"{name} must be a whole number, 0 or more, not {given!r}")
    return int(given)


def one_of(given: str, name: str, known: Collection[str]) -> str:
    """One of several words.

    :param given: the word.
    :param name: the argument's name, for the error.
    :param known: the words.
    :raises InvalidInputError: when it is another word.
    """
    if given not in known:
        raise InvalidInputError(f"{name} must be one of {', '.join(known)}, not {given!r}")
    return given


def byte_size(given: int | str | None, name: str) -> int | None:
    """A number of bytes.

    :param given: a whole number, or a text such as ``100 MB`` (of 1000 x 1000 bytes), ``1.5 GB`` or ``64MiB``
        (of 1024 x 1024 bytes), as :class:`pydantic.ByteSize` reads it; None or its text for none.
    :param name: the argument's name, for the error.
    :raises InvalidInputError: when it is neither.
    """
    if given is None or given == "None":
        return None
    try:
        return int(_SIZE.validate_python(str(given)))
    except ValidationError:
        raise InvalidInputError(
            f"{name} must be a whole number of bytes, or a text such as '100 MB' or '64 MiB', not {given!r}"
        ) from None


def check_plan_named(instant: object) -> None:
    """Refuse the text of None in a DAG; from a template that text means that there is no plan.

    :param instant: an argument, before it is rendered.
    :raises InvalidInputError: when it is such a text.
    """
    if instant is not None and plan_named(instant) is None:
        raise InvalidInputError(
            f"instant is the text {instant!r}, which names no plan; give a plan's requested time, a "
            "template, or leave it out for the oldest plan that nobody carries out"
        )


def plan_named(instant: object) -> str | None:
    """The plan that a rendered argument names: a DAG that renders native objects gives a number.

    :param instant: a plan's requested time; None, or its text, for none.
    :return: None if it names no plan.
    """
    text = str(instant).strip()
    return None if text in ("", "None") else text


def texts(given: str | Sequence[str] | None, name: str) -> tuple[str, ...] | None:
    """One text or several.

    :param given: a text, or a sequence of them; None for none given.
    :param name: the argument's name, for the error.
    :raises InvalidInputError: when it is something else.
    """
    if given is None or isinstance(given, str):
        return None if given is None else (given,)
    if not isinstance(given, Sequence) or not all(isinstance(each, str) for each in given):
        raise InvalidInputError(f"{name} must be a text, or several, not {given!r}")
    return tuple(given)


def mapping(given: Mapping[str, Any] | None, name: str) -> dict[str, Any]:
    """Values by their names.

    :param given: the values; none when None.
    :param name: the argument's name, for the error.
    :raises InvalidInputError: when it is something else.
    """
    if given is not None and not isinstance(given, Mapping):
        raise InvalidInputError(f"{name} must be a mapping, not {given!r}")
    return dict(given or {})
