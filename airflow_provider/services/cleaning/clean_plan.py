"""The plan of a clean: which files it deletes and keeps, and why. It is made on one view, before any
deletion.

A file slice is visible from its commit's completion until it is superseded: by the next slice of its file
group, or when the group is replaced. Each writer, reader and consumer names the moment from which on it needs
snapshots, and each savepoint names files. A slice is deleted when it was superseded before all those moments,
and no savepoint names it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from airflow_provider.concurrency.heartbeats import observe
from airflow_provider.concurrency.readers import registered_consumers
from airflow_provider.exceptions import NoSuchInstantError
from airflow_provider.services.cleaning.retention import CleaningPolicy, Retention
from airflow_provider.services.orphans import DeadInstant, End, Found, bases_in_use
from airflow_provider.table.file_groups import ORPHANED_INSTANTS, FileGroupId, FileSystemView
from airflow_provider.table.files import parse_data_file_name
from airflow_provider.table.storage import FileStatus, Storage
from airflow_provider.table.timeline import (
    WRITE_ACTIONS,
    Instant,
    decode,
    encode,
    find_commit,
    format_time,
    replaced_by_archived,
    timeline_zone,
)

_PLAN_VERSION = 2


class Reason(StrEnum):
    """Why a clean deletes a file."""

    SUPERSEDED = "superseded by a later slice"
    REPLACED = "of a file group that was taken out"
    ROLLED_BACK = "of a writer that was rolled back"
    REVERTED = "of a rewrite that was reverted"
    RESTORED = "of a commit that a restore has undone"
    LEFTOVER = "left by a task attempt that its commit does not name"


_OF_THE_DEAD = {
    End.ROLLED_BACK: Reason.ROLLED_BACK,
    End.REVERTED: Reason.REVERTED,
    End.RESTORED: Reason.RESTORED,
}


@dataclass(frozen=True)
class FileToDelete:
    """A file that a clean deletes.

    :param path: path relative to the table.
    :param size: bytes.
    :param reason: why the clean deletes it.
    """

    path: str
    size: int
    reason: Reason

    @property
    def file_group(self) -> FileGroupId:
        """The file group of the file."""
        partition, _, name = self.path.rpartition("/")
        parsed = parse_data_file_name(name)
        return FileGroupId(partition, parsed.file_id if parsed else name)


@dataclass(frozen=True)
class KeptFiles:
    """Files that a clean would delete if a reader or writer did not need them.

    :param by: the reader or writer, for people. A file that several of them need is counted for each.
    :param files: number of files.
    :param size: bytes.
    """

    by: str
    files: int
    size: int


@dataclass(frozen=True)
class CleanPlan:
    """The files that a clean deletes, and the superseded ones that it keeps for a reader or writer.

    :param retention: the retention that made the plan.
    :param files: the files to delete, by path.
    :param kept: the files that are kept, by the reader or writer that needs them.
    :param retained_files: number of superseded files that the policy keeps.
    :param earliest_commit_to_retain: the commit from which on every snapshot stays; None with
        KEEP_LATEST_FILE_VERSIONS, and for a table without a commit.
    :param expired_consumers: names of expired consumers, for which the clean keeps nothing.
    :param last_completed: requested time of the newest commit.
    :param savepoints: requested times of the commits that savepoints keep.
    :param orphaned_instants: dead instants whose files the clean deletes.
    """

    retention: Retention
    files: tuple[FileToDelete, ...] = ()
    kept: tuple[KeptFiles, ...] = ()
    retained_files: int = 0
    earliest_commit_to_retain: Instant | None = None
    expired_consumers: tuple[str, ...] = ()
    last_completed: str = ""
    savepoints: tuple[str, ...] = ()
    orphaned_instants: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Number of bytes that the clean frees."""
        return sum(file.size for file in self.files)

    @property
    def file_groups(self) -> frozenset[FileGroupId]:
        """File groups that lose files."""
        return frozenset(file.file_group for file in self.files)

    def to_dict(self) -> dict[str, Any]:
        """The plan as a JSON-able dict, for people and for machines."""
        earliest = self.earliest_commit_to_retain
        return {
            "policy": str(self.retention.policy),
            "retained": self.retention.retained,
            "files": [{"path": f.path, "bytes": f.size, "why": str(f.reason)} for f in self.files],
            "bytes": self.size,
            "held": [{"by": each.by, "files": each.files, "bytes": each.size} for each in self.kept],
            "retained_files": self.retained_files,
            "earliest_commit_to_retain": earliest and earliest.requested_time,
            "expired_consumers": list(self.expired_consumers),
        }

    def to_avro(self, storage: Storage) -> bytes:
        """Hudi's ``HoodieCleanerPlan``."""
        earliest = self.earliest_commit_to_retain
        by_partition: dict[str, list[dict[str, Any]]] = {}
        for file in self.files:
            named = {"filePath": storage.url(file.path), "isBootstrapBaseFile": False}
            by_partition.setdefault(file.file_group.partition_path, []).append(named)
        # The JVM must not archive these commits, so that a savepoint can be restored.
        kept = (*self.savepoints, *([earliest.requested_time] if earliest else ()))
        record: dict[str, Any] = {
            "earliestInstantToRetain": earliest
            and {
                "timestamp": earliest.requested_time,
                "action": str(earliest.action),
                "state": earliest.state.name,
            },
            "lastCompletedCommitTimestamp": self.last_completed,
            "policy": str(self.retention.policy),
            "filesToBeDeletedPerPartition": {},
            "version": _PLAN_VERSION,
            "filePathsToBeDeletedPerPartition": by_partition,
            "partitionsToBeDeleted": [],
            "extraMetadata": {
                "savepointed_timestamps": ",".join(self.savepoints),
                "earliest_commit_to_not_archive": min(kept, default=""),
                ORPHANED_INSTANTS: ",".join(self.orphaned_instants),
                "bytes": str(self.size),
            },
        }
        return encode("HoodieCleanerPlan", record)


def make_plan(
    storage: Storage,
    found: Found,
    view: FileSystemView,
    reserved: frozenset[FileGroupId],
    retention: Retention,
) -> CleanPlan:
    """Decide which files a clean deletes. This function writes nothing.

    :param storage: the table's storage.
    :param found: the table's files, listed before the view was made.
    :param view: the present snapshot. The plan looks for readers and writers after the view was made, because
        those that begin later see at least this snapshot.
    :param reserved: file groups of pending plans and of open transactions; the plan leaves them alone.
    :param retention: which superseded slices to keep.
    """
    return _Planner(storage, found, view, reserved, retention).plan()


_Groups = dict[FileGroupId, dict[str, list[FileStatus]]]
"""Data files by file group and instant."""


@dataclass(frozen=True)
class _Slice:
    """A file that was visible, at least for a time.

    :param superseded: completion time of the commit that superseded it; None for a live file.
    :param versions_after: number of newer slices of its file group.
    """

    file: FileToDelete
    superseded: str | None
    versions_after: int


class _Planner:
    def __init__(
        self,
        storage: Storage,
        found: Found,
        view: FileSystemView,
        reserved: frozenset[FileGroupId],
        retention: Retention,
    ) -> None:
        self._storage = storage
        self._found = found
        self._view = view
        self._reserved = reserved
        self._retention = retention
        self._now, self._zone = storage.clock(anew=True), timeline_zone(storage)
        self._commits = view.timeline.commits()
        self._completion = {i.requested_time: i.completion_time or "" for i in self._commits}
        # Older instants are archived, so they superseded their predecessors before this moment.
        self._starts = view.timeline.starts
        consumers = registered_consumers(storage)
        self._expired = tuple(consumer.name for consumer in consumers if consumer.is_expired)
        self._in_use = {**self._pending(), **bases_in_use(storage)}
        checkpoints = {f"consumer {c.name}": c.checkpoint for c in consumers if not c.is_expired}
        self._since = self._in_use | checkpoints
        self._saved = dict(self._savepoints())
        self._bound = self._last_moment()
        self._completed_since: dict[str, frozenset[str]] = {}

    def plan(self) -> CleanPlan:
        slices, orphans = self._files()
        going: dict[str, FileToDelete] = {}
        kept: dict[str, list[FileToDelete]] = {}
        retained = 0
        for each in slices:
            if each.superseded is None:
                continue
            if not self._is_done_with(each):
                retained += 1
                continue
            if holders := self._holders(each):
                for holder in holders:
                    kept.setdefault(holder, []).append(each.file)
            else:
                going[each.file.path] = each.file
        for orphan, keeper in orphans:
            if keeper is None:
                going[orphan.path] = orphan
            else:
                kept.setdefault(keeper, []).append(orphan)
        files = tuple(file for _, file in sorted(going.items()))
        orphaned = {_instant_of(file.path) for file in files if file.reason in _OF_THE_DEAD.values()}
        return CleanPlan(
            retention=self._retention,
            files=files,
            kept=tuple(
                KeptFiles(by, len(each), sum(f.size for f in each)) for by, each in sorted(kept.items())
            ),
            retained_files=retained,
            earliest_commit_to_retain=self._earliest_commit_to_retain(),
            expired_consumers=self._expired,
            last_completed=max((i.requested_time for i in self._commits), default=""),
            savepoints=tuple(sorted(i.requested_time for i in self._view.timeline.savepoints())),
            orphaned_instants=tuple(sorted(orphaned)),
        )

    # --- who needs what -------------------------------------------------------------------

    def _pending(self) -> Mapping[str, str]:
        heartbeats = observe(self._storage)
        return {
            f"writer {pending.requested_time} without a heartbeat": pending.requested_time
            for pending in self._view.timeline.pending()
            if pending.action in WRITE_ACTIONS and pending.requested_time not in heartbeats
        }

    def _savepoints(self) -> Iterator[tuple[str, frozenset[str]]]:
        for savepoint in self._view.timeline.savepoints():
            try:
                by_partition = decode(self._view.timeline.read(savepoint))["partitionMetadata"]
            except NoSuchInstantError:
                continue  # another process has just deleted it
            yield (
                f"savepoint {savepoint.requested_time}",
                frozenset(
                    f"{partition}/{name}".lstrip("/")
                    for partition, one in by_partition.items()
                    for name in one["savepointDataFile"]
                ),
            )

    def _holders(self, each: _Slice) -> list[str]:
        superseded, path = each.superseded or "", each.file.path
        holders = [name for name, since in self._since.items() if superseded > since]
        holders += [name for name, paths in self._saved.items() if path in paths]
        if each.file.file_group in self._reserved:
            holders.append(_RESERVED)
        return holders

    # --- the policy -----------------------------------------------------------------------

    def _is_done_with(self, each: _Slice) -> bool:
        number = self._retention.retained or 0
        if self._retention.policy is CleaningPolicy.KEEP_LATEST_FILE_VERSIONS:
            return each.file.reason is Reason.REPLACED or each.versions_after >= number
        return (each.superseded or "") <= self._bound

    def _last_moment(self) -> str:
        """The completion time up to which the policy keeps no superseded slice."""
        number = self._retention.retained or 0
        if self._retention.policy is CleaningPolicy.KEEP_LATEST_BY_HOURS:
            return format_time(datetime.fromtimestamp(self._now, UTC) - timedelta(hours=number), self._zone)
        before = len(self._commits) - int(number) - 1
        return self._commits[before].completion_time or "" if before >= 0 else ""

    def _earliest_commit_to_retain(self) -> Instant | None:
        if self._retention.policy is CleaningPolicy.KEEP_LATEST_FILE_VERSIONS or not self._commits:
            return None
        bound = min((self._bound, *self._since.values()))
        kept = (commit for commit in self._commits if (commit.completion_time or "") > bound)
        return next(kept, self._commits[-1])

    # --- what there is --------------------------------------------------------------------

    def _files(self) -> tuple[list[_Slice], list[tuple[FileToDelete, str | None]]]:
        """File slices, and files without a commit, each with the reason to keep it, if there is one."""
        groups: _Groups = {}
        gone: _Groups = {}
        logs: _Groups = {}
        orphans: list[tuple[FileToDelete, str | None]] = []
        for statuses, found in ((self._found.files, groups), (self._found.gone, gone)):
            for status in statuses:
                parsed = parse_data_file_name(status.name)
                file_id, instant, is_log = (
                    (parsed.file_id, parsed.instant, parsed.is_log) if parsed else ("", "", False)
                )
                end = self._found.dead.get(instant)
                if end is not None and self._view.timeline.find(instant) is None:
                    orphan = FileToDelete(status.path, status.size, _OF_THE_DEAD[end.end])
                    orphans.append((orphan, self._holder_of_orphan(orphan, end)))
                elif self._view.shows(instant) and self._is_of(instant, status.path):
                    group = FileGroupId(status.path.rpartition("/")[0], file_id)
                    of_kind = logs if is_log else found
                    of_kind.setdefault(group, {}).setdefault(instant, []).append(status)
        slices: list[_Slice] = []
        for group, by_instant in groups.items():
            slices += self._slices(group, by_instant)
        for group, by_instant in logs.items():
            slices += self._logged(group, by_instant, groups.get(group, {}))
        orphans += self._leftovers(groups)
        return [*slices, *self._gone(gone, groups)], orphans

    def _gone(self, gone: _Groups, groups: _Groups) -> Iterator[_Slice]:
        """Slices whose files the index `files` lists although they are gone. They supersede nothing."""
        found = [
            (group, each)
            for group, by_instant in gone.items()
            for instant, statuses in by_instant.items()
            for each in self._slices(group, {**groups.get(group, {}), instant: statuses})
            if each.file.path in {status.path for status in statuses}
        ]
        live = {group for group, each in found if each.superseded is None}
        taken_out = replaced_by_archived(self._storage, live, self._view.shows) if live else ()
        for group, each in found:
            if group in taken_out:  # no policy keeps it, because no reader can see it
                file = replace(each.file, reason=Reason.REPLACED)
                yield _Slice(file, superseded="", versions_after=each.versions_after)
            else:
                yield each

    def _is_of(self, instant: str, path: str) -> bool:
        """Whether a file belongs to a commit, which may have deleted some of its own files."""
        if self._found.before.shows(instant):
            return True
        if instant not in self._completed_since:
            commit = None
            with suppress(NoSuchInstantError):  # it was just undone
                commit = find_commit(self._storage, self._view.timeline, instant)
            stats = commit[1].write_stats if commit else ()
            self._completed_since[instant] = frozenset(stat.path for stat in stats)
        return path in self._completed_since[instant]

    def _slices(self, group: FileGroupId, by_instant: Mapping[str, Iterable[FileStatus]]) -> Iterator[_Slice]:
        replaced_at = self._view.replaced.get(group)
        instants = sorted(by_instant)
        for number, instant in enumerate(instants):
            newer = len(instants) - number - 1
            superseded = replaced_at
            if newer:
                by_next = self._completion.get(instants[number + 1], self._starts)
                superseded = by_next if replaced_at is None else min(by_next, replaced_at)
            reason = Reason.SUPERSEDED if replaced_at is None else Reason.REPLACED
            for status in by_instant[instant]:
                yield _Slice(FileToDelete(status.path, status.size, reason), superseded, newer)

    def _logged(
        self, group: FileGroupId, by_instant: Mapping[str, Iterable[FileStatus]], bases: Mapping[str, object]
    ) -> Iterator[_Slice]:
        """Slices of log files: each log file is deleted with the base file of its slice."""
        replaced_at = self._view.replaced.get(group)
        for instant, statuses in by_instant.items():
            # A log file belongs to the newest slice that was requested before its instant completed.
            later = sorted(base for base in bases if base > instant)
            if later:
                completed = self._view.completed_at(instant)
                later = [base for base in later if base > completed]
            superseded = replaced_at
            if later:
                by_next = self._completion.get(later[0], self._starts)
                superseded = by_next if replaced_at is None else min(by_next, replaced_at)
            reason = Reason.SUPERSEDED if replaced_at is None else Reason.REPLACED
            for status in statuses:
                yield _Slice(FileToDelete(status.path, status.size, reason), superseded, len(later))

    def _holder_of_orphan(self, orphan: FileToDelete, dead: DeadInstant) -> str | None:
        if orphan.file_group in self._reserved:
            return _RESERVED
        if not dead.is_over(self._retention.reverted_after, self._now, self._zone):
            return "readers, until the revert has been over for long enough"
        if dead.end is End.REVERTED:
            return next((name for name, since in self._in_use.items() if since < dead.at), None)
        return None

    def _leftovers(
        self, groups: Mapping[FileGroupId, Mapping[str, list[FileStatus]]]
    ) -> Iterator[tuple[FileToDelete, str | None]]:
        """Second files of a slice, written by a task that outlived its job; they break readers."""
        doubles = Counter(
            instant for by in groups.values() for instant, files in by.items() if len(files) > 1
        )
        for instant in doubles.keys() & self._completion.keys():
            found = self._view.timeline.find(instant)
            if found is None:
                continue
            named = {stat.path for stat in self._view.timeline.commit_metadata(found).write_stats}
            for group, by in groups.items():
                files = by.get(instant, [])
                if not named & {file.path for file in files}:
                    continue
                for file in files:
                    if file.path not in named:
                        orphan = FileToDelete(file.path, file.size, Reason.LEFTOVER)
                        yield orphan, _RESERVED if group in self._reserved else None


_RESERVED = "a pending plan or an open transaction"


def _instant_of(path: str) -> str:
    parsed = parse_data_file_name(path.rpartition("/")[2])
    return parsed.instant if parsed else ""
