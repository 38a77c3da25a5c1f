"""Hudi tables that ``CreateTableOperator`` registers in a metastore, with rows and partitions."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from airflow_provider.concurrency.transactions.recovery import partition_specs
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.metastore import open_metastore
from airflow_provider.operators import CreateTableOperator
from airflow_provider.table import HudiTable

SCHEMA = {"id": "bigint", "dest": "string", "fare": "decimal(10,2)"}
FIRST = [{"id": 1, "dest": "JFK", "fare": Decimal(1)}, {"id": 2, "dest": "a b", "fare": Decimal(2)}]
# The second row is a newer version: a reader that takes all files finds two.
SECOND = [{"id": 2, "dest": "a b", "fare": Decimal(3)}, {"id": 3, "dest": "JFK", "fare": Decimal(4)}]
ROWS = [(1, "JFK", "1.00"), (2, "a b", "3.00"), (3, "JFK", "4.00")]
FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "by_value": {"partition_by": ["dest"], "hive_style": False},
    "hive_style": {"partition_by": ["dest"], "hive_style": True},
}
MERGE_ON_READ: dict[str, dict[str, Any]] = {
    f"{name}_merged": form | {"table_type": "merge_on_read"} for name, form in FORMS.items()
}


def create_hudi_tables(folder: Path, uri: str, forms: Mapping[str, Mapping[str, Any]] = FORMS) -> None:
    """Create tables of the same rows in the database ``lake``.

    :param folder: the folder for the tables.
    :param uri: URL of the metastore's server.
    :param forms: for each table, arguments of ``CreateTableOperator``.
    """
    metastore = open_metastore(uri)
    with _connection(uri):
        for name, form in forms.items():
            operator = CreateTableOperator(
                task_id="create",
                table=f"lake.{name}",
                location=f"{folder}/{name}",
                schema=SCHEMA,
                record_key=["id"],
                metastore_conn_id="engines",
                **form,
            )
            location = operator.execute({})["location"]
            table = HudiTable.open(location)
            for rows in (FIRST, SECOND):
                ingest_arrow(table, pa.Table.from_pylist(rows, _plain(table.schema)), "upsert")
            if "partition_by" in form:
                start = "dest=" if form["hive_style"] else ""
                folders = [f"{start}JFK", f"{start}a b"]
                metastore.add_partitions("lake", name, partition_specs(table, folders))
    metastore.close()


def _plain(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(name, schema.field(name).type) for name in SCHEMA])


@contextmanager
def _connection(uri: str) -> Iterator[None]:
    """An Airflow connection ``engines`` to the server."""
    os.environ["AIRFLOW_CONN_ENGINES"] = json.dumps({"conn_type": "table_metastore", "extra": {"url": uri}})
    try:
        yield
    finally:
        del os.environ["AIRFLOW_CONN_ENGINES"]
