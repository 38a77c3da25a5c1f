"""A change of a table's columns: its commit, and the state that others see before the commit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider.concurrency import CommitLog
from airflow_provider.concurrency.conflicts import OWNER
from airflow_provider.concurrency.heartbeats import HeartbeatInfo, observe
from airflow_provider.concurrency.log.log_entry import Commit, Restore, Revert, Savepoint
from airflow_provider.concurrency.write.schema_change import change_schema, may_change_schema
from airflow_provider.exceptions import WriteConflictError
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.locks.owner import describe_owner
from airflow_provider.table import HudiTable
from airflow_provider.table.schema import TableSchema
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.active import instant_path
from airflow_provider.table.timeline.instant import Action, Instant, State
from airflow_provider.table.timeline.metadata import decode_commit_metadata
from tests.unit.concurrency.other_hudi_writers.another_hudi_writer import Jvm, create_trips
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild

INFO = HeartbeatInfo("somebody", "clustering", "UPSERT", 321, 30.0, 7)


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return create_trips(str(tmp_path / "trips"))


def with_gate(current: TableSchema) -> TableSchema:
    if "gate" in current.columns.names:
        return current
    return current.with_columns(current.columns.append(pa.field("gate", pa.string())))


@pytest.mark.parametrize("shared", [True, False])
def test_its_commit_says_who_has_changed_the_columns_and_nothing_else(table: HudiTable, shared: bool) -> None:
    before = table.timeline().newest_completion
    entry = change_schema(table, with_gate, INFO, shared=shared)
    assert entry is not None
    assert entry == CommitLog(table.storage).newest()
    assert entry == Commit(
        instant=entry.instant,
        action=Action.COMMIT,
        operation="ALTER_SCHEMA",
        priority=321,
        completion_time=entry.completion_time,
        owner="somebody",
        indexes=(),
        properties=entry.properties,
        metadata_path=entry.metadata_path,
        evolves=True,
        seen=before if shared else "",
    )
    found = table.find_commit(entry.instant)
    assert found is not None
    schema = table.schema_on(table.timeline())
    assert schema.columns.names == ["id", "city", "fare", "gate"]
    assert (found[1].operation_type, found[1].write_stats) == ("ALTER_SCHEMA", ())
    assert found[1].extra_metadata == {"priority": "321", **schema.extra_metadata}
    requested, planned = (
        table.storage.read(instant_path(Instant(entry.instant, Action.COMMIT, state)))
        for state in (State.REQUESTED, State.INFLIGHT)
    )
    assert (requested, decode_commit_metadata(planned).operation_type) == (b"", "ALTER_SCHEMA")
    assert observe(table.storage) == {}


def test_while_it_is_decided_its_heartbeat_says_who_it_is(table: HudiTable) -> None:
    class Watched(Storage):
        seen: list[HeartbeatInfo]

        def put_if_absent(self, path: str, data: bytes) -> bool:
            if path.startswith(".hoodie/commit_log/0"):
                self.seen = [heartbeat.info for heartbeat in observe(self).values()]
            return super().put_if_absent(path, data)

    storage = Watched(table.location)
    change_schema(HudiTable.at(storage), with_gate, INFO, shared=False)
    assert storage.seen == [
        HeartbeatInfo(describe_owner(), Action.COMMIT, "ALTER_SCHEMA", 321, 10.0, 6, base=1)
    ]


def test_where_nothing_changes_nothing_is_put(table: HudiTable) -> None:
    assert change_schema(table, lambda current: current, INFO, shared=False) is None
    assert CommitLog(table.storage).head() == 1
    assert observe(table.storage) == {}


def test_indexes_know_of_it(table: HudiTable) -> None:
    planned = schedule_index(table, ["files", "column_stats"])
    assert planned is not None
    run_index(table, planned)
    change_schema(table, with_gate, INFO, shared=False)
    assert_indexes_equal_a_rebuild(table)


def test_after_an_unfinished_write_of_another_hudi_writer_nothing_is_changed(table: HudiTable) -> None:
    other = Jvm(table)
    other.begin()
    with pytest.raises(WriteConflictError, match=other.instant):
        change_schema(table, with_gate, INFO, shared=False)
    assert CommitLog(table.storage).head() == 1


def test_after_which_entries_the_columns_may_be_others(table: HudiTable) -> None:
    newest = CommitLog(table.storage).newest()
    assert isinstance(newest, Commit)
    assert not may_change_schema(newest)
    changed = change_schema(table, with_gate, INFO, shared=False)
    assert changed is not None
    assert may_change_schema(changed)
    assert may_change_schema(replace(newest, owner=OWNER))  # its columns are not known
    assert may_change_schema(Revert(instant="1", priority=0, rolls_back="0", reverts=1))
    assert may_change_schema(Restore(instant="1", priority=0))
    assert not may_change_schema(Savepoint(instant="1", priority=0))
