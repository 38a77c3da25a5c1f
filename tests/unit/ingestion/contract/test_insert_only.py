"""Insert-only tables take inserts and overwrites; full tables take everything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.exceptions import UnsupportedTableError
from airflow_provider.ingestion import OPERATIONS, ingest_arrow
from airflow_provider.services.table_options import change_options
from airflow_provider.table import HudiTable
from tests.ingestion_contract.lake import Lake, LakeTable, untouched
from tests.unit.concurrency.transactions.transactional_lake import Lake as TransactionalLake
from tests.unit.concurrency.transactions.transactional_lake import data_of

SCHEMA = pa.schema({"id": pa.int64(), "value": pa.int64()})
OPTION = "hoodie.table.transactional_properties"
REFUSED = {"upsert", "delete"}


def row(id_: int) -> dict[str, Any]:
    return {"id": id_, "value": id_}


def refuses_updates_and_deletes(table: LakeTable) -> None:
    for operation in REFUSED:
        told = rf"{operation} of table .*insert-only \({OPTION}=insert_only\); use the operation insert"
        with pytest.raises(UnsupportedTableError, match=told):
            untouched(table.location, lambda: table.ingest(operation, [row(1)]))  # noqa: B023
    for operation in OPERATIONS.keys() - REFUSED:
        table.ingest(operation, [row(1)])


def test_a_table_that_is_made_insert_only(lake: Lake) -> None:
    refuses_updates_and_deletes(lake.create(SCHEMA, hudi_options={OPTION: "insert_only"}))


def test_a_table_that_becomes_insert_only_and_full_again(lake: Lake) -> None:
    table = lake.create(SCHEMA)
    for operation in OPERATIONS:
        table.ingest(operation, [row(1)])
    change_options(table.table, {OPTION: "insert_only"})
    refuses_updates_and_deletes(table)
    change_options(table.table, {}, unset=[OPTION])
    table.ingest("upsert", [row(1)])


def test_the_metastore_says_so_too(tmp_path: Path) -> None:
    lake = TransactionalLake(tmp_path)
    rows = data_of({1: 1})
    ingest_arrow("lake.trips", rows, "upsert", metastore=lake.metastore)
    lake.metastore.alter_table("lake", "trips", parameters={"transactional_properties": "insert_only"})
    before = lake.metastore.current_event_id()
    with pytest.raises(
        UnsupportedTableError, match=r"upsert of table lake\.trips.*\(transactional_properties="
    ):
        ingest_arrow("lake.trips", rows, "upsert", metastore=lake.metastore)
    assert lake.metastore.current_event_id() == before, "no transaction was opened"
    ingest_arrow("lake.trips", rows, "insert", metastore=lake.metastore)
    assert not HudiTable.open(f"{tmp_path}/trips").config.is_insert_only
