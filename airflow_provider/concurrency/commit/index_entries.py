"""Putting an entry that changes the indexes: an indexing plan, its completion, or a drop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from airflow_provider.concurrency.commit.commit_point import commit
from airflow_provider.concurrency.commit.concurrent_changes import Moment
from airflow_provider.concurrency.commit.staged_paths import staged_metadata_path, staged_plan_path
from airflow_provider.concurrency.commit.unlogged_commits import log_unlogged_commits
from airflow_provider.concurrency.conflicts import PRIORITIES
from airflow_provider.concurrency.indexes import DROP_INDEX
from airflow_provider.concurrency.log import Commit, IndexState, LogEntry, Plan
from airflow_provider.locks import LockProvider
from airflow_provider.locks.owner import describe_owner
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import Action, encode

log = logging.getLogger(__name__)

Indexes = tuple[IndexState, ...]


@dataclass(frozen=True)
class IndexChange:
    """A change of the indexes.

    :param indexes: returns the indexes after the change, given the requested time of the entry's instant.
    :param content: the content of the instant's file on the timeline.
    """

    indexes: Callable[[str], Indexes]
    content: bytes


Decide = Callable[[Moment], IndexChange | None]
"""Decides on a change at a moment; called under the lock, perhaps several times."""


def change_indexes(
    storage: Storage,
    lock: LockProvider,
    decide: Decide,
    *,
    operation: str,
    instant: str | None = None,
    plans: bool = False,
    logged_since: str | None = None,
    operation_key: str | None = None,
) -> LogEntry | None:
    """Change the indexes by an entry of the log, and publish it.

    The entry directly follows the moment of the decision. Before it is put, the commits of other Hudi writers
    up to that moment are logged to the indexes that stay.

    :param storage: the table's storage.
    :param lock: the table lock.
    :param decide: returns the change; None for no change.
    :param operation: the entry's operation type.
    :param instant: requested time; a new one when None.
    :param plans: whether the entry schedules the instant; otherwise it completes it.
    :param logged_since: a completion time; each index has to have every commit that completed later. The
        completion time of the newest entry when None.
    :param operation_key: stored in the heartbeat of a new instant, while its entry is made.
    :return: the entry; None when there was nothing to change.
    :raises LockTimeoutError: when the table lock could not be acquired in time.
    """
    kind: type[Plan] | type[Commit] = Plan if plans else Commit
    path_of = staged_plan_path if plans else staged_metadata_path

    def entry(moment: Moment) -> LogEntry | None:
        change = decide(moment)
        if change is None:
            return None
        requested = instant or moment.request_instant(Action.INDEXING, operation, operation_key=operation_key)
        after = change.indexes(requested)
        # A dropped index may be in a state in which nothing can be logged to it.
        stay = {index.partition for index in after}
        stays = tuple(index for index in moment.table_indexes.kept if index.partition in stay)
        since = moment.completed_until if logged_since is None else logged_since
        log_unlogged_commits(storage, stays, moment.timeline, after=since)
        storage.put(path_of(requested), change.content)
        return kind(
            instant=requested,
            action=Action.INDEXING,
            operation=operation,
            priority=PRIORITIES["table_service"],
            metadata_path=path_of(requested),
            owner=describe_owner(),
            indexes=after,
        )

    with lock:
        return commit(storage, entry)


def drop_indexes(
    storage: Storage, is_wanted: Callable[[str], bool], lock: LockProvider
) -> tuple[LogEntry, tuple[str, ...]] | None:
    """Drop indexes by an entry of the log, including those that this package does not maintain.

    :param storage: the table's storage.
    :param is_wanted: whether to drop a partition of the metadata table.
    :param lock: the table lock.
    :return: the entry, and the dropped partitions; None where there was none to drop.
    :raises LockTimeoutError: when the table lock could not be acquired in time.
    """
    gone: list[str] = []

    def decide(moment: Moment) -> IndexChange | None:
        there = moment.table_indexes
        named = (*(each.partition for each in there.kept), *there.unsupported_indexes)
        gone[:] = [partition for partition in named if is_wanted(partition)]
        if not gone:
            return None
        after = tuple(each for each in there.kept if not is_wanted(each.partition))
        record = {"indexPartitionInfos": [{"metadataPartitionPath": each} for each in gone]}
        return IndexChange(lambda _: after, encode("HoodieIndexCommitMetadata", record))

    entry = change_indexes(storage, lock, decide, operation=DROP_INDEX)
    if entry is None:
        return None
    log.info("table %s: dropped the indexes %s", storage.root, ", ".join(gone))
    return entry, tuple(gone)
