"""Runs of indexing plans: running a plan, listing pending plans, and ending a run whose process is gone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field

from airflow_provider.concurrency import PRIORITIES, CommitLog, rollback_dead_writers
from airflow_provider.concurrency.commit import publish_head
from airflow_provider.concurrency.heartbeats import (
    Heartbeat,
    HeartbeatInfo,
    HeartbeatSettings,
    heartbeat_path,
    observe,
)
from airflow_provider.concurrency.indexes import (
    INDEX,
    current_indexes,
)
from airflow_provider.concurrency.plans import MAX_FAILURES, Service, stopping_itself
from airflow_provider.exceptions import (
    HeartbeatExpiredError,
    InvalidInputError,
    WriteConflictError,
)
from airflow_provider.indexing.base_files import Build, build_in_process
from airflow_provider.indexing.index_run import (
    IndexResult,
    IndexRun,
    completed_indexing,
    give_up,
    indexes_of_plan,
)
from airflow_provider.indexing.schedule import check_lock
from airflow_provider.locks import LockProvider, default_lock
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata_table import (
    MetadataPartition,
)
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import Action

log = logging.getLogger(__name__)

CATCH_UP_TIMEOUT_SECONDS = 900.0
"""Hudi's ``hoodie.metadata.index.check.timeout.seconds``."""


@dataclass(frozen=True)
class IndexRunSettings:
    """Settings of the run of an indexing plan.

    :param timeout_seconds: seconds that the catch-up waits for writers that do not log to the indexes.
    :param poll_seconds: seconds between two looks during the catch-up.
    :param heartbeat: how the run shows that it is alive.
    :param max_failures: failures in a row after which the plan is stopped; None for no limit.
    :raises InvalidInputError: when a number of seconds is not above zero.
    """

    timeout_seconds: float = CATCH_UP_TIMEOUT_SECONDS
    poll_seconds: float = 5.0
    heartbeat: HeartbeatSettings = field(default_factory=HeartbeatSettings)
    max_failures: int | None = MAX_FAILURES

    def __post_init__(self) -> None:
        if min(self.timeout_seconds, self.poll_seconds) <= 0:
            raise InvalidInputError(
                "the timeout and the seconds between two looks of a catch-up must be above zero, not "
                f"{self.timeout_seconds!r} and {self.poll_seconds!r}"
            )


def pending_indexings(
    table: HudiTable, *, indexes: Collection[str] = frozenset(MetadataPartition), idle: bool = False
) -> list[str]:
    """Indexing plans of this package that are not complete, the oldest first.

    :param table: the table.
    :param indexes: only plans that build one of these.
    :param idle: True for plans that no process runs now, False for all.
    """
    storage, commit_log = table.storage, CommitLog(table.storage)
    there = current_indexes(storage, commit_log, commit_log.newest())
    wanted = (each for each in there if each.partition in indexes and not each.is_complete)
    pending = {each.instant for each in wanted if each.instant}
    if idle and pending:
        pending -= {instant for instant, heartbeat in observe(storage).items() if heartbeat.alive}
    return sorted(pending)


def run_index(
    table: HudiTable,
    instant: str | None = None,
    *,
    settings: IndexRunSettings | None = None,
    build: Build = build_in_process,
    lock: LockProvider | None = None,
    operation_key: str | None = None,
    is_alive: Callable[[], bool] | None = None,
    around: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> IndexResult | None:
    """Run an indexing plan: base files, catch-up, completion. Completed steps are not repeated.

    If a run fails, or is interrupted, the plan stays: writers keep logging to its indexes, no reader uses
    them, and the plan can be run again.

    :param table: the table.
    :param instant: requested time of the plan; the oldest one that no process runs when None.
    :param settings: settings of the run.
    :param build: writes the base files.
    :param lock: the table lock; :func:`~airflow_provider.locks.default_lock` when None.
    :param operation_key: stored in the heartbeat, so that a later try finds this run.
    :param is_alive: called before every beat; False gives the run up.
    :param around: a context manager for the instant; it is entered before base files are written, and left
        afterwards.
    :return: None when no plan was named, and none is pending.
    :raises NoSuchInstantError: when there is no such plan, or its indexes were dropped.
    :raises WriteConflictError: when another process runs the plan.
    :raises ServiceStoppedError: when the plan failed too often.
    :raises IndexCatchUpTimeoutError: when another Hudi writer did not end in time.
    :raises DuplicateRecordKeyError: when the plan builds the record index, and a key exists twice.
    :raises InvalidInputError: when the lock does not exclude another Hudi writer.
    :raises HeartbeatExpiredError: when this run was paused for too long.
    :raises LockTimeoutError: when the table lock is not acquired in time.
    """
    settings = settings or IndexRunSettings()
    table.check_writable()
    storage, commit_log = table.storage, CommitLog(table.storage)
    lock = lock or default_lock(table)
    publish_head(storage, commit_log)
    rollback_dead_writers(table)
    check_lock(table, lock)
    if instant is None:
        idle = pending_indexings(table, idle=True)
        if not idle:
            return None
        instant = idle[0]
    if (done := completed_indexing(table, instant)) is not None:
        return done
    indexes_of_plan(storage, commit_log, instant)
    head = commit_log.newest()
    info = HeartbeatInfo.of_this_process(
        *(Action.INDEXING, INDEX, PRIORITIES["table_service"], settings.heartbeat),
        operation_key=operation_key,
        base=head.sequence if head else 0,
    )
    with (
        stopping_itself(table, Service.INDEXING, lambda: f"indexing {instant}", settings.max_failures),
        _claimed(storage, instant, info, is_alive) as heartbeat,
    ):
        return IndexRun(table, commit_log, instant, lock, heartbeat).carry_out(
            build, around, settings.timeout_seconds, settings.poll_seconds
        )


def end_indexing(
    table: HudiTable, instant: str, operation_key: str, *, lock: LockProvider | None = None
) -> None:
    """End a run whose process is gone, without waiting until its heartbeat expires; its plan stays.

    :param table: the table.
    :param instant: requested time of the plan.
    :param operation_key: key of the run; runs with another key are left alone.
    :param lock: the table lock; :func:`~airflow_provider.locks.default_lock` when None.
    :raises UnsupportedTableError: when this package does not write such a table.
    """
    table.check_writable()
    heartbeat = observe(table.storage).get(instant)
    if heartbeat is not None and heartbeat.info.operation_key == operation_key:
        give_up(table, instant, lock or default_lock(table))
        table.storage.delete(heartbeat_path(instant))


@contextmanager
def _claimed(
    storage: Storage, instant: str, info: HeartbeatInfo, is_alive: Callable[[], bool] | None
) -> Iterator[Heartbeat]:
    """Claim a plan by the run's heartbeat, and release it afterwards."""
    if not storage.put_if_absent(heartbeat_path(instant), info.to_json()):
        found = observe(storage).get(instant)
        who = f" by {found.info.owner}" if found else ""
        raise WriteConflictError(
            f"table {storage.root}: indexing {instant} is being carried out already{who}; wait for its end",
            instant=instant,
        )
    heartbeat = Heartbeat(storage, instant, info, is_alive)
    try:
        yield heartbeat
    finally:
        heartbeat.stop()
        with suppress(HeartbeatExpiredError):
            heartbeat.check()
            storage.delete(heartbeat_path(instant))
