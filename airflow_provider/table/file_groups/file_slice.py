"""File slices with their log files, as a merge-on-read table has them."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider.table.file_groups.view import BaseFile
from airflow_provider.table.file_names import FileGroupId


@dataclass(frozen=True)
class FileSlice:
    """One version of a file group: a base file and the log files on it.

    :param partition_path: partition path relative to the table.
    :param file_id: the file group's id.
    :param base_instant: requested time of the instant that wrote the base file, or if there is none, the
        first log file.
    :param base_path: the base file, relative to the table; None when the slice has log files only.
    :param log_paths: the log files, relative to the table, in the order in which readers merge them.
    """

    partition_path: str
    file_id: str
    base_instant: str
    base_path: str | None
    log_paths: tuple[str, ...] = ()

    @classmethod
    def of(cls, base_file: BaseFile) -> FileSlice:
        """A slice that has a base file alone.

        :param base_file: the base file.
        """
        return cls(base_file.partition_path, base_file.file_id, base_file.instant, base_file.path)

    @property
    def paths(self) -> tuple[str, ...]:
        """The base file and the log files, relative to the table."""
        return (*(() if self.base_path is None else (self.base_path,)), *self.log_paths)

    @property
    def file_group(self) -> FileGroupId:
        """The file group that this slice belongs to."""
        return FileGroupId(self.partition_path, self.file_id)
