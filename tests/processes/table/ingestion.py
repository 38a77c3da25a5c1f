"""The processes of these tests: real ingestions through a Spark Connect server."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyspark.sql.connect.session  # noqa: F401 - preloaded, because it is slow
from pyspark.sql import SparkSession

from airflow_provider.spark import IngestJob, ingest
from airflow_provider.table import HudiTable
from airflow_provider.table.storage.storage import Storage
from tests.processes.table import services
from tests.processes.table.victims import CHANGING


def create(location: Path) -> HudiTable:
    """Create a table with two partitions."""
    return services.create(str(location))


def session(remote: str) -> SparkSession:
    return SparkSession.builder.remote(remote).getOrCreate()


def upsert(
    spark: SparkSession, location: str, rows: Mapping[str, tuple[int, str]], **job: Any
) -> dict[str, Any]:
    """Upsert ``{id: (value, part)}``; the lease is short, so others wait only briefly for a dead holder."""
    data = spark.createDataFrame(
        [(id_, *rest) for id_, rest in rows.items()], "id string, value long, part string"
    )
    defaults: dict[str, Any] = {
        "source": (),
        "operation": "upsert",
        "lock": {"lease_seconds": 2.0},
    }
    return ingest(spark, IngestJob.of(location=location, **{**defaults, **job}), dataframe=data)


def after_each_operation(act: Callable[[int, str], None]) -> None:
    """Call ``act(number, description)`` after each change that this process makes to a storage."""
    count = 0

    def wrap(name: str) -> None:
        original = getattr(Storage, name)

        def operation(self: Storage, path: str, *args: Any, **kwargs: Any) -> Any:
            nonlocal count
            try:
                return original(self, path, *args, **kwargs)
            finally:
                # Heartbeats come at any time; only operations of the commit get a number.
                if not path.startswith(".hoodie/.heartbeat/") or name == "put_if_absent":
                    count += 1
                    act(count, f"{name} {path}")

        setattr(Storage, name, operation)

    for each in CHANGING:
        wrap(each)


def upsert_and_die(
    remote: str, location: str, rows: dict[str, tuple[int, str]], at: int, signal_number: int
) -> None:
    """Upsert, and send this process a signal after its ``at``-th storage operation."""
    spark = session(remote)

    def act(number: int, description: str) -> None:
        if number == at:
            os.kill(os.getpid(), signal.Signals(signal_number))

    after_each_operation(act)
    upsert(spark, location, rows)
