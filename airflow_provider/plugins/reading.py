"""Reads that do not delay each other: with a time limit, one of each at a time, cached for a moment."""

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
"""Seconds for which an answer is reused."""

LIMIT_SECONDS = 5.0
"""Seconds without an answer after which a read counts as slow."""

_THREADS = 8  # for each place, so that a hanging read affects no other place
_MOST_KEPT = 2_000


@dataclass(frozen=True)
class Answer:
    """The answer of the last reads.

    :param value: the result of the last read that succeeded; None when none has yet.
    :param error: the error of the last read; None when it has not failed.
    :param age_seconds: seconds since the value was read.
    :param waiting_seconds: seconds that a read has been running; 0 when none is.
    """

    value: Any
    error: str | None
    age_seconds: float
    waiting_seconds: float

    def to_dict(self) -> dict[str, Any]:
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
    """One subject that is read again and again."""

    def __init__(self) -> None:
        self.future: Future[Any] | None = None
        self.began = 0.0
        self.ended = 0.0
        self.value: Any = None
        self.found_at = 0.0
        self.error: str | None = None


class Readings:
    """Reads in their own threads; a caller waits only as long as it wants."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readings: dict[tuple[Any, ...], _Reading] = {}
        self._places: dict[str, _Place] = {}

    async def read(
        self, key: tuple[Any, ...], place: str, look: Callable[[], Any], *, wait: float = LIMIT_SECONDS
    ) -> Answer:
        """Read a subject, unless it was read a moment ago or is being read.

        :param key: the subject.
        :param place: the storage or metastore to read from: reads of one place share threads.
        :param look: reads the subject; may take any time, and may fail.
        :param wait: seconds that the caller waits; after that it gets the earlier value.
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
            self._readings[key] = reading  # the newest key is the last one
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
        except Exception as failure:  # noqa: BLE001 - the page shows any error of a file system or driver
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
    """The threads of one storage or metastore; daemons, so that a hanging read keeps no server alive."""

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
