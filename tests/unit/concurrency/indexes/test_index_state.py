"""The indexes of a table, if another Hudi writer may have made or dropped some since the last entry."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider.concurrency import CommitLog
from airflow_provider.concurrency.indexes.state import (
    TableIndexes,
    _is_same,
    read_properties,
    table_indexes,
)
from airflow_provider.concurrency.log.log_entry import Commit, IndexState
from airflow_provider.table import HudiTable
from airflow_provider.table.metadata_table.reader import metadata_storage
from airflow_provider.table.metadata_table.writer import (
    BULK_INSERT,
    create_metadata_table,
    initialise_file_groups,
    write_instant,
)
from airflow_provider.table.properties import PROPERTIES_PATH
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.instant import Action

FIRST, SECOND, PLAN = "20240101000000001", "20240101000000002", "20240101000000003"
COMPLETE, IN_FLIGHT = "hoodie.table.metadata.partitions", "hoodie.table.metadata.partitions.inflight"
ENTRY = Commit(instant=PLAN, action=Action.COMMIT, operation="UPSERT", priority=0)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    schema = pa.schema({"id": pa.int64()})
    table = HudiTable.create(str(tmp_path / "t"), name="t", schema=schema, record_key=["id"])
    create_metadata_table(metadata_storage(table.storage), table.config)
    return table.storage


def named(storage: Storage, complete: str = "", in_flight: str = "") -> None:
    lines = [line for line in read_properties(storage).decode().splitlines() if "metadata.part" not in line]
    lines += [f"{COMPLETE}={complete}"] * bool(complete) + [f"{IN_FLIGHT}={in_flight}"] * bool(in_flight)
    storage.put(PROPERTIES_PATH, "\n".join([*lines, ""]).encode())


def made(storage: Storage, partition: str, instant: str, count: int = 1) -> None:
    initialise_file_groups(metadata_storage(storage), partition, count, instant)


def found(storage: Storage, *known: IndexState) -> tuple[IndexState, ...]:
    newest = replace(ENTRY, indexes=known, properties="of an older look") if known else None
    return table_indexes(storage, CommitLog(storage), newest).kept


def test_a_table_has_no_index_that_nobody_names_or_plans(storage: Storage) -> None:
    made(storage, "files", FIRST)
    assert found(storage) == ()
    assert found(storage, IndexState("files", PLAN, 1, True)) == ()
    assert table_indexes(storage, CommitLog(storage), ENTRY).kept == (), "which knows nothing of indexes"


def test_what_another_has_made_is_known_by_its_file_groups_and_who_made_them_last(storage: Storage) -> None:
    named(storage, complete="files")
    assert found(storage) == (IndexState("files", "", 0, True, ""),)
    made(storage, "files", FIRST)
    assert found(storage) == (IndexState("files", "", 1, True, FIRST),)
    made(storage, "files", SECOND)  # the other engine has dropped the index meanwhile, and made it anew
    assert found(storage) == (IndexState("files", "", 1, True, SECOND),)


def test_what_another_is_making_has_no_file_groups_until_all_of_them_are_made(storage: Storage) -> None:
    named(storage, in_flight="files")
    assert found(storage) == (IndexState("files", "", 0, False, ""),)
    made(storage, "files", FIRST, 2)
    assert found(storage) == (IndexState("files", "", 0, False, FIRST),)
    write_instant(metadata_storage(storage), Action.DELTA_COMMIT, FIRST, SECOND, BULK_INSERT, ())
    assert found(storage) == (IndexState("files", "", 2, False, FIRST),)


def test_what_the_log_plans_is_kept_and_what_it_knows_as_complete_goes_where_no_property_names_it(
    storage: Storage,
) -> None:
    gone, planned = IndexState("column_stats", PLAN, 1, True), IndexState("files", PLAN, 1, False)
    built = IndexState("record_index", PLAN, 1, False)
    for each in (gone, planned, built):
        made(storage, each.partition, PLAN)
    assert found(storage, gone, planned) == (planned,)
    named(storage, complete="record_index")
    assert found(storage, gone, planned, built) == (planned, built._replace(is_complete=True))
    assert found(storage, planned._replace(file_groups=2)) == (
        IndexState("record_index", "", 1, True, PLAN),
    ), "its files are others by now"


def test_what_the_newest_entry_says_holds_for_the_properties_that_it_names(storage: Storage) -> None:
    named(storage, complete="files")
    made(storage, "files", FIRST)
    looked_at = table_indexes(storage, CommitLog(storage), None)
    assert looked_at == TableIndexes((IndexState("files", "", 1, True, FIRST),), (), looked_at.properties)
    assert len(looked_at.properties) == 16
    said = (IndexState("files", PLAN, 7, True),)
    newest = replace(ENTRY, indexes=said, properties=looked_at.properties)
    assert table_indexes(storage, CommitLog(storage), newest) == TableIndexes(said, (), looked_at.properties)
    named(storage, complete="files,column_stats")
    made(storage, "column_stats", FIRST)
    again = table_indexes(storage, CommitLog(storage), newest)
    assert again.properties != looked_at.properties
    assert {each.partition: each.file_groups for each in again.kept} == {"files": 1, "column_stats": 1}


@pytest.mark.parametrize(
    ("before", "count", "makers", "is_same"),
    [
        (IndexState("files", FIRST, 2, True), 2, [FIRST], True),
        (IndexState("files", "", 2, True, FIRST), 2, [FIRST, SECOND], True),
        (IndexState("files", FIRST, 2, True), 3, [FIRST], False),
        (IndexState("files", FIRST, 2, True), 2, [SECOND], False),
        (IndexState("files", "", 2, True, FIRST), 2, [SECOND], False),
        (IndexState("files", FIRST, 2, True), 2, [], True),  # its first log files are compacted
        (IndexState("files", "", 2, True), 2, [SECOND], True),  # an earlier release did not record who
        (IndexState("files", "", 2, True), 3, [], False),
    ],
)
def test_an_index_is_the_same_while_it_has_the_file_groups_of_who_made_it(
    before: IndexState, count: int, makers: list[str], is_same: bool
) -> None:
    assert _is_same(before, count, makers) is is_same
