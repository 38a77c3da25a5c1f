"""Commits of other Hudi writers that are not in the indexes: the next commit of this package logs them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from contextlib import suppress
from itertools import takewhile

from airflow_provider.concurrency.indexes import (
    LivingKeys,
    StagedChange,
    change_of_completed,
    columns_of,
    publish_staged,
    write_records,
)
from airflow_provider.concurrency.log import CommitLog, IndexState
from airflow_provider.exceptions import CorruptTableError, NoSuchInstantError
from airflow_provider.table.file_groups import FileSystemView
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata_table import MetadataTable, is_initial, metadata_storage, records_of
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import Action, Instant, Timeline, find_archived

log = logging.getLogger(__name__)

_LOGGED = frozenset(
    {
        Action.COMMIT,
        Action.DELTA_COMMIT,
        Action.REPLACE_COMMIT,
        Action.CLEAN,
        Action.ROLLBACK,
        Action.RESTORE,
    }
)


def log_unlogged_commits(
    storage: Storage, indexes: tuple[IndexState, ...], timeline: Timeline, *, after: str | None = None
) -> list[Instant]:
    """Log to the indexes the commits of other Hudi writers that did not log to them.

    The caller is about to put an entry. Several processes may call this at once: they log the same records.

    :param storage: the table's storage.
    :param indexes: the present indexes.
    :param timeline: the active timeline of now.
    :param after: a completion time: other Hudi writers may have logged later commits to some of the indexes
        only. None where no writer can have done so.
    :return: the instants logged, in the order in which they completed.
    :raises CorruptTableError: when an index was compacted since, so that the commit cannot be logged to it.
    """
    if not indexes:
        return []
    logged = []
    for each in find_unlogged_commits(storage, indexes, timeline):
        with suppress(NoSuchInstantError):  # just undone, by an entry before the caller's
            logged.append(_log(storage, indexes, timeline, each))
    if after is not None:
        logged += _log_partly_missed(storage, indexes, timeline, after, but=logged)
    return logged


def find_unlogged_commits(
    storage: Storage, indexes: Collection[IndexState], timeline: Timeline
) -> list[Instant]:
    """The instants that completed without logging to the indexes, in the order in which they completed.

    :param storage: the table's storage.
    :param indexes: the present indexes.
    :param timeline: the active timeline of now.
    """
    if not indexes:
        return []
    metadata_table = metadata_storage(storage)
    own = Timeline.load(metadata_table)
    # An instant that is pending on the metadata table belongs to a process that failed while it logged it.
    logged = {each.requested_time for each in own.completed()}
    # The initial files of the first index have all instants that completed before.
    since = min(_since(index, own) for index in indexes)
    found = [
        instant
        for instant in timeline.completed()
        if instant.action in _LOGGED
        and (instant.completion_time or "") > since
        and instant.requested_time not in logged
        and find_archived(metadata_table, instant.requested_time) is None
    ]
    return sorted(found, key=lambda each: each.completion_time or "")


def _since(index: IndexState, own: Timeline) -> str:
    """The time up to which the initial files of an index have all instants.

    :param own: the metadata table's timeline.
    """
    if index.instant:
        return index.instant
    made = own.find(index.made)
    if made is not None and made.completion_time:
        return made.completion_time
    # Another Hudi writer made the index, by an instant that is archived now, or by one of its commits.
    logged = (each.requested_time for each in own.completed())
    return min((each for each in logged if not is_initial(each)), default="")


def _log(storage: Storage, indexes: tuple[IndexState, ...], timeline: Timeline, instant: Instant) -> Instant:
    change = change_of_completed(storage, timeline, instant, indexes)
    StagedChange(storage, instant.requested_time).stage(
        indexes, lambda: change, lambda: FileSystemView(storage, timeline)
    )
    publish_staged(storage, instant.requested_time, instant.completion_time or "")
    log.info("table %s: logged %s to its indexes, because its writer did not", storage.root, instant)
    return instant


def _log_partly_missed(
    storage: Storage,
    indexes: tuple[IndexState, ...],
    timeline: Timeline,
    after: str,
    *,
    but: Collection[Instant],
) -> list[Instant]:
    """Log commits of other Hudi writers to those indexes that the writers have left out.

    A writer that began before an index was made logs only to the indexes that it knew.
    """
    later = [
        instant
        for instant in timeline.commits()
        if (instant.completion_time or "") > after and instant not in but
    ]
    if not later:
        return []
    found = []
    ours, own = _completed_here(storage, after), Timeline.load(metadata_storage(storage))
    for instant in later:
        delta_commit = own.find(instant.requested_time)
        if delta_commit is None or instant.requested_time in ours:
            continue
        named = {stat.partition_path for stat in own.commit_metadata(delta_commit).write_stats}
        left = [
            index
            for index in indexes
            if index.partition not in named and _since(index, own) < (instant.completion_time or "")
        ]
        with suppress(NoSuchInstantError):
            if left and _log_to(storage, left, timeline, instant):
                found.append(instant)
    return found


def _completed_here(storage: Storage, after: str) -> frozenset[str]:
    """The instants that entries of the log have completed after a time."""
    entries = takewhile(lambda each: each.completion_time > after, CommitLog(storage).backwards())
    return frozenset(entry.instant for entry in entries)


def _log_to(storage: Storage, indexes: Sequence[IndexState], timeline: Timeline, instant: Instant) -> bool:
    """Log an instant to indexes that its writer has left out; False where there is no record to log."""
    change = change_of_completed(storage, timeline, instant, indexes)
    partitions = [index.partition for index in indexes]
    living = LivingKeys(storage, lambda: HudiTable.at(storage).schema_on(timeline))
    records = records_of(storage, change, partitions, columns_of(storage, partitions), living=living)
    metadata_table = metadata_storage(storage)
    table = MetadataTable(metadata_table)
    for index in indexes:
        of_partition = records.get(index.partition)
        if not of_partition:
            continue
        bases = [each.base_file.instant for each in table.file_slices(index.partition) if each.base_file]
        if any(not is_initial(each) and each >= (instant.completion_time or "") for each in bases):
            raise CorruptTableError(
                f"table {storage.root}: another Hudi writer has completed {instant.requested_time} without "
                f"logging it to the index {index.partition}, and compacted that since; drop it, and build "
                "it again",
                location=storage.root,
                index=index.partition,
                instant=instant.requested_time,
            )
        write_records(metadata_table, index, instant.requested_time, of_partition)
    if records:
        told = "table %s: logged %s to %s, because its writer did not"
        log.info(told, storage.root, instant, ", ".join(sorted(records)))
    return bool(records)
