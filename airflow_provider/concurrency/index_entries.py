"""Putting an entry that changes the indexes: the same for a plan, its completion and a drop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from airflow_provider.concurrency.commit_log import CommitLog, IndexState, LogEntry
from airflow_provider.concurrency.conflicts import PRIORITIES
from airflow_provider.concurrency.heartbeat import HeartbeatInfo, heartbeat_path
from airflow_provider.concurrency.history import Base
from airflow_provider.concurrency.index_changes import DROP_INDEX
from airflow_provider.concurrency.indexes import current_indexes, log_missed
from airflow_provider.concurrency.instant_time import completion_time_after, request_instant
from airflow_provider.concurrency.publish import publish, staged_metadata_path, staged_plan_path
from airflow_provider.locks import LockProvider
from airflow_provider.locks.owner import describe_owner
from airflow_provider.table.instant import Action
from airflow_provider.table.metadata import encode
from airflow_provider.table.storage import Storage

log = logging.getLogger(__name__)

Indexes = tuple[IndexState, ...]


@dataclass(frozen=True)
class Change:
    """What becomes of the indexes.

    :param indexes: those that there are afterwards; of a plan, made for the instant that it gets.
    :param content: of the instant on the timeline.
    """

    indexes: Callable[[str], Indexes]
    content: bytes


Decide = Callable[[Base, Indexes], Change | None]
"""Makes a change from this moment and the indexes as of it; called under the lock, perhaps again."""


def change_indexes(
    storage: Storage,
    lock: LockProvider,
    decide: Decide,
    *,
    operation: str,
    instant: str | None = None,
    plans: bool = False,
) -> LogEntry | None:
    """Change the indexes by an entry of the log, and publish it.

    The entry follows the very moment that was decided on, and what other Hudi writers have committed by
    then is logged to the indexes that were there.

    :param storage: the table's storage.
    :param lock: the table lock.
    :param decide: what to change; None for nothing.
    :param operation: of the entry.
    :param instant: requested time; a new one when None.
    :param plans: whether the instant is scheduled by it, and not completed.
    :return: the entry; None when there was nothing to change.
    :raises LockTimeoutError: when the table lock could not be had in time.
    """
    commit_log = CommitLog(storage)
    with lock:
        while True:
            base = Base.now(storage, commit_log)
            indexes = current_indexes(storage, commit_log, base.newest)
            change = decide(base, indexes)
            if change is None:
                return None
            log_missed(storage, indexes, base.timeline)
            if (entry := _put(storage, commit_log, base, change, operation, instant, plans)) is not None:
                return entry


def drop_indexes(
    storage: Storage, is_wanted: Callable[[str], bool], lock: LockProvider
) -> tuple[LogEntry, tuple[str, ...]] | None:
    """Drop indexes by an entry of the log.

    :param storage: the table's storage.
    :param is_wanted: whether a partition of the metadata table is to go.
    :param lock: the table lock.
    :return: the entry, and what is gone; None where nothing was to go.
    :raises LockTimeoutError: when the table lock could not be had in time.
    """
    gone: list[str] = []

    def decide(base: Base, before: Indexes) -> Change | None:
        gone[:] = [each.partition for each in before if is_wanted(each.partition)]
        if not gone:
            return None
        after = tuple(each for each in before if not is_wanted(each.partition))
        infos = [{"version": 1, "metadataPartitionPath": each} for each in gone]
        record = {"version": 1, "operationType": DROP_INDEX, "indexPartitionInfos": infos}
        return Change(lambda _: after, encode("HoodieIndexCommitMetadata", record))

    entry = change_indexes(storage, lock, decide, operation=DROP_INDEX)
    if entry is None:
        return None
    log.info("table %s: dropped the indexes %s", storage.root, ", ".join(gone))
    return entry, tuple(gone)


def _put(
    storage: Storage,
    commit_log: CommitLog,
    base: Base,
    change: Change,
    operation: str,
    known: str | None,
    plans: bool,
) -> LogEntry | None:
    """The entry; None when another one came in between."""
    owner, later_than = describe_owner(), base.timeline.newest_completion
    if (instant := known) is None:
        info = HeartbeatInfo(owner, Action.INDEXING, operation, 0, 10.0, 6, base=base.sequence)
        instant, _ = request_instant(storage, commit_log, base.newest, info, later_than=later_than)
    staged = staged_plan_path(instant) if plans else staged_metadata_path(instant)
    entry = LogEntry(
        instant=instant,
        action=Action.INDEXING,
        completion_time=completion_time_after(base.newest, instant, later_than=later_than),
        operation=operation,
        priority=PRIORITIES["table_service"],
        metadata_path=staged,
        plans=plans,
        owner=owner,
        indexes=change.indexes(instant),
        sequence=base.sequence + 1,
    )
    put = False
    try:
        storage.put(staged, change.content)
        put = commit_log.append(entry.sequence, entry)
        if not put:
            if known is None:  # under a known one somebody else may have staged, and been first
                storage.delete(staged)
                storage.delete(heartbeat_path(instant))
            return None
        try:
            publish(storage, entry)
        except OSError as error:
            # The entry is what counts; the next writer publishes what could not be published.
            log.warning("%s %s is not published yet: %s", operation, instant, error)
        return entry
    finally:
        if put and known is None:  # otherwise it stays, for the next writer to find by it what was staged
            storage.delete(heartbeat_path(instant))
