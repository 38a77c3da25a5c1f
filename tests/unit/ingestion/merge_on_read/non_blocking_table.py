"""A non-blocking table, and writers of it that overlap in time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.table_compaction.compaction_settings import TableCompactionSettings
from airflow_provider.table.reading.slices import file_slices
from tests.ingestion_contract.interleaving import MeetingLock
from tests.ingestion_contract.lake import Lake, LakeTable

SCHEMA = pa.schema(
    {"id": pa.string(), "name": pa.string(), "age": pa.int64(), "ts": pa.int64(), "part": pa.string()}
)
ALWAYS = TableCompactionSettings(delta_commits=1)

Row = dict[str, Any]


def row(id_: str, name: str, ts: int = 1, part: str = "par1") -> Row:
    return {"id": id_, "name": name, "age": ts, "ts": ts, "part": part}


def make(lake: Lake, *, ordering_field: str | None = "ts", buckets: int = 1, **options: Any) -> LakeTable:
    index = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": buckets}
    return lake.create(
        SCHEMA,
        partition_by=["part"],
        ordering_field=ordering_field,
        table_type="merge_on_read",
        concurrency="non_blocking",
        hudi_options=index | options,
    )


def beside(
    table: LakeTable, operation: str, rows: Sequence[Row], *others: Callable[[], object], **job: Any
) -> dict[str, Any]:
    """Run a write, let others act when it has written its files, and check that it needs no rebase."""
    lock = MeetingLock(*others)
    result = ingest_arrow(table.location, table.arrow(rows), operation, lock=lock, **job)
    assert result["rebases"] == 0
    return result


def files(table: LakeTable) -> list[tuple[str, bool, int]]:
    """File id, whether it has a base file, and the number of log files of each file group."""
    slices = file_slices(table.table)
    return [(each.file_id, each.base_path is not None, len(each.log_paths)) for each in slices]


def in_flight(
    table: LakeTable,
    writes: Sequence[tuple[str, pa.Table]],
    order: Sequence[int],
    between: Callable[[], object] = lambda: None,
) -> list[dict[str, Any]]:
    """Run writes that begin one after the other, and commit when all of them have written their files.

    :param table: the table.
    :param writes: the operation and the rows of each write.
    :param order: the order in which they commit, by their positions.
    :param between: called before each commit.
    :return: the result of each write.
    """
    written = [threading.Event() for _ in writes]
    turns = [threading.Event() for _ in writes]

    def write(number: int) -> dict[str, Any]:
        def waits_for_its_turn() -> None:
            written[number].set()
            turns[number].wait()

        operation, rows = writes[number]
        try:
            return ingest_arrow(table.location, rows, operation, lock=MeetingLock(waits_for_its_turn))
        finally:
            written[number].set()

    with ThreadPoolExecutor(len(writes)) as threads:
        running = []
        try:
            for number in range(len(writes)):
                running.append(threads.submit(write, number))
                written[number].wait()
            for number in order:
                between()
                turns[number].set()
                running[number].result()
        finally:
            for turn in turns:
                turn.set()
    return [each.result() for each in running]
