"""Revert: the rollback of a rewrite that has completed (RFC-22's example for priorities).

The most dangerous step of all (design section 5). It is encoded as a rollback of the instant: its
completed file goes, so that the file groups that it took out show again. To name them in a new
replacecommit instead would lose every row of them in a standard reader. Each guard here was found
necessary by a search over a model; where one fails, the caller rebases instead.
"""

from __future__ import annotations

import logging
import time

from airflow_provider.concurrency.commit_log import CommitLog, LogEntry, without_reverted
from airflow_provider.concurrency.conflicts import CLEANING, PRIORITIES
from airflow_provider.concurrency.heartbeat import HeartbeatInfo, heartbeat_path
from airflow_provider.concurrency.instant_time import completion_time_after, request_instant
from airflow_provider.concurrency.publish import files_in, publish
from airflow_provider.locks.owner import describe_owner
from airflow_provider.table.file_groups import FileSystemView
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.instant import Action, parse_time
from airflow_provider.table.metadata import REWRITES
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import Timeline

log = logging.getLogger(__name__)


def obstacle(storage: Storage, commit_log: CommitLog, rewrite: LogEntry) -> str | None:
    """Why a completed rewrite must not be reverted now.

    What is not asked here because it holds by itself: a writer in flight that is based on the
    rewrite's outputs loses, because the revert's entry touches them (guard 2), and a file group's
    merge base is its last committed slice also while it is replaced, because a writer merges on the
    snapshot at its base (guard 3).

    :param storage: the table's storage.
    :param commit_log: the table's commit log.
    :param rewrite: the entry that completed the rewrite.
    :return: None when nothing is in the way of a revert at the log's end.
    """
    if rewrite.operation not in REWRITES or not rewrite.sequence:
        return "it is no rewrite that this package made"
    if not storage.moves_atomically:
        return "the storage cannot move a file in one step, so that a late publisher could bring it back"
    since = without_reverted(commit_log.after(rewrite.sequence))
    for entry in since:
        if entry.touched & rewrite.written:
            return f"{entry.operation} {entry.instant} has written to its file groups since"
        if entry.operation in CLEANING and entry.written & rewrite.replaced:
            return f"clean {entry.instant} takes the file groups that it replaced"
    timeline = Timeline.load(storage)
    if any(i.action is Action.SAVEPOINT and i.requested_time >= rewrite.instant for i in timeline.instants):
        return "a savepoint holds it"
    earlier = (i for i in timeline.commits() if i.requested_time < rewrite.instant)
    if next(earlier, None) is None:
        # Readers take what is older than the timeline for committed (Hudi's rule).
        return "it is the oldest commit of the active timeline"
    without = timeline.showing(lambda i: i.requested_time != rewrite.instant)
    view = FileSystemView(storage, without)
    for group in sorted(rewrite.replaced):
        if view.base_file(group) is None:
            return f"the files of {group.partition_path}/{group.file_id}, which it replaced, are gone"
    return None


def put_revert(
    storage: Storage, commit_log: CommitLog, newest: LogEntry, rewrite: LogEntry, *, later_than: str
) -> LogEntry | None:
    """Put the revert's entry right after an entry of the log, and publish it.

    :param storage: the table's storage.
    :param commit_log: the table's commit log.
    :param newest: the entry up to which :func:`obstacle` has looked.
    :param rewrite: the entry to be reverted.
    :param later_than: an instant time that the revert's must exceed.
    :return: the entry; None when somebody else was first, so that all has to be looked at again.
    """
    owner = describe_owner()
    info = HeartbeatInfo(
        owner, Action.ROLLBACK, "ROLLBACK", interval=10.0, tolerable_misses=6, base=newest.sequence
    )
    instant, _ = request_instant(storage, commit_log, newest, info, later_than=later_than)
    entry = LogEntry(
        instant=instant,
        action=Action.ROLLBACK,
        completion_time=completion_time_after(newest, instant),
        operation="ROLLBACK",
        priority=PRIORITIES["ingestion"],
        written=rewrite.written,
        replaced=rewrite.replaced,
        rolls_back=rewrite.instant,
        rolled_back_action=rewrite.action,
        reverts=rewrite.sequence,
        owner=owner,
        sequence=newest.sequence + 1,
    )
    if not commit_log.append(entry.sequence, entry):
        storage.delete(heartbeat_path(instant))
        return None
    log.info("table %s: %s %s reverted by %s", storage.root, rewrite.operation, rewrite.instant, instant)
    publish(storage, entry)
    return entry


def delete_reverted_files(
    table: HudiTable, *, after_seconds: float = 24 * 3600.0, dry_run: bool = False
) -> list[str]:
    """Delete the data files of reverted rewrites, once no reader can be on them any more.

    :param table: the table.
    :param after_seconds: how long the revert has to be over: longer than any query runs.
    :param dry_run: whether only to tell which files these are.
    :return: paths of the files deleted, relative to the table.
    """
    storage = table.storage
    deleted = []
    for entry in CommitLog(storage).backwards():
        age = time.time() - parse_time(entry.completion_time).timestamp()
        if entry.reverts is None or age < after_seconds:
            continue
        partitions = {group.partition_path for group in entry.written}
        for status in files_in(storage, partitions, entry.rolls_back or ""):
            if dry_run or storage.delete(status.path):
                deleted.append(status.path)
    return deleted
