"""The table's properties agree with the log on our indexes, and keep all other indexes."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider.concurrency import CommitLog, begin_write
from airflow_provider.concurrency.indexes.changes import (
    _ABSENT,
    _COMPLETE,
    COLUMNS,
    DEFINITIONS,
    _definition,
    _settle,
    settle_index_config,
)
from airflow_provider.concurrency.log.log_entry import Commit, IndexState
from airflow_provider.indexing.drop import drop_index
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.table import HudiTable
from airflow_provider.table.metadata_table.index_definitions import (
    DEFINITIONS_PATH,
    column_stats_definition,
    record_index_definition,
)
from airflow_provider.table.properties import PROPERTIES_PATH, TableConfig, parse_properties
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.active import instant_path
from airflow_provider.table.timeline.instant import Action, Instant, State
from tests.unit.concurrency.other_hudi_writers.another_hudi_writer import create_trips

BUILT, BEGUN, PLANNED = "20240101000000001", "20240101000000002", "20240101000000003"
INDEXES = (
    IndexState("files", BUILT, 1, True),
    IndexState("column_stats", BEGUN, 1, False),
    IndexState("record_index", PLANNED, 1, False),
)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    schema = pa.schema({"id": pa.int64()})
    made = HudiTable.create(str(tmp_path / "t"), name="t", schema=schema, record_key=["id"]).storage
    with (tmp_path / "t" / PROPERTIES_PATH).open("a") as properties:
        properties.write("hoodie.table.metadata.partitions=bloom_filters,files,partition_stats\n")
    made.put(instant_path(Instant(BEGUN, Action.INDEXING, State.INFLIGHT)), b"")
    return made


def logged(storage: Storage, *indexes: IndexState) -> Commit:
    commit_log = CommitLog(storage)
    sequence = commit_log.head() + 1
    time = f"2024010100000010{sequence}"
    entry = Commit(
        instant=time,
        action=Action.COMMIT,
        operation="UPSERT",
        priority=0,
        sequence=sequence,
        completion_time=time,
        indexes=indexes,
    )
    assert commit_log.append(sequence, entry)
    return entry


def said(storage: Storage) -> tuple[set[str], set[str], str | None]:
    """The properties' complete indexes, pending indexes, and the path of their definitions."""
    properties = parse_properties(storage.read(PROPERTIES_PATH).decode())
    config = TableConfig.from_properties(properties)
    return (
        set(config.metadata_partitions),
        set(config.inflight_metadata_partitions),
        properties.get(DEFINITIONS),
    )


def test_in_flight_is_what_somebody_has_begun_to_build_and_others_indexes_stay(storage: Storage) -> None:
    logged(storage, *INDEXES)
    settle_index_config(storage, ["files", "column_stats", "record_index", "partition_stats"])
    assert said(storage) == ({"files", "bloom_filters"}, {"column_stats"}, DEFINITIONS_PATH)


def test_without_an_index_no_definitions_are_named(storage: Storage) -> None:
    settle_index_config(storage, ["files"])  # the log is empty
    assert said(storage) == ({"bloom_filters", "partition_stats"}, set(), DEFINITIONS_PATH)
    settle_index_config(storage, ["bloom_filters", "partition_stats"])
    assert said(storage) == (set(), set(), None)


def test_without_an_index_there_may_have_been_no_definitions(storage: Storage) -> None:
    assert DEFINITIONS not in parse_properties(storage.read(PROPERTIES_PATH).decode())
    settle_index_config(storage, ["files", "bloom_filters", "partition_stats"])
    assert said(storage) == (set(), set(), None)


def test_a_dropped_indexs_plan_goes_whoever_is_pending_beside_it(tmp_path: Path) -> None:
    table = create_trips(str(tmp_path / "trips"))
    with begin_write(table, operation="INSERT") as before:
        schedule_index(table, ["files"])
        run_index(table)
        schedule_index(table, ["record_index"])
        with begin_write(table, operation="INSERT") as since:
            drop_index(table, ["record_index"])
            pending = [each.requested_time for each in table.timeline().pending()]
            assert pending == [before.instant, since.instant]
            since.commit([])
        before.commit([])


def test_an_entry_holds_while_it_is_the_newest_and_afterwards_what_the_log_says(storage: Storage) -> None:
    entry = logged(storage, *INDEXES)
    _settle(storage, {"files": _ABSENT, "record_index": _COMPLETE}, entry)
    assert said(storage)[0] == {"bloom_filters", "partition_stats", "record_index"}
    logged(storage, *INDEXES)
    _settle(storage, {"files": _ABSENT, "record_index": _COMPLETE}, entry)
    assert said(storage)[0] == {"bloom_filters", "partition_stats", "files"}


def test_what_is_said_already_is_not_written_again(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    logged(storage, *INDEXES)
    settle_index_config(storage, ["files", "column_stats"])
    monkeypatch.delattr(Storage, "put")
    settle_index_config(storage, ["files", "column_stats"])


def test_the_plan_of_an_index_brings_its_definition() -> None:
    def of(partition: str, extra: dict[str, str] | None) -> object:
        return _definition({"metadataPartitionPath": partition, "extraMetadata": extra})

    assert of("record_index", None) == record_index_definition()
    assert of("column_stats", {COLUMNS: json.dumps(["a", "b"])}) == column_stats_definition(["a", "b"])
    assert of("files", None) is None
    assert of("files", {"another": "{"}) is None
