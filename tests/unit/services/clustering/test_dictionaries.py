"""Files of which some have a dictionary of a column, and others do not, become files of the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.services.clustering.clustering import cluster_in_process, schedule_clustering
from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
from airflow_provider.table.files.base_file_reader import read_base_file
from tests.ingestion_contract.lake import Lake, LakeTable

SCHEMA = pa.schema({"id": pa.int64(), "text": pa.string(), "number": pa.int32()})


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    """The second thousand has texts that do not repeat."""
    return [
        {
            "id": n,
            "text": None if n % 7 == 0 else f"text {n}" if n // 1000 == 1 else f"text {n % 5}",
            "number": -n % 11,
        }
        for n in range(3000)
    ]


@pytest.fixture
def table(tmp_path: Path, rows: list[dict[str, Any]]) -> LakeTable:
    """A table of six files."""
    made = Lake(tmp_path).create(SCHEMA)
    for begin in range(0, 3000, 500):
        made.ingest("bulk_insert", rows[begin : begin + 500], small_file_limit=0)
    kinds = [kind_of_text(made, each.path) for each in made.table.base_files()]
    assert len(kinds) == 6
    assert {pa.types.is_dictionary(each) for each in kinds} == {True, False}
    return made


def kind_of_text(table: LakeTable, path: str) -> pa.DataType:
    schema = table.table.schema_on(table.table.timeline())
    found = read_base_file(table.table.storage, path, ["text"], schema=schema, dictionaries=True)
    return found.schema.field("text").type


@pytest.mark.parametrize("sort_by", [(), ("text",), ("text", "number"), ("number", "text")])
@pytest.mark.parametrize("outputs", [1, 3])
def test_the_rows_are_the_same(
    table: LakeTable, rows: list[dict[str, Any]], sort_by: tuple[str, ...], outputs: int
) -> None:
    size = sum(each.size for each in table.table.base_files()) // outputs + 1000
    schedule_clustering(table.table, ClusteringSettings(sort_by, target_file_size=size))
    assert cluster_in_process(table.table) is not None
    files = sorted(table.table.base_files(), key=lambda each: int(each.write_token.partition("-")[0]))
    assert len(files) == outputs
    table.check_now(rows)
    if sort_by:
        parts = [read_base_file(table.table.storage, each.path, sort_by) for each in files]
        found = [tuple(row.values()) for row in pa.concat_tables(parts).to_pylist()]
        assert found == sorted(found, key=lambda row: [(value is not None, value) for value in row])
