"""Catch-up (RFC-45, "Indexing catchup"): no committed record may be missing from an index.

Writers of this package need no catch-up. Each puts its entry in the commit log after it has read the newest
one. A commit after the plan's entry has logged to the index. A commit before it was on the timeline when the
base files were built. The same is true of a clean, a rollback or a restore, even if its process was paused.

Another Hudi writer puts no entry. It may complete an instant that it began before the plan, and not log it to
the index. The catch-up waits for such an instant, and logs it in that writer's place.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from airflow_provider.concurrency import CommitLog, PendingInstant, pending_instants
from airflow_provider.concurrency.commit import find_unlogged_commits, log_unlogged_commits, publish_head
from airflow_provider.concurrency.heartbeats import HeartbeatInfo
from airflow_provider.concurrency.indexes import current_indexes
from airflow_provider.concurrency.log import fate_of
from airflow_provider.exceptions import IndexCatchUpTimeoutError
from airflow_provider.locks import LockProvider
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import WRITE_ACTIONS, Action, Instant, State, Timeline

log = logging.getLogger(__name__)

_NON_WRITE_ACTIONS = frozenset({Action.CLEAN, Action.ROLLBACK, Action.RESTORE})

_UNKNOWN = HeartbeatInfo().owner  # owner of an empty heartbeat file, such as the JVM's


def base_instant(timeline: Timeline) -> str | None:
    """The instant up to which the write timeline has no hole: the latest completed write before which no
    write is pending (``getContiguousCompletedWriteTimeline``).

    :param timeline: the active timeline.
    :return: its requested time; None where there is none.
    """
    pending = (i.requested_time for i in timeline.pending() if i.action.when_completed in WRITE_ACTIONS)
    hole = min(pending, default=None)
    done = (i.requested_time for i in timeline.commits() if hole is None or i.requested_time < hole)
    return max(done, default=None)


def instants_to_catch_up(timeline: Timeline, base: str | None, plan: str) -> list[Instant]:
    """The instants to check during the catch-up: those after the base instant, and earlier cleans,
    rollbacks and restores that have not completed.

    :param timeline: the active timeline.
    :param base: see :func:`base_instant`.
    :param plan: requested time of the indexing plan; the writer of a later instant logs to its indexes.
    :return: the instants, in the order of their requested times.
    """

    def is_checked(instant: Instant) -> bool:
        if instant.action.when_completed not in WRITE_ACTIONS | _NON_WRITE_ACTIONS:
            return False
        return instant.requested_time > (base or "") or instant.state is not State.COMPLETED

    return [i for i in timeline.instants if i.requested_time < plan and is_checked(i)]


def is_foreign(storage: Storage, pending: PendingInstant) -> bool:
    """Whether another Hudi writer has made a pending instant.

    :param storage: the table's storage.
    :param pending: the instant.
    """
    if pending.owner != _UNKNOWN:
        return False
    commit_log = CommitLog(storage)
    # The instant may have ended since the timeline was loaded, and its entry may be trimmed.
    return not _is_known_here(commit_log, pending.instant) and (
        fate_of(storage, commit_log, pending.instant) is None
    )


def _is_known_here(commit_log: CommitLog, instant: str) -> bool:
    # The instant is a plan of this package; or it has ended since the timeline was loaded, and its heartbeat
    # is gone.
    return any(instant == entry.instant or instant in entry.undone for entry in commit_log.about(instant))


def waited_for(table: HudiTable, plan: str) -> list[PendingInstant]:
    """Instants that other Hudi writers began before the plan, and that are still pending.

    The catch-up does not wait for an instant whose heartbeat has expired, because its writer is dead (RFC-45,
    case 1). The writer that rolls it back logs the rollback to the indexes too.

    :param table: the table.
    :param plan: requested time of the indexing plan.
    """
    timeline = table.timeline()
    checked = {each.requested_time for each in instants_to_catch_up(timeline, base_instant(timeline), plan)}
    return [
        each
        for each in pending_instants(table)
        if each.instant in checked and each.alive is not False and is_foreign(table.storage, each)
    ]


class IndexCatchUp:
    """The catch-up of one indexing.

    :param table: the table.
    :param plan: requested time of the indexing plan.
    :param lock: the table lock.
    :param poll_seconds: seconds between two looks at the timeline.
    :param tell: called with the number of instants that are still pending.
    """

    def __init__(
        self,
        table: HudiTable,
        plan: str,
        lock: LockProvider,
        poll_seconds: float,
        tell: Callable[[str], None],
    ) -> None:
        self._table = table
        self._tell = tell
        self._plan = plan
        self._lock = lock
        self._poll_seconds = poll_seconds
        self._interrupted = threading.Event()
        self._left: list[PendingInstant] = []
        self.logged: list[str] = []

    def run(self, timeout_seconds: float) -> None:
        """Catch up, in a thread that is interrupted after the timeout.

        :param timeout_seconds: seconds at most (``hoodie.metadata.index.check.timeout.seconds``).
        :raises IndexCatchUpTimeoutError: when an instant is still pending then; the message names it.
        """
        with ThreadPoolExecutor(1, "index-catch-up") as pool:
            try:
                future = pool.submit(self._catch_up)
                try:
                    future.result(timeout_seconds)
                except TimeoutError:
                    self._interrupted.set()
                future.result()
            finally:
                self._interrupted.set()
        if self._left:
            first = self._left[0]
            raise IndexCatchUpTimeoutError(
                f"table {self._table.location}: indexing {self._plan} did not catch up within "
                f"{timeout_seconds:g} s: {len(self._left)} instants of other Hudi writers are pending, the "
                f"first is {first.action} {first.instant}; let them end or roll them back, and run it again",
                instant=self._plan,
                pending=[each.instant for each in self._left],
            )

    def _catch_up(self) -> None:
        for left in self._looks():
            self._left = left
            if not left:
                return
            log.info(
                "table %s: indexing %s has %d instants left to catch up: %s",
                self._table.location,
                self._plan,
                len(left),
                ", ".join(f"{each.action} {each.instant}" for each in left),
            )
            self._tell(f"{len(left)} instants left to catch up")
            if self._interrupted.wait(self._poll_seconds):
                return

    def _looks(self) -> Iterator[list[PendingInstant]]:
        while True:
            # The pending instants are read first: if one completes after that, the next look logs it.
            left = waited_for(self._table, self._plan)
            self._log_missed()
            yield left

    def _log_missed(self) -> None:
        storage, commit_log = self._table.storage, CommitLog(self._table.storage)
        indexes = current_indexes(storage, commit_log, publish_head(storage, commit_log))
        if not find_unlogged_commits(storage, indexes, self._table.timeline()):
            return
        with self._lock:
            indexes = current_indexes(storage, commit_log, publish_head(storage, commit_log))
            logged = log_unlogged_commits(storage, indexes, self._table.timeline())
        self.logged += [instant.requested_time for instant in logged]
