"""File groups, file slices, and the view of those that a timeline shows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import tenacity

from airflow_provider.exceptions import CommitUndoneError, NoSuchInstantError
from airflow_provider.table.file_names import FileGroupId, parse_base_file_name
from airflow_provider.table.files import MARKS_OF_A_PARTITION, LogFileName
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import Action, Timeline, find_archived, metadata_of

if TYPE_CHECKING:
    from airflow_provider.table.metadata_table import UsableIndexes


class BaseFile(NamedTuple):
    """The base file of one file slice. A log file has the same form, for callers that need only its path.

    :param partition_path: partition path relative to the table.
    :param file_id: id of the file group.
    :param write_token: the task attempt that wrote it.
    :param instant: requested time of the instant that wrote it.
    :param path: path relative to the table.
    :param size: bytes.
    """

    partition_path: str
    file_id: str
    write_token: str
    instant: str
    path: str
    size: int

    @property
    def file_group(self) -> FileGroupId:
        """The file group that this slice belongs to."""
        return FileGroupId(self.partition_path, self.file_id)

    @property
    def is_log(self) -> bool:
        """Whether it is a log file."""
        return self.path.rpartition("/")[2][0] == "."


@dataclass(frozen=True)
class ShownInstants(Container[str]):
    """The instants whose files a view shows: those that have completed, or were archived.

    :param completed: requested times of the completed writes on the timeline.
    :param pending: requested times of the pending writes.
    :param starts: requested time at which the timeline begins; older instants are archived.
    """

    completed: frozenset[str]
    pending: frozenset[str]
    starts: str

    def __contains__(self, instant: object) -> bool:
        if instant in self.completed:
            return True
        return isinstance(instant, str) and instant < self.starts and instant not in self.pending


class FileSystemView:
    """The base files that a timeline shows (Hudi's ``HoodieTableFileSystemView``).

    The view lists a partition once, at its first use. So the cost grows with the partitions that are used,
    not with the table. With the index ``files`` the view lists no folder.

    :param storage: the table's storage.
    :param timeline: the timeline; the view shows only files of its completed instants. A function is called
        when the timeline is needed, and again if an instant disappears between the listing and its reading
        because it is being reverted. An instant that is archived meanwhile is read from the archive.
    :param indexes: returns the table's indexes for the view's timeline, or None. It asks for the timeline
        only if the table has indexes.
    :param check: called after partitions were listed, with the view's timeline and the file names by
        partition path. It raises :class:`~airflow_provider.exceptions.CommitUndoneError` when a commit of the
        timeline was undone meanwhile, and its files are deleted.
    """

    def __init__(
        self,
        storage: Storage,
        timeline: Timeline | Callable[[], Timeline],
        indexes: Callable[[Callable[[], Timeline]], UsableIndexes | None] = lambda _: None,
        check: Callable[[Timeline, Mapping[str, Collection[str]]], None] = lambda _, __: None,
    ) -> None:
        self._storage = storage
        self._check = check
        self._open_indexes = indexes
        self._indexes: tuple[UsableIndexes | None] | None = None
        self._load = timeline if callable(timeline) else None
        self._timeline = None if callable(timeline) else timeline
        self._listed: dict[str, dict[str, BaseFile]] = {}
        self._log_sizes: dict[str, dict[str, int | None]] = {}
        # Not a cached_property: before Python 3.12 that holds one lock for all views while it reads.
        self._replaced: Mapping[FileGroupId, str] | None = None
        self._shown: ShownInstants | None = None
        self._partitions: list[str] | None = None

    def all_partitions(self) -> list[str]:
        """Partition paths that were ever written to, sorted."""
        if self._partitions is None:
            found = self.indexes.partitions() if self.indexes else None
            if found is None:
                found = sorted(self._storage.folders_holding(*MARKS_OF_A_PARTITION))
            self._partitions = found
        return self._partitions

    def partitions(self) -> list[str]:
        """Partition paths that hold at least one visible base file, or log file, sorted."""
        found = self.all_partitions()
        self.look_at(found)
        return [
            partition
            for partition in found
            if self.base_files(partition) or (self._log_sizes[partition] and self.log_files(partition))
        ]

    def base_files(self, partition_path: str) -> list[BaseFile]:
        """The newest visible slice of every live file group of a partition."""
        self.look_at((partition_path,))
        return list(self._listed[partition_path].values())

    def all_base_files(self) -> list[BaseFile]:
        """The newest visible slice of every live file group of the table."""
        return [base_file for partition in self.partitions() for base_file in self.base_files(partition)]

    def log_files(self, partition_path: str) -> list[BaseFile]:
        """The log files of the newest slices of a partition's live file groups, in no order.

        :param partition_path: the partition.
        """
        self.look_at((partition_path,))
        bases, found = self._listed[partition_path], []
        for name, size in self._log_sizes[partition_path].items():
            parsed = LogFileName.parse(name)
            if parsed is None or not self.shows(parsed.instant):
                continue
            group = FileGroupId(partition_path, parsed.file_id)
            base_file = bases.get(parsed.file_id)
            if group in self.replaced or (
                base_file is not None
                and parsed.instant < base_file.instant
                and self.completed_at(parsed.instant) < base_file.instant
            ):
                continue
            path = f"{partition_path}/{name}".lstrip("/")
            known = self._size(path) if size is None else size
            found.append(BaseFile(*group, parsed.write_token, parsed.instant, path, known))
        return found

    def file_ids(self, partition_path: str) -> set[str]:
        """Ids of a partition's live file groups, including those that have log files alone.

        It spends almost no time on each log file, in contrast to :meth:`log_files`.

        :param partition_path: the partition.
        """
        self.look_at((partition_path,))
        found = set(self._listed[partition_path])
        for name in self._log_sizes[partition_path]:
            if name[1:].partition("_")[0] in found:
                continue
            parsed = LogFileName.parse(name)
            if (
                parsed is not None
                and FileGroupId(partition_path, parsed.file_id) not in self.replaced
                and self.shows(parsed.instant)
            ):
                found.add(parsed.file_id)
        return found

    def look_at(self, partition_paths: Iterable[str]) -> None:
        """Look up several partitions at once, if that is cheaper than one after the other.

        :param partition_paths: the partitions that the caller will use.
        :raises CommitUndoneError: see :meth:`check_standing`.
        """
        new = [partition for partition in partition_paths if partition not in self._listed]
        if new:
            # The timeline comes first. If the listing were older, an archival in between could remove the
            # instant that tells which of the listed files are replaced.
            _ = self.timeline
        known = self.indexes.files(new) if new and self.indexes else None
        found = {each: self._storage.sizes(each) if known is None else known.get(each, {}) for each in new}
        if known is None:
            self.check_standing(found)
        for partition, sizes in found.items():
            self._listed[partition] = self._list(partition, sizes)
            self._log_sizes[partition] = {name: size for name, size in sizes.items() if name[0] == "."}

    def check_standing(self, listed: Mapping[str, Collection[str]]) -> None:
        """Make sure that listings lack no file of the view's commits.

        :meth:`look_at` does it; callers that list a partition themselves do it afterwards.

        :param listed: file names by partition path.
        :raises CommitUndoneError: see the class's ``check``.
        """
        if listed:
            self._check(self.timeline, listed)

    def base_file(self, file_group: FileGroupId) -> BaseFile | None:
        """The newest visible slice of one file group; None when it is not live."""
        self.base_files(file_group.partition_path)
        return self._listed[file_group.partition_path].get(file_group.file_id)

    def is_live(self, file_group: FileGroupId) -> bool:
        """Whether a file group has a visible base file, or log files alone.

        :param file_group: the file group.
        """
        if self.base_file(file_group) is not None:
            return True
        return any(each.file_group == file_group for each in self.log_files(file_group.partition_path))

    @property
    def timeline(self) -> Timeline:
        """The timeline of this view.

        :raises NoSuchInstantError: when instants keep disappearing while it is loaded.
        """
        if self._timeline is None:
            try:
                found = self._loaded()
            except NoSuchInstantError:
                found = _LOOK_AGAIN(self._loaded)
            self._timeline, self._replaced = found
        return self._timeline

    @property
    def indexes(self) -> UsableIndexes | None:
        """The table's indexes that can answer for this view; None when there are none."""
        if self._indexes is None:
            self._indexes = (self._open_indexes(lambda: self.timeline),)
        return self._indexes[0]

    @property
    def replaced(self) -> Mapping[FileGroupId, str]:
        """File groups that completed replacecommits have replaced, with the completion time."""
        timeline = self.timeline
        if self._replaced is None:
            self._replaced = self._replaced_on(timeline)
        return self._replaced

    def _loaded(self) -> tuple[Timeline, Mapping[FileGroupId, str]]:
        if self._load is None:
            raise ValueError("a view needs a timeline, or a function that loads one")
        timeline = self._load()
        return timeline, self._replaced_on(timeline)

    def _replaced_on(self, timeline: Timeline) -> Mapping[FileGroupId, str]:
        out: dict[FileGroupId, str] = {}
        known = _replaced_by.setdefault(self._storage, {})
        for instant in timeline.commits():
            if instant.action is Action.REPLACE_COMMIT:
                if instant.file_name not in known:  # the file of a completed instant never changes
                    replaced = metadata_of(self._storage, timeline, instant).replaced
                    known[instant.file_name] = frozenset(
                        FileGroupId(partition, each) for partition, ids in replaced.items() for each in ids
                    )
                out.update(dict.fromkeys(known[instant.file_name], instant.completion_time or ""))
        return out

    @property
    def shown(self) -> ShownInstants:
        """The instants whose files are visible."""
        if self._shown is None:
            commits = frozenset(each.requested_time for each in self.timeline.commits())
            pending = frozenset(each.requested_time for each in self.timeline.pending())
            self._shown = ShownInstants(commits, pending, self.timeline.starts)
        return self._shown

    def shows(self, instant: str) -> bool:
        """Whether files of an instant are visible: it has completed, or is archived.

        :param instant: requested time.
        """
        return instant in self.shown

    def completed_at(self, instant: str) -> str:
        """The completion time of an instant; its requested time if neither timeline has it.

        A log file belongs to the newest file slice that was requested before this.

        :param instant: requested time.
        """
        found = self.timeline.find(instant)
        if found is not None and found.completion_time:
            return found.completion_time
        if instant >= self.timeline.starts or getattr(self._storage, "timeline_layout", 2) == 1:
            return instant
        known = _archived_at.setdefault(self._storage, {})
        if instant not in known:  # an archived instant never changes
            kept = find_archived(self._storage, instant)
            known[instant] = (kept and kept.instant.completion_time) or instant
        return known[instant]

    def _list(self, partition_path: str, sizes: Mapping[str, int | None]) -> dict[str, BaseFile]:
        replaced = self.replaced
        slices: dict[str, list[tuple[str, str, str]]] = {}
        for name in sizes:
            if name[0] != "." and (parsed := parse_base_file_name(name)):
                file_id, write_token, instant = parsed
                slices.setdefault(file_id, []).append((instant, write_token, name))
        found = {}
        for file_id, of_group in slices.items():
            if (partition_path, file_id) in replaced:
                continue
            newest = max(of_group)
            if not self.shows(newest[0]):  # usually the newest is shown, and older files need no check
                shown = [each for each in of_group if self.shows(each[0])]
                if not shown:
                    continue
                newest = max(shown)
            instant, write_token, name = newest
            path = f"{partition_path}/{name}" if partition_path else name
            known_size = sizes[name]
            size = self._size(path) if known_size is None else known_size
            found[file_id] = BaseFile(partition_path, file_id, write_token, instant, path, size)
        return found

    def _size(self, path: str) -> int:
        # Only visible files get a stat, because a partition can have many older slices.
        status = self._storage.stat(path)
        return status.size if status else 0  # just cleaned; the reader of the file will report it


_replaced_by: WeakKeyDictionary[Storage, dict[str, frozenset[FileGroupId]]] = WeakKeyDictionary()
_archived_at: WeakKeyDictionary[Storage, dict[str, str]] = WeakKeyDictionary()


looking_again = tenacity.retry(
    retry=tenacity.retry_if_exception_type(CommitUndoneError),
    stop=tenacity.stop_after_attempt(10),
    reraise=True,
)
"""Decorates a function that reads one snapshot: it runs again if a commit of the snapshot was undone."""

_LOOK_AGAIN = tenacity.Retrying(
    retry=tenacity.retry_if_exception_type(NoSuchInstantError),
    stop=tenacity.stop_after_attempt(10),
    reraise=True,
)
