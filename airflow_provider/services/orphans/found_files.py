"""The data files of a table: those on storage, and those that the index `files` lists for readers.

The index may list a file that is gone, because a cleaner died between the deletion and its completion, or
deleted the file and lost the answer. A reader opens such a file as soon as no instant on the timeline
replaces its file group. So a check for remaining files includes the index, and their removal includes the
index too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import tenacity

from airflow_provider.concurrency import CommitLog
from airflow_provider.exceptions import SnapshotUnavailableError
from airflow_provider.services.orphans.orphans import DeadInstant, data_files, dead_instants
from airflow_provider.table.file_groups import FileGroupId, FileSystemView, cleaned_files
from airflow_provider.table.files import parse_data_file_name
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata_table import (
    ALL_PARTITIONS,
    FileList,
    MetadataPartition,
    MetadataTable,
    Payload,
    files_key,
    metadata_storage,
    partition_of_files_key,
)
from airflow_provider.table.storage import FileStatus, Storage
from airflow_provider.table.timeline import State, Timeline, newest_archived


@dataclass(frozen=True)
class Found:
    """A slow listing of a table. It may be slightly stale, because later changes only keep more files.

    An archival is the exception: afterwards readers take a dead writer's instant for committed, because it is
    older than the timeline, and its file may be in this listing.

    :param files: all data files.
    :param dead: instants that will never be commits.
    :param before: the snapshot before the listing. A later commit may have written or deleted some of its own
        files after the listing.
    :param gone: data files that the index `files` lists, and that do not exist.
    :param archived: requested time up to which instants had left the timeline before the listing.
    """

    files: tuple[FileStatus, ...]
    dead: Mapping[str, DeadInstant]
    before: FileSystemView
    gone: tuple[FileStatus, ...] = ()
    archived: str = ""

    @classmethod
    def of(cls, storage: Storage) -> Found:
        """List a table's files, and read its commit log.

        :param storage: the table's storage.
        """
        archived = newest_archived(storage)
        timeline = Timeline.load(storage)
        dead = dead_instants(storage, CommitLog(storage), timeline)
        files, gone = there_and_gone(storage)
        return cls(tuple(files), dead, FileSystemView(storage, timeline), tuple(gone), archived)

    def or_anew(self, storage: Storage) -> Found:
        """This listing if nothing was archived since; a new listing otherwise.

        :param storage: the table's storage. The caller has loaded the timeline that it uses with the listing.
        """
        found = self
        while newest_archived(storage) != found.archived:
            found = Found.of(storage)
        return found


def there_and_gone(storage: Storage) -> tuple[list[FileStatus], list[FileStatus]]:
    """All data files on storage, and those that the index `files` lists although they do not exist.

    :param storage: the table's storage.
    """
    listed = listed_by_index(storage)  # read first: a file written meanwhile must not seem gone
    files = data_files(storage)
    there = {each.path for each in files}
    paths = (f"{partition}/{name}".lstrip("/") for partition, names in listed.items() for name in names)
    gone = sorted(path for path in paths if path not in there and parse_data_file_name(path.split("/")[-1]))
    return files, [FileStatus(path, 0, 0.0, False) for path in gone]


def listed_by_index(
    storage: Storage, partitions: Collection[str] | None = None
) -> dict[str, Collection[str]]:
    """Names of the files that the index `files` lists, by partition path; empty where there is no such index.

    :param storage: the table's storage.
    :param partitions: partition paths; all when None.
    """
    config = HudiTable.at(storage).config
    if MetadataPartition.FILES not in (*config.metadata_partitions, *config.inflight_metadata_partitions):
        return {}
    # The index may be compacted or dropped while it is read.
    found: dict[str, Payload] = _LOOK_AGAIN(_records, storage, partitions)
    return {
        partition_of_files_key(key): tuple(each.sizes())
        for key, each in found.items()
        if key != ALL_PARTITIONS and isinstance(each, FileList)
    }


def _records(storage: Storage, partitions: Collection[str] | None) -> dict[str, Payload]:
    index = MetadataTable(metadata_storage(storage))
    if partitions is None:
        return dict(index.records(MetadataPartition.FILES))
    return index.look_up(MetadataPartition.FILES, map(files_key, partitions))


class FilesLeft:
    """Checks whether readers may still see files of a file group, or of an instant.

    :param storage: the table's storage.
    :param timeline: the active timeline.
    """

    def __init__(self, storage: Storage, timeline: Timeline) -> None:
        self._storage = storage
        self._present: dict[str, set[str]] = {}
        self._of_instants: set[str] | None = None
        by_clean = cleaned_files(storage, timeline).items()
        self._unfinished = {path: clean for path, clean in by_clean if clean.state is not State.COMPLETED}
        self._cleans = {_group_of(path): clean for path, clean in self._unfinished.items()}

    def of_groups(self, partition: str, file_ids: Iterable[str]) -> tuple[FileGroupId, str] | None:
        """The first of some file groups that is not cleaned yet, and the reason; None where all are cleaned.

        :param partition: partition path.
        :param file_ids: ids of file groups in the partition.
        """
        wanted = {FileGroupId(partition, each) for each in file_ids}
        if named := wanted & self._cleans.keys():
            group = min(named)
            return group, f"is not cleaned yet: clean {self._cleans[group].requested_time} has not completed"
        if partition not in self._present:
            listed = listed_by_index(self._storage, (partition,)).get(partition, ())
            parsed = map(parse_data_file_name, (*self._storage.names(partition), *listed))
            self._present[partition] = {each[0] for each in parsed if each is not None}
        left = sorted(group for group in wanted if group.file_id in self._present[partition])
        return (left[0], "is not cleaned yet") if left else None

    def of_instant(self, instant: str) -> bool:
        """Whether the index `files` lists a file of an instant, or a pending clean names one.

        :param instant: requested time.
        """
        if self._of_instants is None:
            names = [path.rpartition("/")[2] for path in self._unfinished]
            names += [name for names in listed_by_index(self._storage).values() for name in names]
            self._of_instants = {each[2] for each in map(parse_data_file_name, names) if each}
        return instant in self._of_instants


def _group_of(path: str) -> FileGroupId:
    partition, _, name = path.rpartition("/")
    parsed = parse_data_file_name(name)
    return FileGroupId(partition, parsed[0] if parsed else "")


_LOOK_AGAIN = tenacity.Retrying(
    retry=tenacity.retry_if_exception_type((FileNotFoundError, SnapshotUnavailableError)),
    stop=tenacity.stop_after_attempt(10),
    reraise=True,
)
