"""Scans on a machine with one core, and in a process of Spark, which sets ``OMP_NUM_THREADS=1``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider.ingestion import ingest_arrow
from airflow_provider.table import HudiTable

ROWS = 120_000  # a row group is large enough for threads
SCRIPT = """
import sys
import pyarrow as pa
from airflow_provider.table import HudiTable, snapshot
assert pa.cpu_count() == 1
rows = snapshot(HudiTable.open(sys.argv[1]))
for _ in range(20):
    assert rows.head(5).num_rows == 5
    assert rows.to_table().num_rows == rows.count_rows() == int(sys.argv[2])
"""


@pytest.fixture(params=["merge_on_read", "copy_on_write"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A table whose partitions have base files, and log files or a column that came later."""
    numbers = range(ROWS)
    rows = pa.table(
        {
            "id": [f"key-{number:08d}" for number in numbers],
            "part": [f"{number % 6}" for number in numbers],
            "note": [f"the note of row {number}" for number in numbers],
        }
    )
    location = str(tmp_path / "table")
    HudiTable.create(
        location,
        name="t",
        schema=rows.schema,
        record_key=["id"],
        partition_by=["part"],
        table_type=request.param,
    )
    ingest_arrow(location, rows, "bulk_insert")
    if request.param == "copy_on_write":
        few = rows.slice(0, 1).append_column("more", pa.array([1]))
        ingest_arrow(location, few, "upsert")
    else:
        ingest_arrow(location, rows.slice(0, ROWS // 10), "upsert")
    return location


def test_a_scan_that_stops_early_does_not_stop_the_next_one(location: str) -> None:
    command = [sys.executable, "-c", SCRIPT, location, str(ROWS)]
    subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True, timeout=300)
