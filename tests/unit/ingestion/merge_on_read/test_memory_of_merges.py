"""A compaction takes no more memory for log files than its option says, for all its merges together."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.services.table_compaction.table_compaction import (
    compact_table,
    run_table_compaction,
    schedule_table_compaction,
)
from airflow_provider.table.file_groups import FileSlice
from airflow_provider.table.reading import SliceReader, read_optimized
from tests.ingestion_contract.lake import Lake, LakeTable
from tests.unit.ingestion.merge_on_read.three_file_groups import ALWAYS, make, row

LITTLE = {"hoodie.memory.compaction.max.size": 1, "hoodie.memory.merge.max.size": 1}


@pytest.fixture
def shares(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int | None]]:
    """Of each slice that is read: how many are read at the same time, and its bytes of memory."""
    found: list[tuple[int, int | None]] = []
    reading, lock, rows = [0], threading.Lock(), SliceReader.rows

    def seen(self: SliceReader, file_slice: FileSlice, columns: Sequence[str]) -> Iterator[pa.Table]:
        with lock:
            reading[0] += 1
            found.append((reading[0], self.memory))
        try:
            yield from rows(self, file_slice, columns)
        finally:
            with lock:
                reading[0] -= 1

    monkeypatch.setattr(SliceReader, "rows", seen)
    return found


def compacted(lake: Lake, **options: Any) -> LakeTable:
    """A table whose three file groups have log files of different sizes, after a compaction."""
    table = make(lake, hudi_options=options)
    for n, part in enumerate("abc"):
        table.ingest("bulk_insert", [row(n, "old", part)])
    table.ingest("upsert", [row(n, "new" * 100 * n, part) for n, part in enumerate("abc")])
    instant = schedule_table_compaction(table.table, ALWAYS)
    assert run_table_compaction(table.table, instant, at_once=3) is not None
    return table


def test_slices_share_the_memory_by_the_sizes_of_their_logs(
    lake: Lake, shares: list[tuple[int, int | None]]
) -> None:
    compacted(lake)
    bytes_of = [memory or 0 for _, memory in shares]
    assert len(set(bytes_of)) == 3
    assert 2**30 - 3 <= sum(bytes_of) <= 2**30


def test_slices_that_need_more_memory_are_compacted_one_after_the_other(
    lake: Lake, shares: list[tuple[int, int | None]]
) -> None:
    table = compacted(lake, **{"hoodie.memory.compaction.max.size": 1})
    assert shares == [(1, 1)] * 3
    table.check_now([row(n, "new" * 100 * n, part) for n, part in enumerate("abc")])


@pytest.mark.parametrize("seed", range(3))
def test_with_little_memory_the_rows_are_the_same(lake: Lake, seed: int) -> None:
    rng = random.Random(seed)
    ordering = {"ordering_field": "ts"} if seed == 2 else {}
    table = make(lake, hudi_options=LITTLE, **ordering)
    model = {n: row(n, "old") for n in range(60)}
    table.ingest("bulk_insert", list(model.values()))
    for step in range(8):
        ids = rng.sample(range(60), 12)
        if step % 4 == 3:
            compact_table(table.table, ALWAYS)
            assert read_optimized(table.table).count_rows() == len(model)
        elif step % 4 == 2:
            table.ingest("delete", [{"id": n, "part": "a"} for n in ids])
            model = {n: each for n, each in model.items() if n not in ids}
        else:
            rows = {n: row(n, f"{step}", ts=rng.randrange(3)) for n in ids if n in model}
            table.ingest("upsert", list(rows.values()), small_file_limit=0)
            kept = {n: each for n, each in rows.items() if not ordering or each["ts"] >= model[n]["ts"]}
            model |= kept
        table.check_now(list(model.values()))
