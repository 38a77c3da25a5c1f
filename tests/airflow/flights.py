"""A small table of flights, and ways to load it."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider.concurrency import pending_instants
from airflow_provider.metastore import TxnInfo, TxnState
from airflow_provider.operators import IngestOperator
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.reading.snapshots import snapshot

COLUMNS = {"id": "bigint", "day": "string", "fare": "double"}


def write_rows(path: Path, rows) -> None:
    columns = dict(zip(COLUMNS, (list(column) for column in zip(*rows, strict=True)), strict=True))
    pq.write_table(pa.table(columns), path)


def rows_of(table: HudiTable) -> list[tuple]:
    return sorted(tuple(row.values()) for row in snapshot(table).to_table().to_pylist())


def ingest(landing: Path, /, **arguments) -> IngestOperator:
    """An operator that loads the files of a folder, by Spark."""
    return IngestOperator(
        task_id="ingest",
        **{"table": "lake.flights", "source": f"{landing}/*.parquet", "engine": "spark", **arguments},
    )


def in_thread(call) -> tuple[threading.Thread, list]:
    outcome: list = []

    def run():
        try:
            outcome.append(call())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


def last_transaction(metastore) -> TxnInfo:
    return metastore.get_txn(metastore.valid_txn_list().high_watermark)


def assert_undone(metastore, table: HudiTable) -> None:
    assert pending_instants(table) == []
    timeline = table.timeline()
    # Before a first write that died there is an empty commit.
    assert [stat for each in timeline.commits() for stat in timeline.commit_metadata(each).write_stats] == []
    assert list(Path(table.location).rglob("*.parquet")) == []
    assert last_transaction(metastore).state == TxnState.ABORTED
