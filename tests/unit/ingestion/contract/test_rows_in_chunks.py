"""Rows in memory that come in several chunks, which large loads keep as they are."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider.ingestion import ingest_arrow
from tests.ingestion_contract.interleaving import MeetingLock
from tests.ingestion_contract.lake import Lake

SCHEMA = pa.schema({"id": pa.int64(), "part": pa.string(), "value": pa.string(), "ts": pa.int64()})


@pytest.fixture(autouse=True, params=[1, 1_000_000], ids=["in chunks", "in one chunk"])
def large_chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of so many rows are large."""
    monkeypatch.setattr("airflow_provider.ingestion.arrow._LARGE_CHUNKS", request.param)


def chunk(ids: range, value: str, ts: int = 1) -> list[dict[str, object]]:
    return [{"id": n, "part": "ab"[n % 2] if n < 500 else "c", "value": value, "ts": ts} for n in ids]


def in_chunks(*chunks: list[dict[str, object]]) -> pa.Table:
    found = pa.concat_tables([pa.Table.from_pylist(each, SCHEMA) for each in chunks])
    assert found["id"].num_chunks == len(chunks)
    return found


@pytest.mark.parametrize("key", [("id",), None])
@pytest.mark.parametrize("partitions", [["part"], []])
def test_a_bulk_insert(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: tuple[str, ...] | None, partitions: list[str]
) -> None:
    monkeypatch.setattr("airflow_provider.ingestion.arrow.ROWS_A_WRITE", 70)
    table = Lake(tmp_path).create(SCHEMA, key, partition_by=partitions)
    rows = in_chunks(chunk(range(300), "x"), chunk(range(300, 310), "y"), chunk(range(310, 700), "z"))
    ingest_arrow(table.location, rows, "bulk_insert")
    table.check_now(rows.to_pylist())


def test_an_upsert_that_is_merged_again(tmp_path: Path) -> None:
    table = Lake(tmp_path).create(SCHEMA, partition_by=["part"], ordering_field="ts")
    ingest_arrow(table.location, in_chunks(chunk(range(0, 400, 3), "old")), "bulk_insert")
    first, last = chunk(range(400), "first", ts=2), chunk(range(200, 600), "last", ts=2)
    theirs = chunk(range(1, 3), "theirs", ts=3)
    lock = MeetingLock(lambda: ingest_arrow(table.location, in_chunks(theirs), "upsert"))
    result = ingest_arrow(table.location, in_chunks(first, last), "upsert", lock=lock, on_conflict="rebase")
    assert result["rebases"] == 1
    table.check_now([*first[:1], *theirs, *first[3:200], *last])
