"""Lost conflicts of Spark's ingestion: a rebase sends only the rows of conflicting file groups again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.exceptions import CommitError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.spark import IngestJob, ingest
from tests.ingestion_contract.interleaving import Clustering, MeetingLock
from tests.ingestion_contract.lake import KIB
from tests.spark.lake import SparkLake, SparkLakeTable

SCHEMA = pa.schema({"id": pa.int64(), "part": pa.string(), "value": pa.string(), "ts": pa.int64()})
SMALL: dict[str, Any] = {"target_file_size": 16 * KIB, "small_file_limit": 0}


def row(id_: int, value: str, part: str = "a", ts: int = 1) -> dict[str, Any]:
    return {"id": id_, "part": part, "value": value, "ts": ts}


@pytest.fixture(autouse=True)
def outside_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make rebases merge outside the lock on any machine, so that another write can act before each try."""
    monkeypatch.setattr("airflow_provider.concurrency.write.committing.SHORT_TURN_SECONDS", -1.0)


@pytest.fixture
def table(lake: SparkLake, source: None) -> SparkLakeTable:
    """A table: partition ``a`` with two file groups, ``b`` with one; made without Spark, which is faster."""
    made = lake.create(SCHEMA, partition_by=["part"], ordering_field="ts")
    assert isinstance(made, SparkLakeTable)
    for ids in (range(10), range(10, 20)):
        theirs(made, "bulk_insert", [row(n, "old") for n in ids])
    theirs(made, "bulk_insert", [row(n, "old", "b") for n in range(10)])
    return made


def theirs(table: SparkLakeTable, operation: str, rows: list[dict[str, Any]]) -> None:
    ingest_arrow(table.location, table.arrow(rows), operation, **SMALL)


def overtaken(
    table: SparkLakeTable, operation: str, rows: list[dict[str, Any]], *others: Callable[[], object]
) -> dict[str, Any]:
    """Run a write; when it has written its data files, another write commits before each of its tries."""
    return table.ingest(operation, rows, lock=MeetingLock(*others), on_conflict="rebase", **SMALL)


def expected(*changes: dict[str, Any], gone: frozenset[int] = frozenset()) -> list[dict[str, Any]]:
    found = {("a", n): row(n, "old") for n in range(20) if n not in gone}
    found |= {("b", n): row(n, "old", "b") for n in range(10)}
    return [*(found | {(each["part"], each["id"]): each for each in changes}).values()]


def test_updates_inserts_and_clustering(table: SparkLakeTable) -> None:
    batch = [
        row(1, "mine"),
        row(1, "mine, the last"),
        row(2, "late", ts=0),
        row(11, "mine"),
        row(3, "mine", "b"),
        row(40, "mine", "c"),
        row(41, "mine", "c"),
    ]
    result = overtaken(
        table,
        "upsert",
        batch,
        lambda: Clustering(table.table, "part=a", outputs=3, priority=400).commit(),
        lambda: theirs(table, "upsert", [row(41, "theirs", "c"), row(42, "theirs", "c")]),
    )
    assert result["rebases"] == 2
    changed = [row(1, "mine, the last"), row(11, "mine"), row(3, "mine", "b"), *batch[-2:]]
    table.check_now(expected(*changed, row(42, "theirs", "c")))
    # The write did not write file groups without a conflict again.
    (untouched,) = table.table.view().base_files("part=b")
    assert untouched.instant == result["instant"]
    assert len(list(Path(table.location, "part=b").glob(f"*_{result['instant']}.parquet"))) == 1


def test_deletes(table: SparkLakeTable) -> None:
    gone = [row(1, ""), row(12, ""), row(99, "")]
    changed = [row(1, "theirs"), row(2, "theirs")]
    result = overtaken(table, "delete", gone, lambda: theirs(table, "upsert", changed))
    assert (result["rebases"], result["rows_deleted"]) == (1, 2)
    table.check_now(expected(changed[1], gone=frozenset({1, 12})))


def test_overwriting(table: SparkLakeTable) -> None:
    batch = [row(1, "mine")]
    others = [row(3, "theirs"), row(50, "theirs")]
    overtaken(table, "insert_overwrite", batch, lambda: theirs(table, "upsert", others))
    table.check_now([*batch, *(each for each in expected() if each["part"] == "b")])


def test_a_source_that_is_another_one_by_then(table: SparkLakeTable, tmp_path: Path) -> None:
    marker = tmp_path / "changed"

    def shrinking(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.slice(1) if marker.exists() else batch

    rows = table.arrow([row(1, "mine"), row(2, "mine")])
    frame = table.spark.createDataFrame(rows).coalesce(1)
    frame = frame.mapInArrow(shrinking, frame.schema)

    def other() -> None:
        theirs(table, "upsert", [row(1, "theirs")])
        marker.touch()

    job = IngestJob.of(table.location, on_conflict="rebase", **SMALL)
    with pytest.raises(CommitError, match="2 rows were to be merged again, and the source has 1"):
        ingest(table.spark, job, dataframe=frame, lock=MeetingLock(other))
    table.check_now(expected(row(1, "theirs")))
