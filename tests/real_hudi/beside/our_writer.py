"""A write of this package with an interruption: a write of the JVM, or a signal."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa

from airflow_provider.exceptions import TableServiceError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.locks import LockProvider, open_lock
from airflow_provider.table import HudiTable
from tests.processes.table.faults import with_faults
from tests.real_hudi.in_turn.readers import Row
from tests.real_hudi.in_turn.shared_table import SCHEMA

WRITTEN = re.compile(r"put \.hoodie/commit_log/staged/\d+\.avro")
"""The point before the step that follows the data files."""
LOCKED = re.compile(r"acquire")
"""The point before the commit acquires the lock, when all steps without the lock are done."""
DECIDED = re.compile(r"\w+_if_absent \.hoodie/commit_log/\d+\.json")
"""The point before the entry in the commit log."""
PUT = re.compile(r"\w+_if_absent \.hoodie/(metadata/\.hoodie/)?timeline/\d+_\d+\.")
"""The point after the entry, before any part of the commit is published."""
INDEXED = re.compile(r"\w+_if_absent \.hoodie/timeline/\d+_\d+\.")
"""The point after the completed instant of the metadata table, before that of the table."""


def table_that_meets(location: str, point: re.Pattern[str], act: Callable[[], object]) -> HudiTable:
    """A table that calls a function once, before the first storage operation at the point."""
    return with_faults(location, _Once(point, act))


class _Once:
    """Calls a function before the first matching operation of a write."""

    def __init__(self, point: re.Pattern[str], act: Callable[[], object]) -> None:
        self._point, self._act = point, act
        self._has_written = self._is_done = False

    def __call__(self, operation: str, path: str) -> None:
        self._has_written |= path.endswith(".parquet")
        if self._has_written and not self._is_done and self._point.match(f"{operation} {path}"):
            self._is_done = True
            self._act()


@dataclass(frozen=True)
class Told:
    """The outcome of a write.

    :param result: the result of :func:`ingest_arrow`, if the write was acknowledged.
    :param error: name and text of the exception, if it was not.
    """

    result: Mapping[str, Any] | None
    error: str | None


class OurWriter:
    """A process that upserts, and gets a signal at a point of its write.

    :param location: the table's location.
    :param rows: the rows that it upserts.
    :param point: the point of its write at which it gets the signal.
    :param number: SIGKILL, or SIGSTOP.
    :param lock: the lock's configuration, for :func:`open_lock`.
    :param settings: further arguments of :func:`ingest_arrow`.
    """

    def __init__(
        self,
        location: str,
        rows: Sequence[Row],
        point: re.Pattern[str],
        number: signal.Signals,
        lock: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        processes = multiprocessing.get_context("forkserver")
        processes.set_forkserver_preload([__name__])
        self._number = number
        self._pipe, far = processes.Pipe()
        given = (far, location, list(rows), point, number, lock, settings)
        self._process = processes.Process(target=_write, args=given)
        self._process.start()
        far.close()

    def wait_for_the_point(self) -> None:
        """Wait until the process has got its signal."""
        assert self._pipe.recv() == "at the point"
        if self._number is signal.SIGKILL:
            self._process.join()
        else:
            self._wait_until_it_stands_still()

    def go_on(self) -> Told:
        """Wake the process up, and return the outcome of its write."""
        os.kill(self._process.pid or 0, signal.SIGCONT)
        told: Told = self._pipe.recv()
        self._process.join()
        return told

    def _wait_until_it_stands_still(self) -> None:
        while Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.005)


def _write(
    pipe: Connection,
    location: str,
    rows: list[Row],
    point: re.Pattern[str],
    number: signal.Signals,
    lock: Mapping[str, Any] | None,
    settings: dict[str, Any],
) -> None:
    def stop() -> None:
        pipe.send("at the point")
        os.kill(os.getpid(), number)

    once = _Once(point, stop)
    table = with_faults(location, once)
    provider = None if lock is None else _told_of(open_lock(lock, table.storage), once)
    try:
        result = ingest_arrow(table, pa.Table.from_pylist(rows, SCHEMA), lock=provider, **settings)
    except TableServiceError as error:
        pipe.send(Told(None, f"{type(error).__name__}: {error}"))
    else:
        pipe.send(Told(result, None))


def _told_of(lock: LockProvider, once: _Once) -> LockProvider:
    """The same lock; its acquisition counts as an operation, too."""
    acquire = lock.acquire

    def told(timeout: float | None = None) -> None:
        once("acquire", "")
        acquire(timeout)

    lock.acquire = told  # type: ignore[method-assign]
    return lock
