"""A table of trips with a few rows for each commit, for tests of archival."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from hudi import HudiTableBuilder

from airflow_provider.concurrency import begin_write, rollback
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.table import HudiTable, snapshot

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("fare", pa.float64())])
FEW = {"keep_min": 2, "keep_max": 3}


def create(folder: Path) -> HudiTable:
    return HudiTable.create(
        str(folder / "trips"), name="trips", schema=SCHEMA, record_key=["id"], partition_by=["city"]
    )


def ingest(table: HudiTable, fares: dict[int, float], city: str = "sf", **options: Any) -> dict[str, Any]:
    columns = {"id": list(fares), "city": [city] * len(fares), "fare": list(fares.values())}
    return ingest_arrow(table, pa.table(columns, SCHEMA), **options)


def commits(table: HudiTable, count: int, first: int = 0) -> list[str]:
    return [ingest(table, {number: float(number)})["instant"] for number in range(first, first + count)]


def on_timeline(table: HudiTable) -> list[str]:
    return [instant.requested_time for instant in table.timeline().instants]


def fares(table: HudiTable) -> dict[int, float]:
    """The rows, which hudi-rs must also see."""
    rows = snapshot(table).to_table().to_pylist()
    batches = HudiTableBuilder.from_base_uri(table.location).build().read()
    theirs = pa.Table.from_batches(batches).to_pylist() if batches else []
    found = sorted((row["id"], row["fare"]) for row in rows)
    assert found == sorted((row["id"], row["fare"]) for row in theirs)
    assert len(dict(found)) == len(found)
    return dict(found)


def dead_writer(table: HudiTable) -> tuple[str, str]:
    """Make a writer that is rolled back during a pause, and writes a file when it wakes up."""
    writer = begin_write(table, operation="INSERT")
    writer.plan([], ["city=sf"])
    writer.heartbeat.stop()
    rollback(table, writer.instant)
    path = f"city=sf/late-0_0-0-0_{writer.instant}.parquet"
    source = table.view().all_base_files()[0].path
    table.storage.put(path, table.storage.read(source))
    return writer.instant, path
