"""Incremental reads of merge-on-read tables: the rows that the commits of a window wrote into files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from airflow_provider.table.file_groups import FileGroupId, FileSlice, FileSystemView
from airflow_provider.table.file_names import parse_base_file_name
from airflow_provider.table.files import LogFileName
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.reading.log_merge import SliceReader
from airflow_provider.table.reading.slices import slices_of
from airflow_provider.table.timeline import CommitMetadata, Instant


@dataclass(frozen=True)
class WindowReader(SliceReader):
    """Reads the file slices of a window; see :func:`slices_touched`.

    A partial update has no value for most columns. The reader merges its rows with the whole file slice.

    :param whole: reads whole file slices, as they are at the end of the window.
    :param slices: the whole file slices, by file group.
    """

    whole: SliceReader
    slices: Mapping[FileGroupId, FileSlice]

    def rows(self, file_slice: FileSlice, columns: Sequence[str]) -> Iterator[pa.Table]:
        """See :meth:`SliceReader.rows`."""
        if any(block.is_partial for block in self._blocks(file_slice)):
            return self.whole.rows(self.slices[file_slice.file_group], columns)
        return super().rows(file_slice, columns)


def slices_touched(
    table: HudiTable, view: FileSystemView, written: Mapping[str, CommitMetadata] | None
) -> tuple[FileSlice, ...]:
    """The file slices of a view, with only the files that some commits wrote.

    So a reader sees a row as the window's commits left it, whatever an older base file holds. It sees a late
    row, too, that loses against the base file (``MergeOnReadIncrementalRelationV2``).

    :param table: a merge-on-read table.
    :param view: the table at the end of the window.
    :param written: metadata of the window's commits, by their requested times; None for all file slices.
    """
    if written is None:
        return tuple(slices_of(table, view, view.all_partitions()))
    groups = {stat.file_group for described in written.values() for stat in described.write_stats}
    partitions = sorted({group.partition_path for group in groups})
    touched = (each for each in slices_of(table, view, partitions) if each.file_group in groups)
    found = (_written_by(each, written, table.config.layout) for each in touched)
    return tuple(each for each in found if each.paths)


def without_outer_log_compactions(
    commits: Sequence[Instant], metadata: Callable[[Instant], CommitMetadata]
) -> list[Instant]:
    """The commits of a window, without the log compactions before its first and after its last write.

    A log compaction puts its own commit time into the rows that it has read. The JVM's window is the range of
    requested times from the first to the last write. So a log compaction counts only between two writes.

    :param commits: the window's commits.
    :param metadata: reads a commit's metadata.
    """
    writes = [
        each.requested_time for each in commits if metadata(each).operation_type.upper() != "LOG_COMPACT"
    ]
    return [each for each in commits if writes and min(writes) <= each.requested_time <= max(writes)]


def _written_by(file_slice: FileSlice, commits: Mapping[str, CommitMetadata], layout: int) -> FileSlice:
    def is_theirs(path: str) -> bool:
        name = path.rpartition("/")[2]
        if parsed := parse_base_file_name(name):
            return parsed[2] in commits
        log_file = LogFileName.parse(name)
        # In layout 1 a file's name tells only its slice. The reader skips the blocks of other commits.
        return layout == 1 or (log_file is not None and log_file.instant in commits)

    base = file_slice.base_path
    return replace(
        file_slice,
        base_path=base if base is not None and is_theirs(base) else None,
        log_paths=tuple(path for path in file_slice.log_paths if is_theirs(path)),
    )
