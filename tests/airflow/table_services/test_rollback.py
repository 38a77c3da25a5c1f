"""Rollback of dead writers, without Spark."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider.concurrency import (
    HeartbeatSettings,
    Writer,
    WriteSettings,
    begin_write,
    pending_instants,
)
from airflow_provider.concurrency.heartbeats.heartbeat import heartbeat_path
from airflow_provider.ingestion import IngestJob, ingest_arrow
from airflow_provider.ingestion.arrow import ArrowRows
from airflow_provider.ingestion.write_rows import write_rows
from airflow_provider.operators import RollbackFailedWritesOperator
from airflow_provider.table.files.base_file_reader import read_base_file
from airflow_provider.table.files.base_file_writer import BaseFileWriter
from airflow_provider.table.hudi_table import HudiTable
from tests.airflow.conftest import xcom
from tests.airflow.flights import COLUMNS, rows_of
from tests.ingestion_contract.interleaving import Clustering

NOTHING = {"table": "lake.flights", "rolled_back": [], "deleted": [], "alive": [], "dry_run": False}


def tidy(**arguments) -> RollbackFailedWritesOperator:
    return RollbackFailedWritesOperator(task_id="tidy", **{"table": "lake.flights", **arguments})


def data(rows: list[tuple]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(COLUMNS, row, strict=True)) for row in rows])


def load(table: HudiTable, *rows: tuple) -> None:
    ingest_arrow(table.location, data(list(rows)))


def rewrite(table: HudiTable, writer: Writer) -> None:
    """Begin a write, and write a data file, without a commit."""
    [base_file] = table.view().all_base_files()
    writer.plan([base_file.file_group])
    with BaseFileWriter(
        table.storage,
        partition_path=base_file.partition_path,
        file_id=base_file.file_id,
        write_token="0-0-0",
        instant=writer.instant,
        schema=table.schema,
    ) as file:
        file.write_preserved(read_base_file(table.storage, base_file.path))
        file.close()


def files_of(table: HudiTable, instant: str) -> list[Path]:
    return [path for path in Path(table.location).rglob("*.parquet") if instant in path.name]


@pytest.fixture
def dead(table) -> str:
    """The instant of a writer that has written a file and died."""
    load(table, (1, "mon", 1.0))
    writer = begin_write(
        table,
        operation="CLUSTER",
        settings=WriteSettings(heartbeat=HeartbeatSettings(3600, tolerable_misses=1)),
    )
    rewrite(table, writer)
    path = Path(table.location) / heartbeat_path(writer.instant)
    long_ago = time.time() - 7200
    os.utime(path, (long_ago, long_ago))
    return writer.instant


def test_dead_writers_are_rolled_back_and_living_ones_left_alone(run_dag, metastore, table, dead):
    with DAG("tidy", schedule=None, start_date=datetime(2024, 1, 1)) as dag:
        tidy(dry_run="{{ params.only_tell }}", params={"only_tell": True})
    told = xcom(run_dag(dag), "tidy")
    assert told == {**NOTHING, "rolled_back": [dead], "dry_run": True}
    assert [each.instant for each in pending_instants(table)] == [dead]
    assert files_of(table, dead)

    assert tidy().execute({}) == {**NOTHING, "rolled_back": [dead]}
    assert pending_instants(table) == []
    assert files_of(table, dead) == []
    assert rows_of(table) == [(1, "mon", 1.0)]
    with begin_write(table, operation="UPSERT") as alive:
        assert tidy().execute({}) == {**NOTHING, "alive": [alive.instant]}
        assert [each.instant for each in pending_instants(table)] == [alive.instant]
    assert tidy(table=table.location).execute({}) == {**NOTHING, "table": table.location}


def test_the_files_of_a_rewrite_go_when_its_revert_is_long_over(metastore, table):
    load(table, (1, "mon", 1.0), (2, "mon", 2.0))
    load(table, (9, "tue", 1.0))
    clustering = Clustering(table, "day=mon", outputs=2)

    @contextmanager
    def overtaken(ingestion):
        clustering.commit()
        yield

    job = IngestJob.of(table.location, on_rewrite="revert")
    rows = ArrowRows.of(job, table, data([(1, "mon", 7.0)]))
    write_rows(job, table, rows, around=overtaken)
    rewritten = files_of(table, clustering.instant)
    assert len(rewritten) == 2
    paths = sorted(str(path.relative_to(table.location)) for path in rewritten)

    assert tidy().execute({}) == NOTHING
    assert tidy(reverted_after=None).execute({}) == NOTHING
    told = tidy(reverted_after=timedelta(0), dry_run=True).execute({})
    assert (sorted(told["deleted"]), told["dry_run"]) == (paths, True)
    assert files_of(table, clustering.instant) == rewritten
    assert sorted(tidy(reverted_after="0").execute({})["deleted"]) == paths
    assert files_of(table, clustering.instant) == []
    assert rows_of(table) == [(1, "mon", 7.0), (2, "mon", 2.0), (9, "tue", 1.0)]


@pytest.mark.parametrize(
    "arguments", [{"reverted_after": "soon"}, {"reverted_after": -1}, {"dry_run": "perhaps"}]
)
def test_wrong_arguments_are_told(metastore, table, arguments):
    [name] = arguments
    with pytest.raises(AirflowFailException, match=f"InvalidInputError: {name} must be"):
        tidy(**arguments).execute({})
