"""A backfill: windows of history, one after the other, each as one commit that yields to other writers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import tenacity

from airflow_provider.concurrency import CommitResult, find_operations, wait_for_higher_priority
from airflow_provider.exceptions import (
    EmptySourceError,
    InvalidInputError,
    JobFailedError,
    NoSuchInstantError,
    TableServiceError,
)
from airflow_provider.ingestion.ingest_job import IngestJob
from airflow_provider.ingestion.result import earlier_result, result_of
from airflow_provider.ingestion.windows import Window, check_windows
from airflow_provider.locks import LockProvider
from airflow_provider.table.hudi_table import HudiTable

log = logging.getLogger(__name__)

_Write = Callable[[Window, IngestJob], dict[str, Any]]
_SUMS = ("rows_inserted", "rows_updated", "rows_deleted", "files_written", "bytes_written", "rebases")


@dataclass(frozen=True)
class BackfillProgress:
    """The progress of a backfill; its text is the log line after each window.

    :param window: name of the last window that ended.
    :param status: how the window ended, for people.
    :param done: number of windows that are complete, including those of an earlier try.
    :param skipped: number of windows that an earlier try completed.
    :param windows: number of all windows.
    :param rows: number of rows written by this try.
    :param seconds: seconds since this try began.
    :param seconds_left: estimated seconds for the rest; None as long as there is no estimate.
    """

    window: str
    status: str
    done: int
    skipped: int
    windows: int
    rows: int
    seconds: float
    seconds_left: float | None

    @property
    def rows_per_second(self) -> float:
        """Rows per second of this try, including its waits."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0

    def __str__(self) -> str:
        rate = self.rows_per_second
        left = "unknown" if self.seconds_left is None else str(timedelta(seconds=round(self.seconds_left)))
        return (
            f"window {self.window}: {self.status}; {self.done} of {self.windows} windows done"
            f"{f' ({self.skipped} of them earlier)' if self.skipped else ''}, {self.rows:,} rows, "
            f"{rate:,.{0 if rate >= 10 else 1}f} rows/s, time left {left}"
        )


@dataclass
class Backfill:
    """The windows of a backfill, and how they are written.

    The backfill finds committed windows on the table's commit log by their operation keys: the backfill's
    key, a slash, and the window's name. So a backfill that ended in the middle continues with the next
    window, when it is run again with the same key.

    :param job: the ingestion of all windows.
    :param table: the table.
    :param windows: the windows, in the order in which they are written.
    :param patience: before each window, seconds to wait at most for writers of higher priority.
    :param attempts: number of attempts at a window whose error another attempt may avoid, such as a lost
        conflict.
    :param lock: the table lock; by ``job.lock``, or the table's options, when None.
    :param tell: called with the progress after each window, and with each wait; the log by default.
    :param is_stopped: called between windows, and during waits; True ends the backfill.
    """

    job: IngestJob
    table: HudiTable
    windows: Sequence[Window]
    patience: float = 60.0
    attempts: int = 3
    lock: LockProvider | None = None
    tell: Callable[[BackfillProgress | str], None] = log.info
    is_stopped: Callable[[], bool] = lambda: False
    _done: list[Window] = field(default_factory=list, init=False)
    _skipped: int = field(default=0, init=False)
    _rows: int = field(default=0, init=False)
    _waited: float = field(default=0.0, init=False)

    def run(self, write: _Write) -> dict[str, Any]:
        """Write all windows that are not written yet.

        :param write: writes one window, by a job of its own; returns
            :func:`~airflow_provider.ingestion.result.result_of`, and perhaps more.
        :return: the newest commit's result, but with the sums and the ``partitions`` of all windows,
            including those of earlier tries; and ``windows``, ``windows_done`` (those with a commit),
            ``windows_skipped`` (those that an earlier try had committed), ``windows_empty``, ``instants`` in
            the order of the windows, and ``seconds_waited`` for other writers.
        :raises InvalidInputError: when a window is invalid.
        :raises EmptySourceError: when no window has a row.
        :raises TableServiceError: the error of the last attempt at a window; earlier windows stay.
        """
        self._check()
        self._started = time.monotonic()
        self._lock = self.lock or self.job.open_lock(self.table)
        earlier = self._earlier()
        results = [self._window(window, write, earlier) for window in self.windows]
        return self._summary([result for result in results if result is not None])

    def _check(self) -> None:
        if self.patience < 0:
            raise InvalidInputError(f"patience must be 0 seconds or more, not {self.patience!r}")
        if isinstance(self.attempts, bool) or self.attempts < 1:
            raise InvalidInputError(f"attempts must be 1 or more, not {self.attempts!r}")
        check_windows(self.table, self.job, self.windows)

    def _earlier(self) -> dict[str, CommitResult]:
        key = self.job.operation_key
        if key is None:
            return {}
        return find_operations(self.table, f"{key}/", since=self.job.operation_since)

    # --- one window -----------------------------------------------------------------------

    def _window(
        self, window: Window, write: _Write, earlier: dict[str, CommitResult]
    ) -> dict[str, Any] | None:
        job = window.job(self.job)
        commit = earlier.get(job.operation_key or "")
        if commit is not None:
            self._skipped += 1
            self._end(window, f"done earlier, instant {commit.instant}")
            return self._result_of(job, commit)
        result = None if window.rows == 0 else self._written(window, job, write)
        if result is None:
            self._end(window, "no rows")
            return None
        rows = result["rows_inserted"] + result["rows_updated"] + result["rows_deleted"]
        self._rows += window.rows or rows
        self._end(window, f"{rows:,} rows, instant {result['instant']}")
        return result

    def _written(self, window: Window, job: IngestJob, write: _Write) -> dict[str, Any] | None:
        def tell_failure(state: tenacity.RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            self.tell(
                f"window {window.name}: attempt {state.attempt_number} of {self.attempts} failed: {error}"
            )

        attempts = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_is_worth_another_attempt),
            stop=tenacity.stop_after_attempt(self.attempts),
            before=lambda _: self._wait_for_higher_priority(window),
            before_sleep=tell_failure,
            reraise=True,
        )
        try:
            return attempts(write, window, job)
        except EmptySourceError:
            return None

    def _wait_for_higher_priority(self, window: Window) -> None:
        def tell_wait(ahead: list[str]) -> None:
            self.tell(
                f"window {window.name}: makes way, at most {self.patience:.0f} s, for {'; '.join(ahead)}"
            )

        waited = wait_for_higher_priority(
            self.table.storage,
            self.job.settings.priority,
            self._lock,
            patience=self.patience,
            is_stopped=self.is_stopped,
            on_wait=tell_wait,
        )
        if waited:
            self.tell(f"window {window.name}: goes on after {waited:.1f} s")
        self._waited += waited
        if self.is_stopped():
            raise JobFailedError(
                f"the backfill of {self.table.location} was stopped before window {window.name}; run it "
                "again to go on there"
            )

    def _result_of(self, job: IngestJob, commit: CommitResult) -> dict[str, Any]:
        try:
            return earlier_result(job, self.table, commit)
        except NoSuchInstantError:  # the commit was just reverted, so its metadata is gone
            return result_of(job, self.table, commit, (), already_committed=True)

    # --- reports --------------------------------------------------------------------------

    def _end(self, window: Window, status: str) -> None:
        self._done.append(window)
        self.tell(
            BackfillProgress(
                window=window.name,
                status=status,
                done=len(self._done),
                skipped=self._skipped,
                windows=len(self.windows),
                rows=self._rows,
                seconds=(seconds := time.monotonic() - self._started),
                seconds_left=self._seconds_left(seconds),
            )
        )

    def _seconds_left(self, seconds: float) -> float | None:
        left = self.windows[len(self._done) :]
        if not left:
            return 0.0
        counts = [window.rows for window in left]
        if self._rows and None not in counts:
            return sum(count or 0 for count in counts) * seconds / self._rows
        ended = len(self._done) - self._skipped
        return len(left) * seconds / ended if ended else None

    def _summary(self, results: Sequence[dict[str, Any]]) -> dict[str, Any]:
        if not results:
            raise EmptySourceError(
                f"source {self.job.source} has no row in any of "
                f"{len(self.windows)} windows; nothing was written",
                source=list(self.job.source.paths),
            )
        newest = max(results, key=lambda result: str(result["completion_time"]))
        return {
            **newest,
            **{name: sum(result[name] for result in results) for name in _SUMS},
            "partitions": sorted({path for result in results for path in result["partitions"]}),
            "schema_changes": [change for result in results for change in result["schema_changes"]],
            "windows": len(self.windows),
            "windows_done": len(results),
            "windows_skipped": self._skipped,
            "windows_empty": len(self.windows) - len(results),
            "instants": [result["instant"] for result in results],
            "seconds_waited": round(self._waited, 1),
        }


def _is_worth_another_attempt(error: BaseException) -> bool:
    # After a JobFailedError the Spark session is gone, and the caller starts another one.
    return isinstance(error, TableServiceError) and error.retryable and not isinstance(error, JobFailedError)
