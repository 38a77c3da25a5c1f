"""Cleaning and archival of the metadata table after a compaction.

Both can run at any time, in several processes at once, and again after a crash.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress

from airflow_provider.concurrency import CommitLog
from airflow_provider.concurrency.heartbeats import observe
from airflow_provider.concurrency.log import Fate, fate_of
from airflow_provider.concurrency.readers import READERS_FOLDER
from airflow_provider.exceptions import NoSuchInstantError
from airflow_provider.services.archival import archived_content, take_off
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata_table import (
    BASE_FILE,
    FileGroup,
    MetadataFile,
    MetadataTable,
    is_initial,
    metadata_storage,
)
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import (
    Action,
    ArchivedInstant,
    Instant,
    State,
    Timeline,
    WriteStat,
    append_history,
    merge_history,
    newest_archived,
)

log = logging.getLogger(__name__)

_LAST = "9"  # sorts after every instant time


def superseded_files(table: HudiTable) -> list[MetadataFile]:
    """The files of the metadata table that no reader can need any more.

    Slices that the last compaction has superseded stay for readers that began before it completed. The next
    compaction is not planned before that. An earlier slice was superseded by one compaction, and a second
    compaction followed. It stays while a writer, or a reader with a lease, that began before the second one
    was planned is alive.

    :param table: the table; nothing is written to it.
    """
    began = min([*observe(table.storage), *observe(table.storage, READERS_FOLDER)], default=_LAST)
    metadata_table = MetadataTable(metadata_storage(table.storage))
    compactions = [each for each in _compactions(metadata_table.timeline) if each <= began]
    last = max(compactions, default="")
    return [file for group in _file_groups(table, metadata_table) for file in _superseded(group, last)]


def delete_superseded(table: HudiTable) -> list[str]:
    """Delete the files of the metadata table that no reader can need any more.

    :param table: the table.
    :return: their paths, relative to the metadata table.
    :raises UnsupportedTableError: when this package does not write such a table.
    """
    table.check_writable()
    storage = metadata_storage(table.storage)
    timeline, deleted = Timeline.load(storage), []
    for instant in timeline.commits():
        if instant.action is Action.COMMIT:
            with suppress(NoSuchInstantError):  # it was just archived
                stats = timeline.commit_metadata(instant).write_stats
                deleted += delete_leftovers(storage, instant.requested_time, stats)
    return deleted + [each.path for each in superseded_files(table) if storage.delete(each.path)]


def delete_leftovers(storage: Storage, instant: str, stats: Iterable[WriteStat]) -> list[str]:
    """Delete the base files of a compaction of the metadata table that its metadata does not name.

    A JVM and this package may carry out one plan, if one of them dies or has lost the lock. hudi-rs reads no
    file group that has two base files of one instant. ``HoodieTable#finalizeWrite`` deletes such files, too.

    :param storage: the metadata table's storage.
    :param instant: requested time of the compaction.
    :param stats: the statistics of its base files.
    :return: the paths of the deleted files.
    """
    stats = list(stats)
    named = {stat.path for stat in stats}
    written = (
        (name, f"{partition}/{name}")
        for partition in sorted({stat.partition_path for stat in stats})
        for name in storage.names(partition)
    )
    return [
        path
        for name, path in written
        if path not in named
        and (base_file := BASE_FILE.match(name)) is not None
        and base_file["instant"] == instant
        and storage.delete(path)
    ]


def archive_metadata_timeline(table: HudiTable) -> list[str]:
    """Move instants of the metadata table that no process needs any more into its archived timeline.

    Readers take instants that are older than a timeline for committed. So these instants stay:

    - instants that are on the table's own timeline, where archival keeps them as long as a dead writer may be
      paused and wake up, and instants of writers in flight;
    - the last compaction, and every pending instant;
    - all instants, while an index is newer than the last compaction;
    - every instant with a log file in a file slice that is kept, and all instants after that slice's base
      file: they decide when readers merge their log files.

    :param table: the table.
    :return: requested times of the instants archived.
    :raises UnsupportedTableError: when this package does not write such a table.
    """
    table.check_writable()
    storage = metadata_storage(table.storage)
    commit_log = CommitLog(table.storage)
    bounds = [*observe(table.storage)]
    bounds += [instant.requested_time for instant in table.timeline().instants[:1]]
    metadata_table = MetadataTable(storage)
    timeline, archived = Timeline.load(storage, archived_too=True), newest_archived(storage)
    gone = []  # instants that a paused writer put late, after its write was rolled back or archived
    for instant in timeline.pending():
        time, action = instant.requested_time, instant.action
        is_late = time <= archived or (
            action is Action.DELTA_COMMIT and _has_ended(table, commit_log, instant)
        )
        if is_late and not is_initial(time):  # the requested time of an initial instant is only a name
            gone.append(instant)
        else:
            bounds.append(time)
    groups = list(_file_groups(table, metadata_table))
    stays = min([*bounds, max(_compactions(timeline), default=""), *_needed(groups)])
    # An initial instant has the lowest name of all, so it would leave first. It stays until a compaction is
    # planned after it, because its completion time tells readers which base files an older compaction has
    # written late.
    first = (i.completion_time or "" for i in timeline.completed() if is_initial(i.requested_time))
    if max(first, default="") >= stays:
        stays = ""
    leaving = [i for i in timeline.instants if i.requested_time < stays and i.state is State.COMPLETED]
    append_history(storage, _contents(storage, leaving))
    for file in (file for group in groups for file in group.uncommitted if file.instant < stays):
        if not is_initial(file.instant):  # an index that is being built begins with initial files
            storage.delete(file.path)  # the file is a dead writer's
    take_off(storage, [*leaving, *gone])
    merge_history(storage)
    if leaving:
        log.info("the metadata table of %s: archived %d instants", table.location, len(leaving))
    return [instant.requested_time for instant in leaving]


def _file_groups(table: HudiTable, metadata_table: MetadataTable) -> Iterator[FileGroup]:
    config = HudiTable.at(table.storage).config
    for partition in (*config.metadata_partitions, *config.inflight_metadata_partitions):
        yield from metadata_table.file_groups(partition)


def _compactions(timeline: Timeline) -> list[str]:
    return [i.requested_time for i in timeline.commits() if i.action is Action.COMMIT]


def _superseded(group: FileGroup, last: str) -> list[MetadataFile]:
    """The files of slices that were superseded before a compaction was planned, and of dropped indexes."""
    bases = [each.instant for each in group.base_files]
    first = bases[0] if bases else ""
    # The slice before the first base file has log files only.
    slices = ["", *bases] if any(each.completion_time <= first for each in group.log_files) else bases
    oldest = max([*slices[:1], *(each for each in slices if each < last)], default="")
    old_logs = (each for each in group.log_files if each.completion_time <= oldest or each.instant == oldest)
    old_bases = (each for each in group.base_files if each.instant < oldest)
    return [*group.of_dropped, *old_bases, *old_logs]


def _needed(groups: Iterable[FileGroup]) -> Iterator[str]:
    """For each file group, the first instant that has to stay, so that readers merge its log files."""
    for group in groups:
        logs = [each.instant for each in group.log_files if not each.is_empty]
        # A group without log files needs no instant: readers ignore late log files of dead writers.
        if logs:
            began = (each.instant for each in group.base_files[:1] if not is_initial(each.instant))
            yield min([*began, *logs])


def _has_ended(table: HudiTable, commit_log: CommitLog, instant: Instant) -> bool:
    """Whether the table's instant of the same name has ended, so that no writer can complete this one."""
    return fate_of(table.storage, commit_log, instant.requested_time) not in (None, Fate.COMPLETED)


def _contents(storage: Storage, instants: Iterable[Instant]) -> list[ArchivedInstant]:
    found = (archived_content(storage, instant) for instant in instants)
    return [each for each in found if each is not None]
