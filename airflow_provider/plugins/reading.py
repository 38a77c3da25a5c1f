"""Reads that do not hold each other up: with a time limit, one of each at a time, kept for a moment."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

KEPT_SECONDS = 2.0
"""How long an answer is given again."""

LIMIT_SECONDS = 5.0
"""After so long without an answer, a read counts as slow."""

_THREADS = 8  # for each place: one that hangs takes no others with it
_MOST_KEPT = 2_000


@dataclass(frozen=True)
class Answer:
    """What is known of something that was read.

    :param value: what the last read that succeeded has found; None when none has yet.
    :param error: why the last read failed; None when it has not.
    :param age_seconds: since the value was found.
    :param waiting_seconds: how long a read has been under way by now; 0 when none is.
    """

    value: Any
    error: str | None
    age_seconds: float
    waiting_seconds: float

    def told(self) -> dict[str, Any]:
        """JSON-able: ``state`` (``ok``, ``reading``, ``slow``, ``error``), ``error`` and ``age_seconds``."""
        state, error = "ok", self.error
        if self.waiting_seconds > LIMIT_SECONDS:
            state = "slow"
            error = f"no answer from its storage for {self.waiting_seconds:.0f} s"
        elif self.error is not None:
            state = "error"
        elif self.value is None:
            state = "reading"
        return {"state": state, "error": error, "age_seconds": round(self.age_seconds, 1)}


class _Reading:
    """One thing that is read again and again."""

    def __init__(self) -> None:
        self.future: Future[Any] | None = None
        self.began = 0.0
        self.ended = 0.0
        self.value: Any = None
        self.found_at = 0.0
        self.error: str | None = None


class Readings:
    """Reads in threads of their own, which nobody waits for longer than he wants."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readings: dict[tuple[Any, ...], _Reading] = {}
        self._places: dict[str, _Place] = {}

    async def read(
        self, key: tuple[Any, ...], place: str, look: Callable[[], Any], *, wait: float = LIMIT_SECONDS
    ) -> Answer:
        """Read something, unless that was done a moment ago or is being done.

        :param key: what it is.
        :param place: where it is read: reads of one place share threads.
        :param look: reads it; may take as long as it wants, and may fail.
        :param wait: seconds that the caller waits; after that it gets what was known before.
        """
        reading, future = self._begun(key, place, look)
        if future is not None:
            await asyncio.wait([asyncio.wrap_future(future)], timeout=wait)
        return self._answer(reading)

    def _begun(
        self, key: tuple[Any, ...], place: str, look: Callable[[], Any]
    ) -> tuple[_Reading, Future[Any] | None]:
        with self._lock:
            reading = self._readings.pop(key, None) or _Reading()
            self._readings[key] = reading  # the one asked for last comes last
            while len(self._readings) > _MOST_KEPT:
                del self._readings[next(iter(self._readings))]
            if reading.future is not None:
                return reading, reading.future
            if reading.ended and time.monotonic() - reading.ended < KEPT_SECONDS:
                return reading, None
            reading.future, reading.began = Future(), time.monotonic()
            if place not in self._places:
                self._places[place] = _Place(place)
            self._places[place].put(lambda: self._run(reading, look))
            return reading, reading.future

    def _run(self, reading: _Reading, look: Callable[[], Any]) -> None:
        value, error = None, None
        try:
            value = look()
        except Exception as failure:  # noqa: BLE001 - whatever a file system or a driver raises is told
            error = f"{type(failure).__name__}: {failure}"
        with self._lock:
            future, reading.future, reading.ended = reading.future, None, time.monotonic()
            reading.error = error
            if error is None:
                reading.value, reading.found_at = value, reading.ended
        if future is not None:
            future.set_result(None)

    def _answer(self, reading: _Reading) -> Answer:
        with self._lock:
            now = time.monotonic()
            waiting = now - reading.began if reading.future is not None else 0.0
            age = now - reading.found_at if reading.found_at else 0.0
            return Answer(reading.value, reading.error, age, waiting)


class _Place:
    """The threads of one storage or metastore; daemons, so that a read that hangs keeps no server alive."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._threads = 0

    def put(self, work: Callable[[], None]) -> None:
        self._queue.put(work)
        if self._threads < _THREADS:
            self._threads += 1
            threading.Thread(target=self._work, name=f"page {self._name}", daemon=True).start()

    def _work(self) -> None:
        while True:
            self._queue.get()()
