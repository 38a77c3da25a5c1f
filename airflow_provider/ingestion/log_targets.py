"""Which file groups of a merge-on-read table a write may append log files to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from airflow_provider.exceptions import UnsupportedTableError
from airflow_provider.table.file_groups import BaseFile, FileGroupId, FileSystemView
from airflow_provider.table.files import parse_data_file_name
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.reading import FileSlice, SliceReader, slices_of


@dataclass(frozen=True)
class LogTargets:
    """The file slices of some partitions, as a write sees them.

    :param table: the table; a copy-on-write table has no log files.
    :param view: the snapshot that the write sees.
    :param slices: the slices by file group; empty for a copy-on-write table.
    """

    table: HudiTable
    view: FileSystemView
    slices: Mapping[FileGroupId, FileSlice]

    @classmethod
    def of(cls, table: HudiTable, view: FileSystemView, partitions: Iterable[str]) -> LogTargets:
        """The slices of some partitions.

        :param table: the table.
        :param view: the snapshot that the write sees.
        :param partitions: partition paths.
        :raises UnsupportedTableError: when a file group is log files alone: its keys are not found here.
        """
        found = slices_of(table, view, partitions) if table.is_merge_on_read else []
        for each in found:
            if each.base_path is None:
                raise UnsupportedTableError(
                    f"table {table.location}: file group {each.partition_path}/{each.file_id} is log files "
                    "alone, in which an index of another Hudi writer finds its keys, and none here; compact "
                    "the table first",
                    location=table.location,
                )
        return cls(table, view, {each.file_group: each for each in found})

    @property
    def with_logs(self) -> frozenset[FileGroupId]:
        """The file groups that have log files: no new rows go into their base files."""
        return frozenset(group for group, each in self.slices.items() if each.log_paths)

    @property
    def log_paths(self) -> dict[FileGroupId, tuple[str, ...]]:
        """The log files of every file group, in the order in which they are merged."""
        return {group: each.log_paths for group, each in self.slices.items()}

    def living(self, base_file: BaseFile) -> pa.ChunkedArray | None:
        """The record keys that live in the slice of a base file; None where all keys of the base file do.

        :param base_file: the base file.
        """
        reader, file_slice = SliceReader.of(self.table, self.view), self.slices[base_file.file_group]
        return reader.keys(file_slice) if reader.may_delete(file_slice) else None

    def requested_later(self, file_group: FileGroupId, instant: str) -> str | None:
        """An instant of the slice that was requested later than a write.

        Other readers merge the log files of a slice in the order of requested times, and not of completion.

        :param file_group: the file group.
        :param instant: requested time of the write.
        :return: None when the write comes last in either order.
        """
        names = (path.rpartition("/")[2] for path in self.slices[file_group].paths)
        last = max(parsed.instant for name in names if (parsed := parse_data_file_name(name)))
        return last if last > instant else None


def check_appendable(table: HudiTable) -> None:
    """Make sure that newer versions of a table's rows are whole rows, as log files written here have them.

    :param table: the table.
    :raises UnsupportedTableError: when a newer version keeps values of the older one.
    """
    if table.is_merge_on_read and table.merge_semantics.keeps_values:
        raise UnsupportedTableError(
            f"table {table.location} is {table.config.table_type}, and a newer version of its rows keeps "
            "values of the older one (hoodie.table.partial.update.mode): such rows are not written to log "
            "files here",
            location=table.location,
        )
