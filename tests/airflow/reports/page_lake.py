"""A lake for the page: a metastore with many tables, one of them with a long and eventful history."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from airflow_provider.concurrency import PRIORITIES, WriteSettings, begin_write
from airflow_provider.exceptions import WriteConflictError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.metastore import Column, Metastore, open_metastore
from airflow_provider.table.hudi_table import HudiTable

COLUMNS = {"id": "bigint", "day": "string", "delay": "double"}
SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("delay", pa.float64())])


@contextmanager
def as_task(dag: str, task: str, run: str, try_number: int = 1) -> Iterator[None]:
    """Set the variables that Airflow puts into the environment of a task."""
    said = {"DAG_ID": dag, "TASK_ID": task, "DAG_RUN_ID": run, "TRY_NUMBER": str(try_number)}
    said = {f"AIRFLOW_CTX_{name}": value for name, value in said.items()}
    before = {name: os.environ.get(name) for name in said}
    os.environ.update(said)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value


def make_lake(folder: Path, tables: int, instants: int) -> Metastore:
    """Make tables ``lake.flights``, ``lake.t001`` and so on; the first has about ``instants`` instants."""
    folder.mkdir(parents=True, exist_ok=True)
    metastore = open_metastore(f"sqlite:///{folder}/metastore.db")
    metastore.create_database("lake")
    flights = new_table(folder, "flights")
    register(metastore, flights, "flights")
    some_history(flights)
    for number in range(1, tables):
        name = f"t{number:03d}"
        shutil.copytree(flights.location, folder / name)
        register(metastore, HudiTable.open(str(folder / name)), name)
    long_history(flights, instants)
    return metastore


def new_table(folder: Path, name: str) -> HudiTable:
    return HudiTable.create(
        str(folder / name),
        name=name,
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["day"],
        hudi_options={
            "hoodie.keep.min.commits": 2_000,
            "hoodie.keep.max.commits": 3_000,
            "hoodie.table.durability": "none",
        },
    )


def register(metastore: Metastore, table: HudiTable, name: str) -> None:
    metastore.create_table(
        "lake",
        name,
        location=table.location,
        schema=[Column(column, kind) for column, kind in COLUMNS.items()],
        parameters={"spark.sql.sources.provider": "hudi"},
    )


def some_history(table: HudiTable) -> None:
    """Make loads by two DAGs, a lost conflict, and a write that is rolled back."""
    for number in range(3):
        with as_task("flights_steady", "ingest", f"scheduled__2013-12-0{number + 1}T00:00:00+00:00"):
            load(table, range(10 * number, 10 * number + 10), "mon")
    with as_task("flights_backfill", "load", "backfill__2013-01-01T00:00:00+00:00"):
        load(table, range(100, 120), "tue", priority=PRIORITIES["backfill"])
        begin_write(table, operation="UPSERT", settings=WriteSettings(PRIORITIES["backfill"])).abort(
            "asked for"
        )


def load(table: HudiTable, ids: range, day: str, **settings) -> dict:
    rows = [{"id": each, "day": day, "delay": float(each % 90)} for each in ids]
    return ingest_arrow(table, pa.Table.from_pylist(rows, SCHEMA), "upsert", **settings)


def long_history(table: HudiTable, instants: int) -> None:
    """Make many small commits by three DAGs, and some writes that are rolled back."""
    kinds = (
        ("flights_steady", "ingest", "UPSERT", PRIORITIES["ingestion"]),
        ("flights_steady", "ingest", "UPSERT", PRIORITIES["ingestion"]),
        ("flights_backfill", "load", "BULK_INSERT", PRIORITIES["backfill"]),
        ("flights_services", "sweep", "CLUSTER", PRIORITIES["table_service"]),
    )
    there = len(table.timeline().instants)
    for number in range(max(0, instants - there)):
        dag, task, operation, priority = kinds[number % len(kinds)]
        with as_task(dag, task, f"scheduled__2013-12-{number % 28 + 1:02d}T{number % 24:02d}:00:00+00:00"):
            writer = begin_write(table, operation=operation, settings=WriteSettings(priority))
            if number % 50 == 7:
                error = WriteConflictError(f"{writer} lost a write conflict: UPSERT by another task")
                writer.abort(f"{type(error).__name__}: {error}")
            else:
                writer.plan(())
                writer.commit([])
