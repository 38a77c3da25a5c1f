"""One task writes the next base file of one file group of a merge-on-read table, wherever it runs."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider.concurrency.heartbeats import check_wanted
from airflow_provider.services.compaction_plan import CompactionOperation
from airflow_provider.services.table_compaction.table_compaction_plan import slice_of
from airflow_provider.table.file_groups import FileGroupId
from airflow_provider.table.files import BaseFileWriter, MarkerType
from airflow_provider.table.reading import SliceReader
from airflow_provider.table.schema import with_meta_columns
from airflow_provider.table.timeline import WriteStat


@dataclass(frozen=True)
class CompactionTask:
    """The compaction of one file group of a plan.

    :param reader: reads file slices as they were when the compaction was planned.
    :param instant: requested time of the compaction.
    :param operation: the file group's operation in the plan.
    :param number: index of the operation in the plan.
    """

    reader: SliceReader
    instant: str
    operation: CompactionOperation
    number: int

    @property
    def file_group(self) -> FileGroupId:
        """The file group that gets a new base file."""
        return FileGroupId(self.operation.partition, self.operation.file_id)

    def run(self, write_token: str) -> WriteStat:
        """Write the base file: the rows of the slice, each with its own commit time.

        :param write_token: distinguishes this attempt's file from those of other attempts.
        :raises InstantRolledBackError: when the compaction was rolled back meanwhile.
        """
        reader, operation = self.reader, self.operation
        check_wanted(reader.storage, self.instant)
        with BaseFileWriter(
            reader.storage,
            partition_path=operation.partition,
            file_id=operation.file_id,
            write_token=write_token,
            instant=self.instant,
            schema=reader.schema.columns,
            table_name=reader.config.name,
            marker=MarkerType.CREATE if operation.base_file is None else MarkerType.MERGE,
        ) as writer:
            for rows in reader.rows(slice_of(operation), with_meta_columns(reader.schema.columns).names):
                if rows.num_rows:
                    writer.write_preserved(rows)
            written = writer.close()
        check_wanted(reader.storage, self.instant, [written.path])
        return WriteStat(
            file_id=operation.file_id,
            partition_path=operation.partition,
            path=written.path,
            prev_commit="null" if operation.base_file is None else operation.base_instant,
            num_writes=written.rows,
            total_write_bytes=written.size,
            file_size=written.size,
            prev_base_file=operation.base_file,
        )
