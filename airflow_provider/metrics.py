"""Measurements of work on tables, for the listeners of this process.

The engine counts and times by this module, and does not depend on the listener. In a task of Airflow the
listener passes the measurements to Airflow's own stats. There may be no listener. A job in another process
collects its measurements, and its answer brings them to the operator. docs/metrics.md lists names and tags.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Listener = Callable[["Measurement"], object]


@dataclass(frozen=True)
class Measurement:
    """One measurement.

    :param kind: ``counter``, ``timer`` (in seconds) or ``gauge``.
    :param name: such as ``commits``.
    :param value: the increase of a counter, the duration of a timer, or the value of a gauge.
    :param tags: the subject of the measurement; ``table`` is the table's location.
    :param at: time of the measurement, in seconds since the epoch; for a timer its end.
    """

    kind: Literal["counter", "timer", "gauge"]
    name: str
    value: float
    tags: Mapping[str, str] = field(default_factory=dict)
    at: float = field(default_factory=time.time, compare=False, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """The measurement as a JSON-able dict, from which ``Measurement(**dict)`` makes an equal one."""
        return asdict(self)


_listeners: list[Listener] = []


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Pass every measurement of this process, from any thread, to a function, until the block ends.

    :param listener: the function; it must not raise.
    """
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def count(name: str, value: float = 1, /, **tags: object) -> None:
    """Increase a counter.

    :param name: the counter's name.
    :param value: the increase; 0 makes no measurement.
    :param tags: see :class:`Measurement`.
    """
    if value:
        _say("counter", name, value, tags)


def took(name: str, seconds: float, /, **tags: object) -> None:
    """Report a duration.

    :param name: the timer's name.
    :param seconds: the duration.
    :param tags: see :class:`Measurement`.
    """
    _say("timer", name, seconds, tags)


def gauge(name: str, value: float, /, **tags: object) -> None:
    """Report the present value of a gauge.

    :param name: the gauge's name.
    :param value: the present value.
    :param tags: see :class:`Measurement`.
    """
    _say("gauge", name, value, tags)


@contextmanager
def collected() -> Iterator[list[dict[str, Any]]]:
    """Collect the measurements of a block for another process, which reports them by :func:`tell_again`.

    The listeners of this process do not get them.

    :return: a list that the block fills with results of :meth:`Measurement.to_dict`.
    """
    found: list[dict[str, Any]] = []
    others, _listeners[:] = list(_listeners), [lambda measured: found.append(measured.to_dict())]
    try:
        yield found
    finally:
        _listeners[:] = others


@contextmanager
def timed(name: str, /, **tags: object) -> Iterator[None]:
    """Report the duration of a block, also when the block raises.

    :param name: the timer's name.
    :param tags: see :class:`Measurement`.
    """
    began = time.monotonic()
    try:
        yield
    finally:
        took(name, time.monotonic() - began, **tags)


def tell_again(measured: Iterable[Mapping[str, Any]]) -> None:
    """Report the measurements of another process.

    :param measured: from :meth:`Measurement.to_dict`.
    """
    for each in measured:
        _tell(Measurement(**each))


def _say(kind: Any, name: str, value: float, tags: Mapping[str, object]) -> None:
    if _listeners:
        _tell(Measurement(kind, name, value, {key: str(tag) for key, tag in tags.items()}))


def _tell(measurement: Measurement) -> None:
    for listener in list(_listeners):
        listener(measurement)
