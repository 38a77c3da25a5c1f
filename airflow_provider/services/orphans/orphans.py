"""Data files of instants that are no commits: of dead writers, of reverted rewrites, of undone commits.

An instant is dead when an entry of the commit log, or another Hudi writer's rollback, declares it dead. The
files of any other instant are left alone. The files of a dead instant can never become part of the table
again. So they may be deleted at any time, even files that a task wrote after the rollback because it outlived
its job.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from enum import StrEnum

from airflow_provider.concurrency import CommitLog
from airflow_provider.concurrency.commit import files_in
from airflow_provider.concurrency.heartbeats import observe
from airflow_provider.concurrency.log import LogEntry, Restore, Revert, Rollback
from airflow_provider.concurrency.readers import READERS_FOLDER
from airflow_provider.table.file_groups import FileSystemView
from airflow_provider.table.files import MARKS_OF_A_PARTITION, parse_data_file_name
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.storage import FileStatus, Storage
from airflow_provider.table.timeline import Action, Timeline, age, decode, read_completed, timeline_zone

DAY = 24 * 3600.0


class End(StrEnum):
    """How an instant ended without a commit."""

    ROLLED_BACK = "rolled back"
    REVERTED = "reverted"
    RESTORED = "undone by a restore"


@dataclass(frozen=True)
class DeadInstant:
    """An instant that is no commit, and will never be one.

    :param end: how it ended.
    :param at: completion time of the entry or rollback that declares it dead.
    :param kept: paths of its data files that were kept for readers, relative to the table. Only a rollback on
        the timeline names them.
    """

    end: End
    at: str
    kept: tuple[str, ...] = ()

    def is_over(self, seconds: float, now: float, zone: tzinfo) -> bool:
        """Whether the end is so long ago that no reader can use its files any more. An instant that was never
        visible has no reader.

        :param seconds: a time that is longer than any query runs.
        :param now: the present by the storage's clock.
        :param zone: time zone of the table's instant times.
        """
        if self.end is not End.REVERTED:
            return True
        return age(self.at, now, zone) >= seconds


def bases_in_use(storage: Storage) -> dict[str, str]:
    """The moments whose files must stay, because a writer or a reader with a lease is based on them.

    :param storage: the table's storage.
    :return: the completion time of each one's base, by its name for people; empty for an empty log.
    """
    commit_log = CommitLog(storage)
    # An expired writer also needs its files: until it is rolled back, it may wake up.
    bases = {
        f"writer {each.instant} by {each.info.owner}": each.info.base for each in observe(storage).values()
    }
    bases |= {
        f"reader {name} by {lease.info.owner}": lease.info.base
        for name, lease in observe(storage, READERS_FOLDER).items()
        if lease.alive
    }
    entries = {name: commit_log.read(base) for name, base in sorted(bases.items())}
    return {name: entry.completion_time if entry else "" for name, entry in entries.items()}


def data_files(storage: Storage) -> list[FileStatus]:
    """The base files and log files of a table, of all instants.

    :param storage: the table's storage.
    """
    return [
        status
        for partition in sorted(storage.folders_holding(*MARKS_OF_A_PARTITION))
        for status in storage.list(partition)
        if parse_data_file_name(status.name)
    ]


def dead_instants(storage: Storage, commit_log: CommitLog, timeline: Timeline) -> Mapping[str, DeadInstant]:
    """All instants that are known to be dead, by requested time.

    :param storage: the table's storage.
    :param commit_log: the table's commit log.
    :param timeline: the active timeline.
    """
    found: dict[str, DeadInstant] = {}
    ours = set()
    for entry in commit_log.backwards():
        if (end := _ENDS.get(type(entry))) is not None:
            ours.add(entry.instant)
            found.update(dict.fromkeys(entry.undone, DeadInstant(end, entry.completion_time)))
    view = FileSystemView(storage, timeline)
    for dead, how in dead_on_timeline(storage, timeline, but_by=ours).items():
        if not view.shows(dead) and timeline.find(dead) is None:
            found.setdefault(dead, how)
    return found


_ENDS: Mapping[type[LogEntry], End] = {
    Rollback: End.ROLLED_BACK,
    Revert: End.REVERTED,
    Restore: End.RESTORED,
}


def dead_on_timeline(
    storage: Storage, timeline: Timeline, *, but_by: Collection[str] = ()
) -> dict[str, DeadInstant]:
    """The instants that rollbacks and restores on a timeline made dead, by any Hudi writer.

    :param storage: the table's storage.
    :param timeline: the active timeline.
    :param but_by: requested times of rollbacks and restores to ignore.
    """
    found: dict[str, DeadInstant] = {}
    for instant in timeline.completed():
        if instant.action not in (Action.ROLLBACK, Action.RESTORE) or instant.requested_time in but_by:
            continue
        at, told = instant.completion_time or "", decode(read_completed(storage, timeline, instant))
        if instant.action is Action.RESTORE:
            for undone in told.get("restoreInstantInfo") or ():
                found[str(undone["commitTime"])] = DeadInstant(End.RESTORED, at)
            continue
        partitions = (told.get("partitionMetadata") or {}).values()
        urls = (url for each in partitions for url in each.get("failedDeleteFiles") or ())
        kept = tuple(url.removeprefix(storage.url("")).lstrip("/") for url in urls)
        for dead in told.get("commitsRollback") or ():
            found[str(dead)] = DeadInstant(End.REVERTED if kept else End.ROLLED_BACK, at, kept)
    # After a rollback, the JVM executes a plan again under the same requested time.
    again = {instant.requested_time for instant in timeline.completed()}
    return {dead: how for dead, how in found.items() if dead not in again}


def delete_reverted_files(
    table: HudiTable, *, after_seconds: float = DAY, dry_run: bool = False
) -> list[str]:
    """Delete the data files of reverted rewrites once no reader can use them any more.

    A clean does the same, with all other orphans; this is for a table that is never cleaned. The files stay
    while a writer, or a reader with a lease, is based on a moment before the revert.

    :param table: the table.
    :param after_seconds: seconds after the revert. It must be longer than any query runs.
    :param dry_run: True only returns the files, and deletes none.
    :return: paths of the files deleted, relative to the table.
    :raises UnsupportedTableError: when this package does not write such a table.
    """
    table.check_writable()
    storage = table.storage
    now, zone, deleted = storage.clock(anew=True), timeline_zone(storage), []
    in_use = bases_in_use(storage).values()
    for entry in CommitLog(storage).backwards():
        if not isinstance(entry, Revert):
            continue
        if not DeadInstant(End.REVERTED, entry.completion_time).is_over(after_seconds, now, zone):
            continue
        if any(base < entry.completion_time for base in in_use):
            continue
        partitions = {group.partition_path for group in entry.written}
        for path in files_in(storage, partitions, entry.rolls_back):
            if dry_run or storage.delete(path):
                deleted.append(path)
    return deleted
