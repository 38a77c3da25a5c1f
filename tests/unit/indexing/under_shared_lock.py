"""Write, plan and run an index build under the lock that another Hudi writer shares, and read the index."""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider.concurrency import HeartbeatSettings, Writer, WriteSettings, begin_write
from airflow_provider.indexing.run import IndexResult, IndexRunSettings, run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.table import HudiTable
from airflow_provider.table.file_names import new_file_id
from airflow_provider.table.files.base_file_writer import BaseFileWriter
from airflow_provider.table.keys import record_keys
from airflow_provider.table.metadata_table.reader import MetadataTable, metadata_storage
from airflow_provider.table.timeline.metadata import WriteStat
from tests.unit.indexing.jvm import SCHEMA, SharedLock, rows

ALL = ["files", "column_stats", "bloom_filters", "record_index", "partition_stats"]
A_MOMENT = 0.2  # seconds: a timeout that passes while an instant stays pending


def schedule(table: HudiTable) -> str:
    instant = schedule_index(table, ALL, lock=SharedLock(table.location))
    assert instant is not None
    return instant


def run(table: HudiTable, instant: str, timeout: float = 60.0, **settings: object) -> IndexResult:
    result = run_index(
        table,
        instant,
        settings=IndexRunSettings(timeout_seconds=timeout, poll_seconds=0.01),
        lock=SharedLock(table.location),
        **settings,  # type: ignore[arg-type]
    )
    assert result is not None
    return result


def begun(table: HudiTable, ids: list[int]) -> Callable[[], object]:
    """A writer of this package that has written its data file; the returned function lets it commit."""
    writer, stat = written(table, ids)
    return lambda: writer.commit([stat])


def written(table: HudiTable, ids: list[int]) -> tuple[Writer, WriteStat]:
    """A writer of this package that has written its data file, and the write stats for its commit."""
    writer = begin_write(
        table,
        operation="INSERT",
        lock=SharedLock(table.location),
        settings=WriteSettings(heartbeat=HeartbeatSettings(3600)),
    )
    writer.plan([], ["city=sf"])
    file_id = new_file_id()
    with BaseFileWriter(
        table.storage,
        partition_path="city=sf",
        file_id=file_id,
        write_token="0-0-0",
        instant=writer.instant,
        schema=SCHEMA,
        table_name="trips",
    ) as sink:
        sink.write(rows(ids), record_keys(rows(ids), ["id"]))
        done = sink.close()
    stat = WriteStat(
        file_id, "city=sf", done.path, num_writes=done.rows, num_inserts=done.rows, file_size=done.size
    )
    return writer, stat


def used(table: HudiTable) -> set[str]:
    """The indexes that readers use."""
    return set(HudiTable.open(table.location).config.metadata_partitions)


def indexed_keys(table: HudiTable) -> set[int]:
    found = MetadataTable(metadata_storage(table.storage)).records("record_index")
    return {int(key) for key, _ in found}
