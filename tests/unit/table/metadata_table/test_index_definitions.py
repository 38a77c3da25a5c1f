from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_provider.exceptions import CorruptTableError
from airflow_provider.table.metadata_table.index_definitions import (
    DEFINITIONS_PATH,
    column_stats_definition,
    read_index_definitions,
    record_index_definition,
    write_index_definitions,
)
from airflow_provider.table.storage.storage import Storage
from tests.unit.table.conftest import JvmTables


def test_definitions_are_the_jvms(jvm_tables: JvmTables, tmp_path: Path) -> None:
    folder = jvm_tables.table("rs_cow_v9_txns_simple_meta")
    definitions = read_index_definitions(Storage(str(folder)))
    columns = definitions["column_stats"].source_fields
    assert definitions["column_stats"] == column_stats_definition(columns)
    assert definitions["record_index"] == record_index_definition()
    assert definitions["secondary_index_merchant_idx"].source_fields == ("merchant_name",)

    write_index_definitions(Storage(str(tmp_path)), definitions.values())
    theirs, ours = (json.loads((root / DEFINITIONS_PATH).read_text()) for root in (folder, tmp_path))
    assert ours == theirs


def test_a_table_without_indexes_has_none(tmp_path: Path) -> None:
    assert read_index_definitions(Storage(str(tmp_path))) == {}


@pytest.mark.parametrize("content", [b"", b"[]", b'{"indexDefinitions": {"a": {}}}'])
def test_damaged_definitions_are_named(tmp_path: Path, content: bytes) -> None:
    storage = Storage(str(tmp_path))
    storage.put(DEFINITIONS_PATH, content)
    with pytest.raises(CorruptTableError, match="holds no index definitions"):
        read_index_definitions(storage)
