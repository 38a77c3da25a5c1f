"""A bulk insert whose rows stay in the Spark tasks that have read them, and one whose rows are moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider.spark import IngestJob, ingest
from airflow_provider.spark.ingestion.batch_profile import Spread
from airflow_provider.table import snapshot
from tests.ingestion_contract.lake import KIB
from tests.spark.lake import SparkLake, SparkLakeTable

SCHEMA = pa.schema({"id": pa.int64(), "part": pa.string(), "value": pa.string()})


def rows(ids: Sequence[int], parts: str = "ab", value: str = "v") -> list[dict[str, Any]]:
    """Each id goes to one of the partitions, in turn."""
    return [{"id": n, "part": parts[n % len(parts)], "value": f"{value}{n}"} for n in ids]


def files(folder: Path, *contents: Sequence[Mapping[str, Any]]) -> str:
    """A source of this many files; Spark reads each by a task of its own."""
    folder.mkdir()
    for number, content in enumerate(contents):
        pq.write_table(pa.Table.from_pylist([*content], SCHEMA), folder / f"{number}.parquet")
    return f"{folder}/*.parquet"


def table_of(lake: SparkLake, **options: Any) -> SparkLakeTable:
    made = lake.create(SCHEMA, options.pop("record_key", ("id",)), partition_by=["part"], **options)
    assert isinstance(made, SparkLakeTable)
    return made


def groups(table: SparkLakeTable) -> dict[str, int]:
    """Number of file groups by partition."""
    return {partition.removeprefix("part="): len(found) for partition, found in table.files().items()}


@pytest.fixture
def unmoved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if Spark moves a row."""

    def to_numbered_tasks(*_: object) -> None:
        pytest.fail("rows are moved")

    monkeypatch.setattr("airflow_provider.spark.ingestion.rows.to_numbered_tasks", to_numbered_tasks)


@pytest.mark.usefixtures("unmoved", "reader")
def test_each_task_writes_the_rows_that_it_has_read(lake: SparkLake, tmp_path: Path) -> None:
    table = table_of(lake)
    first, second = rows(range(100), "a"), rows(range(100, 250), "b")
    result = table.load("bulk_insert", files(tmp_path / "source", first, second))
    assert result["rows_inserted"] == 250
    assert groups(table) == {"a": 1, "b": 1}
    table.check([*first, *second])


def test_rows_are_moved_where_the_files_would_be_many(lake: SparkLake) -> None:
    table, content = table_of(lake), rows(range(60))
    in_six_tasks = lake.spark.createDataFrame(pa.Table.from_pylist(content, SCHEMA)).repartition(6)
    ingest(lake.spark, IngestJob.of(table.location, operation="bulk_insert"), in_six_tasks)
    assert groups(table) == {"a": 1, "b": 1}
    table.check(content)


@pytest.mark.usefixtures("unmoved", "reader")
def test_a_task_begins_another_file_when_one_is_full(lake: SparkLake, tmp_path: Path) -> None:
    table = table_of(lake)
    count = 100_000
    texts = [f"{n:x}{'abcdefgh'[n % 8] * (n % 5)}" for n in range(count)]
    content = pa.table({"id": range(count), "part": ["a"] * count, "value": texts}, SCHEMA)
    (tmp_path / "source").mkdir()
    for number in range(2):
        some = content.slice(number * count // 2, count // 2)
        pq.write_table(some, tmp_path / "source" / f"{number}.parquet")
    # The plan assumes smaller rows, so it expects two files.
    table.load("bulk_insert", tmp_path / "source" / "*.parquet", target_file_size=512 * KIB)
    found = table.files()["part=a"]
    assert len(found) > 2
    assert sum(each for _, each in found) == count
    assert pa.compute.count_distinct(snapshot(table.table).to_table(["id"])["id"]).as_py() == count


@pytest.mark.usefixtures("unmoved", "reader")
def test_keys_that_are_generated_differ_between_tasks(lake: SparkLake, tmp_path: Path) -> None:
    table = table_of(lake, record_key=None)
    first, second = rows(range(60), "a"), rows(range(60), "b")
    table.load("bulk_insert", files(tmp_path / "source", first, second))
    keys = snapshot(table.table, meta_columns=True).to_table(["_hoodie_record_key"])["_hoodie_record_key"]
    assert len(keys.unique()) == 120
    table.check([*first, *second])


@pytest.mark.parametrize(
    ("tasks", "files", "targets", "cores", "stays"),
    [
        (2, 8, 8, 2, True),
        (2, 9, 8, 2, False),  # a partition would have two files instead of one
        (800, 800, 800, 64, True),
        (800, 6400, 800, 64, False),
        (1, 8, 8, 2, False),  # one task would write the rows of two
        (1, 1, 1, 2, True),  # a small load
        (1, 8, 100, 8, False),  # a source that one task reads, such as a database
        (7, 7, 100, 8, False),
        (8, 8, 100, 8, True),
    ],
)
def test_when_rows_stay(tasks: int, files: int, targets: int, cores: int, stays: bool) -> None:
    assert Spread(tasks, files).suffices(targets, cores) is stays
