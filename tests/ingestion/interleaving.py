"""Writes that meet: other writes, at chosen moments of one."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider.concurrency import PRIORITIES, Writer, begin_write
from airflow_provider.locks import InProcessLockProvider
from airflow_provider.table import HudiTable
from airflow_provider.table.base_file import BaseFileWriter, new_file_id, read_base_file
from airflow_provider.table.instant import Action
from airflow_provider.table.metadata import WriteStat
from airflow_provider.table.schema import META_COLUMNS


class MeetingLock(InProcessLockProvider):
    """The table lock of a write that others overtake: each time before it is taken, another acts.

    :param others: what they do.
    """

    def __init__(self, *others: Callable[[], object]) -> None:
        super().__init__(f"meeting {id(self)}")
        self._others = list(others)

    def acquire(self, timeout: float | None = None) -> None:
        if self._others:
            self._others.pop(0)()
        super().acquire(timeout)


class Clustering:
    """A stand-in for clustering: the rows of a partition, sorted, in new file groups.

    :param table: the table.
    :param partition: path of the partition.
    :param outputs: number of new file groups.
    :param priority: of the rewrite.
    """

    def __init__(
        self,
        table: HudiTable,
        partition: str,
        *,
        outputs: int = 2,
        priority: int = PRIORITIES["table_service"],
    ) -> None:
        self._table = table
        self._partition = partition
        self._outputs = outputs
        self.writer: Writer = begin_write(
            table,
            operation="CLUSTER",
            action=Action.CLUSTERING,
            priority=priority,
            lock=InProcessLockProvider(f"clustering {id(self)}"),
        )

    def commit(self) -> None:
        """Carry it out."""
        with self.writer as writer:
            old = writer.view.base_files(self._partition)
            writer.plan([base_file.file_group for base_file in old], [self._partition])
            rows = pa.concat_tables(read_base_file(self._table.storage, each.path) for each in old)
            rows = rows.unify_dictionaries().take(pc.sort_indices(rows[META_COLUMNS[2]]))
            size = -(-rows.num_rows // self._outputs)
            parts = [rows.slice(number * size, size) for number in range(self._outputs)]
            stats = [self._write(number, part) for number, part in enumerate(parts) if part.num_rows]
            writer.commit(stats, replaced={self._partition: [base_file.file_id for base_file in old]})

    def _write(self, number: int, rows: pa.Table) -> WriteStat:
        file_id = new_file_id()
        with BaseFileWriter(
            self._table.storage,
            partition_path=self._partition,
            file_id=file_id,
            write_token=f"{number}-0-0",
            instant=self.writer.instant,
            schema=self._table.schema,
        ) as writer:
            writer.write_preserved(rows)
            written = writer.close()
        return WriteStat(
            file_id,
            self._partition,
            written.path,
            num_writes=written.rows,
            total_write_bytes=written.size,
            file_size=written.size,
        )
