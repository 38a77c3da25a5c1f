"""A compaction and a read take no more memory for log files than the options say, for all merges together."""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import tenacity

from airflow_provider.exceptions import CorruptTableError
from airflow_provider.services.table_compaction.table_compaction import (
    compact_table,
    run_table_compaction,
    schedule_table_compaction,
)
from airflow_provider.table.file_groups import FileSlice
from airflow_provider.table.reading import SliceReader, read_optimized, snapshot
from airflow_provider.table.reading.slices import file_slices
from tests.ingestion_contract.lake import Lake, LakeTable
from tests.unit.ingestion.merge_on_read.three_file_groups import ALWAYS, make, row

eventually = tenacity.retry(
    retry=tenacity.retry_if_exception_type(AssertionError),
    wait=tenacity.wait_fixed(0.01),
    stop=tenacity.stop_after_delay(60),
    reraise=True,
)

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


def in_six_file_groups(lake: Lake) -> LakeTable:
    """A table whose six file groups have log files."""
    table = make(lake)
    table.ingest("bulk_insert", [row(n, "old", part) for n, part in enumerate("abcdef")])
    table.ingest("upsert", [row(n, "new", part) for n, part in enumerate("abcdef")])
    return table


def test_a_read_begins_four_slices_and_they_share_the_memory(
    lake: Lake, shares: list[tuple[int, int | None]]
) -> None:
    table = in_six_file_groups(lake)
    found = snapshot(table.table).to_table(columns=["id", "value"]).to_pylist()
    assert found == [{"id": n, "value": "new"} for n in range(6)]
    assert len(shares) == 6
    assert max(number for number, _ in shares) <= 4
    assert {memory for _, memory in shares} == {2**30 // 4}


def test_a_read_that_stops_early_closes_the_slices_it_has_begun(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, begun, closed = in_six_file_groups(lake), list[str](), list[str]()
    rows = SliceReader.rows

    def seen(self: SliceReader, file_slice: FileSlice, columns: Sequence[str]) -> Iterator[pa.Table]:
        begun.append(file_slice.file_id)
        try:
            yield from rows(self, file_slice, columns)
        finally:
            closed.append(file_slice.file_id)

    monkeypatch.setattr(SliceReader, "rows", seen)
    batches = snapshot(table.table).to_batches()
    assert next(iter(batches)).num_rows == 1
    del batches
    gc.collect()

    @eventually
    def ended() -> None:
        assert sorted(closed) == sorted(begun)
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("scan")]

    ended()


@pytest.mark.parametrize("damaged", [0, 2, 5])
def test_a_read_tells_of_a_damaged_slice_among_others(lake: Lake, damaged: int) -> None:
    table = in_six_file_groups(lake)
    paths = [path for each in file_slices(table.table) for path in each.log_paths]
    log_file = Path(table.table.location) / paths[damaged]
    log_file.write_bytes(log_file.read_bytes().replace(b"PAR1", b"----"))
    with pytest.raises(CorruptTableError, match=log_file.name):
        snapshot(table.table).to_table(columns=["id"])


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
