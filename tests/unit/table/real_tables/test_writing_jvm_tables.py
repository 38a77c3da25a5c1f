"""Copies of version 9 tables of the JVM's Hudi, to which this package writes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder

from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.table_compaction import TableCompactionSettings, compact_table
from airflow_provider.table import HudiTable, snapshot
from tests.unit.table.conftest import JvmTables

COPY_ON_WRITE = "rs_cow_v9_txns_simple_nometa"
# hudi-rs does not read the original either: the JVM wrote the index's files with HBase's own writer.
UNREADABLE_FOR_HUDI_RS = "jvm_mor_v9_mdt_legacy_hfile"
MERGE_ON_READ = ["rs_mor_v9_txns_simple_nometa", UNREADABLE_FOR_HUDI_RS]


@pytest.mark.parametrize("name", [COPY_ON_WRITE, *MERGE_ON_READ])
def test_both_readers_see_an_upsert_a_delete_and_a_compaction(
    name: str, jvm_tables: JvmTables, tmp_path: Path
) -> None:
    location = str(shutil.copytree(jvm_tables.table(name), tmp_path / "t"))
    before = rows_of(location)
    config = HudiTable.open(location).config
    fixed = {*config.record_key_fields, *config.partition_fields, *config.ordering_fields}
    number = next(position for position, column in enumerate(before.column_names) if column not in fixed)
    field = before.schema.field(number)
    nulls = pa.nulls(2, field.type)
    changed = before.slice(0, 2).set_column(number, field, nulls)
    ingest_arrow(location, changed, "upsert")
    ingest_arrow(location, before.slice(2, 1), "delete")
    expected = in_order([*changed.to_pylist(), *before.slice(3).to_pylist()])
    check(name, location, expected)
    if name in MERGE_ON_READ:
        assert compact_table(HudiTable.open(location), TableCompactionSettings(delta_commits=1))
        check(name, location, expected)


def rows_of(location: str) -> pa.Table:
    return snapshot(HudiTable.open(location)).to_table()


def check(name: str, location: str, expected: list[str]) -> None:
    ours = rows_of(location)
    assert in_order(ours.to_pylist()) == expected
    if name == UNREADABLE_FOR_HUDI_RS:
        return
    theirs = pa.Table.from_batches(HudiTableBuilder.from_base_uri(location).build().read())
    assert in_order(theirs.select(ours.column_names).to_pylist()) == expected


def in_order(rows: list[dict[str, Any]]) -> list[str]:
    """Rows as texts, because maps and lists have no order."""
    return sorted(map(str, rows))
