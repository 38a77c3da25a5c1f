"""The number of rows of a snapshot, which the commits tell."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.archival import archive
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.reading.snapshots import rows_by_commits

SCHEMA = pa.schema({"id": pa.int64(), "part": pa.int64()})
PARTITIONS = 8


def rows(count: int) -> pa.Table:
    return pa.table({"id": range(count), "part": [number % PARTITIONS for number in range(count)]}, SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    """A table of 100 rows in eight files of one commit."""
    made = HudiTable.create(
        str(tmp_path / "t"), name="t", schema=SCHEMA, record_key=["id"], partition_by=["part"]
    )
    ingest_arrow(made, rows(100), "bulk_insert")
    return made


def empty_files(table: HudiTable) -> None:
    """Take the content of all base files away, so that no reader can open one."""
    for path in Path(table.location).glob("part=*/*.parquet"):
        path.write_bytes(b"")


def test_no_file_is_opened(table: HudiTable) -> None:
    empty_files(table)
    found = snapshot(table)
    assert found.count_rows() == 100
    with pytest.raises(pa.ArrowInvalid):
        found.to_table()
    with pytest.raises(pa.ArrowInvalid):
        found.count_rows(pc.field("id") < 10)


def test_whatever_columns_the_files_have(table: HudiTable) -> None:
    wider = rows(8).append_column("later", pa.array(range(8)))
    ingest_arrow(table, wider, "upsert")
    found = snapshot(HudiTable.open(table.location))
    assert found.schema.names == ["id", "part", "later"]
    assert found.count_rows(pc.field("later") < 3) == 3
    empty_files(table)
    assert found.count_rows() == 100


def test_of_the_rows_that_a_query_keeps(table: HudiTable) -> None:
    assert snapshot(table, where=[("id", "<", 10)]).count_rows() == 10
    assert snapshot(table, where=[("part", "=", 3)]).count_rows() == 13
    assert snapshot(table).filter(pc.field("id") < 10).count_rows() == 10


def test_the_footers_tell_what_the_commits_do_not(table: HudiTable) -> None:
    first = table.timeline().newest_completion
    ingest_arrow(table, rows(16).slice(8), "delete")
    for number in (16, 17):
        ingest_arrow(table, rows(24).slice(number, 1), "upsert")
    assert snapshot(table).count_rows() == 92
    assert snapshot(table, first).count_rows() == 100
    files = table.view().all_base_files()
    deleted_from = [each for each in files if each.partition_path not in ("part=0", "part=1")]
    assert rows_by_commits(table, files) is None, "three commits for eight files"
    assert rows_by_commits(table, deleted_from) == 68
    archive(table, keep_min=1, keep_max=2)
    assert rows_by_commits(table, deleted_from) is None
    assert snapshot(table).count_rows() == 92
