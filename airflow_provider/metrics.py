"""What work on tables measures, for the listeners of this process.

The engine counts and times by this module, and knows nothing of the listener: a task of Airflow, which hands
the measurements on to Airflow's own stats. There may be none. A job in another process collects what it
measures, and its answer brings it to the operator. The names and tags are listed in docs/metrics.md.
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
    """One thing that was measured.

    :param kind: ``counter``, ``timer`` (in seconds) or ``gauge``.
    :param name: such as ``commits``.
    :param value: how many more, how long, or how much.
    :param tags: what it is about; ``table`` is the table's location.
    :param at: seconds since the epoch, when it was measured; a timer ended then.
    """

    kind: Literal["counter", "timer", "gauge"]
    name: str
    value: float
    tags: Mapping[str, str] = field(default_factory=dict)
    at: float = field(default_factory=time.time, compare=False, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """The measurement as JSON-able dict; ``Measurement(**it)`` is the same again."""
        return asdict(self)


_listeners: list[Listener] = []


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Tell a function every measurement of this process, whatever the thread, for as long as this lasts.

    :param listener: must not raise.
    """
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def count(name: str, value: float = 1, /, **tags: object) -> None:
    """Say that something happened.

    :param name: of the counter.
    :param value: how often, or how much of it; nothing is said of 0.
    :param tags: see :class:`Measurement`.
    """
    if value:
        _say("counter", name, value, tags)


def took(name: str, seconds: float, /, **tags: object) -> None:
    """Say how long something took.

    :param name: of the timer.
    :param seconds: its duration.
    :param tags: see :class:`Measurement`.
    """
    _say("timer", name, seconds, tags)


def gauge(name: str, value: float, /, **tags: object) -> None:
    """Say how much there is of something.

    :param name: of the gauge.
    :param value: now.
    :param tags: see :class:`Measurement`.
    """
    _say("gauge", name, value, tags)


@contextmanager
def collected() -> Iterator[list[dict[str, Any]]]:
    """Collect the measurements of a block for another process, which says them by :func:`tell_again`.

    Nobody else hears them here.

    :return: fills with what :meth:`Measurement.to_dict` gives.
    """
    found: list[dict[str, Any]] = []
    others, _listeners[:] = list(_listeners), [lambda measured: found.append(measured.to_dict())]
    try:
        yield found
    finally:
        _listeners[:] = others


@contextmanager
def timed(name: str, /, **tags: object) -> Iterator[None]:
    """Say how long a block took, also when it raises.

    :param name: of the timer.
    :param tags: see :class:`Measurement`.
    """
    began = time.monotonic()
    try:
        yield
    finally:
        took(name, time.monotonic() - began, **tags)


def tell_again(measured: Iterable[Mapping[str, Any]]) -> None:
    """Tell what another process has measured.

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
