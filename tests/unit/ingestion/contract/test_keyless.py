"""Tables without a record key, in this process, also those of the JVM, and all services on them."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.indexing import run_index, schedule_index
from airflow_provider.services.archival import archive
from airflow_provider.services.cleaning import Retention, clean
from airflow_provider.services.restore import restore
from airflow_provider.services.savepoint import create_savepoint
from airflow_provider.table import HudiTable, increment, snapshot
from tests.ingestion_contract.interleaving import Clustering
from tests.ingestion_contract.keyless import *  # noqa: F403
from tests.ingestion_contract.keyless import SCHEMA, events, keys, overtaken, row
from tests.ingestion_contract.lake import Lake, LakeTable
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild

FIXTURES = Path(__file__).parents[3] / "fixtures" / "real_hudi"
ALL_INDEXES = ["files", "column_stats", "partition_stats", "bloom_filters", "record_index"]


def test_who_is_overtaken_on_a_merge_on_read_table(lake: Lake) -> None:
    overtaken(events(lake, table_type="merge_on_read"))


def test_a_second_try_finds_the_rows_of_the_first(lake: Lake) -> None:
    table = events(lake)
    first = table.ingest("insert", [row(1)], operation_key="dag/task/1")
    again = table.ingest("insert", [row(1)], operation_key="dag/task/1")
    assert again == first | {"already_committed": True}
    table.check([row(1)])


@pytest.mark.parametrize("indexes", [[], ALL_INDEXES])
def test_services_move_rows_with_their_keys(lake: Lake, indexes: list[str]) -> None:
    table = events(lake)
    for value in range(3):
        table.ingest("bulk_insert", [row(value), row(value, "b")])
    if indexes:
        schedule_index(table.table, indexes)
        run_index(table.table)
    before = keys(table)
    Clustering(table.table, "part=a", outputs=1).commit()
    assert keys(table) == before
    create_savepoint(table.table)
    checkpoint = table.table.timeline().commits()[-1].completion_time
    table.ingest("insert", [row(3), row(4, "c")])
    assert increment(table.table, checkpoint).scanner().to_table()["value"].to_pylist() == [3, 4]
    table.ingest("insert_overwrite", [row(5, "b")])
    to = table.table.timeline().commits()[-3].requested_time
    restore(table.table, to)
    assert keys(table) == before
    for value in range(5, 20):
        table.ingest("insert", [row(value)])
    after = keys(table)
    assert len(after) == 6 + 15
    assert clean(table.table, Retention("KEEP_LATEST_FILE_VERSIONS", 1))
    assert archive(table.table, keep_min=2, keep_max=3).instants
    assert keys(table) == after
    assert_indexes_equal_a_rebuild(table.table, indexes or None)


def test_a_table_of_the_jvm_is_written(tmp_path: Path) -> None:
    with zipfile.ZipFile(FIXTURES / "cow_no_key.zip") as archive:
        archive.extractall(tmp_path)
    table = LakeTable(str(tmp_path))
    before = snapshot(table.table).to_table()
    properties = (tmp_path / ".hoodie" / "hoodie.properties").read_text()
    table.ingest("insert", before)
    table.ingest("bulk_insert", before)
    table.check_now(before.to_pylist() * 3)
    names = snapshot(table.table, meta_columns=True).to_table()["_hoodie_record_key"].to_pylist()
    assert len(set(names)) == len(names) == 3 * before.num_rows
    assert (tmp_path / ".hoodie" / "hoodie.properties").read_text() == properties


def test_its_properties_are_those_of_the_jvm(tmp_path: Path) -> None:
    with zipfile.ZipFile(FIXTURES / "cow_no_key.zip") as archive:
        archive.extractall(tmp_path / "theirs")
    theirs = HudiTable.open(str(tmp_path / "theirs")).config.raw
    made = HudiTable.create(
        str(tmp_path / "ours"), name="t", schema=SCHEMA, record_key=None, partition_by=["part"]
    )
    ours = HudiTable.open(made.location).config.raw
    of_the_key = [
        "hoodie.table.keygenerator.type",
        "hoodie.table.recordkey.fields",
        "hoodie.record.merge.mode",
    ]
    assert [ours.get(name) for name in of_the_key] == [theirs.get(name) for name in of_the_key]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"record_key": []}, "record_key names no column; name at least one, or give None"),
        ({"record_key": None, "ordering_field": "value"}, "ordering_field 'value' decides between versions"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, given: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        HudiTable.create(str(tmp_path / "t"), name="t", schema=SCHEMA, **given)
    assert not (tmp_path / "t").exists()
