"""The files of the metadata table by file group: HFiles and log files, by their names.

Source: ``HoodieFileGroup`` of Apache Hudi.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from airflow_provider.table.files import LogFileName
from airflow_provider.table.metadata_table.initial_instants import is_initial
from airflow_provider.table.storage import FileStatus, Storage
from airflow_provider.table.timeline import Timeline

BASE_FILE = re.compile(r"^(?P<id>[^_.][^_]*)_(?P<token>[^_]+)_(?P<instant>\d+)\.hfile$")
"""Name of a base file."""

FIRST_TOKEN = "0-0-0"  # noqa: S105
"""Write token of the log file that creates a file group (``HoodieLogFormat.DEFAULT_WRITE_TOKEN``)."""

EMPTY_LOG_FILE_SIZE = 80
"""Size of this file in bytes: it has a block of deletes without a key."""


@dataclass(frozen=True)
class MetadataFile:
    """A file of the metadata table.

    :param path: path relative to the metadata table.
    :param instant: requested time of the instant that wrote it.
    :param completion_time: for a log file, the completion time of this instant; otherwise its requested time.
    :param size: bytes.
    :param is_empty: whether it is the log file without records that creates a file group.
    """

    path: str
    instant: str
    completion_time: str
    size: int
    is_empty: bool = False


@dataclass(frozen=True)
class MetadataFileSlice:
    """A file slice of the metadata table: a base file, and the log files that completed after it.

    :param partition: the metadata partition.
    :param file_id: id of the file group.
    :param base_file: the base file; None before the first one.
    :param log_files: in the order in which their instants completed.
    """

    partition: str
    file_id: str
    base_file: MetadataFile | None
    log_files: tuple[MetadataFile, ...]


@dataclass(frozen=True)
class FileGroup:
    """All files of a file group.

    :param partition: the metadata partition.
    :param file_id: its id.
    :param base_files: the base files of completed instants, oldest first.
    :param log_files: the log files of completed instants, in the order of completion.
    :param uncommitted: files of instants that have not completed, or never will.
    :param of_dropped: base files of a dropped index that had the same name. A compaction that was planned
        before the drop has written them late.
    """

    partition: str
    file_id: str
    base_files: tuple[MetadataFile, ...]
    log_files: tuple[MetadataFile, ...]
    uncommitted: tuple[MetadataFile, ...] = ()
    of_dropped: tuple[MetadataFile, ...] = ()


def of_dropped_indexes(bases: Sequence[MetadataFile], timeline: Timeline) -> tuple[MetadataFile, ...]:
    """The base files of compactions that were planned before their file group was made.

    A compaction leaves an index alone while it is being built, so these files belong to a dropped index. A
    clean deletes them before the instant that made the file group is archived.

    :param bases: base files of one file group.
    :param timeline: the metadata table's timeline.
    """
    first = (timeline.find(each.instant) for each in bases if is_initial(each.instant))
    made = max(((each and each.completion_time) or "" for each in first), default="")
    return tuple(each for each in bases if not is_initial(each.instant) and each.instant < made)


def made_file_groups(metadata_table: Storage, partition: str) -> tuple[int, list[str]]:
    """The number of file groups of a partition, by their files' names, and the instants that created them.

    :param metadata_table: the metadata table's storage.
    :param partition: name of the metadata partition.
    :return: the number, and requested times in order. There are none when the first log files are cleaned.
        There are several when a paused writer has left files of a dropped partition; then the last one
        counts.
    """
    ids, made = set(), set()
    for name in metadata_table.names(partition):
        if (log_file := LogFileName.parse(name)) is not None:
            ids.add(log_file.file_id)
            if log_file.write_token == FIRST_TOKEN:
                made.add(log_file.instant)
        elif match := BASE_FILE.match(name):
            ids.add(match["id"])
    return len(ids), sorted(made)


def is_empty_log_file(status: FileStatus) -> bool:
    """Whether a file is the empty log file that creates a file group."""
    name = LogFileName.parse(status.name)
    return name is not None and name.write_token == FIRST_TOKEN and status.size <= EMPTY_LOG_FILE_SIZE


def is_base_file(file: MetadataFile) -> bool:
    """Whether a file is a base file, by its name."""
    return BASE_FILE.match(file.path.rpartition("/")[2]) is not None


def log_order(log_file: MetadataFile) -> tuple[str, str, int, str]:
    """The sort key of log files: the order in which their instants completed."""
    name = LogFileName.parse(log_file.path.rpartition("/")[2])
    version, token = (name.version, name.write_token) if name else (0, "")
    return log_file.completion_time, log_file.instant, version, token
