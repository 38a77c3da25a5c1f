"""Plan and run an index build under the lock that another Hudi writer shares, and read the index."""

from __future__ import annotations

from airflow_provider.indexing.run import IndexResult, IndexRunSettings, run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.table import HudiTable
from airflow_provider.table.metadata_table.reader import MetadataTable, metadata_storage

from .jvm import SharedLock

ALL = ["files", "column_stats", "bloom_filters", "record_index", "partition_stats"]
A_MOMENT = 0.2  # seconds: a timeout that passes while something is pending for good


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


def indexed_keys(table: HudiTable) -> set[int]:
    found = MetadataTable(metadata_storage(table.storage)).records("record_index")
    return {int(key) for key, _ in found}
