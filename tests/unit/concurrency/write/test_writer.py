"""One write: its heartbeat, its commit, and its end without a commit."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider.concurrency import (
    CommitLog,
    HeartbeatSettings,
    ServicePlan,
    Writer,
    WriteSettings,
    WriteTransaction,
    begin_planned,
    begin_write,
    rollback,
    schedule,
)
from airflow_provider.concurrency.conflicts import turns
from airflow_provider.concurrency.heartbeats.heartbeat import Heartbeat, HeartbeatInfo, heartbeat_path
from airflow_provider.concurrency.log.log_entry import Commit, Revert, Rollback
from airflow_provider.concurrency.undo.reverts import revert
from airflow_provider.exceptions import (
    HeartbeatExpiredError,
    InstantRolledBackError,
    InvalidInputError,
    NoSuchInstantError,
    WriteConflictError,
)
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.locks.owner import describe_owner
from airflow_provider.table import HudiTable
from airflow_provider.table.file_groups.view import FileGroupId
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.instant import Action

SCHEMA = pa.schema({"id": pa.int64()})
SETTINGS = WriteSettings(priority=321, heartbeat=HeartbeatSettings(30.0, 7))


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return HudiTable.create(str(tmp_path / "t"), name="t", schema=SCHEMA, record_key=["id"])


def upsert(table: HudiTable, key: int = 1) -> FileGroupId:
    ingest_arrow(table, pa.table({"id": [key]}, schema=SCHEMA), "upsert")
    (file,) = table.view().all_base_files()
    return file.file_group


def planned(table: HudiTable, *groups: FileGroupId) -> str:
    instant = schedule(
        table,
        lambda view, taken: ServicePlan(frozenset(groups), b"plan"),
        action=Action.CLUSTERING,
        operation="CLUSTER",
        priority=7,
    )
    assert instant is not None
    return instant


def heartbeat_of(writer: Writer) -> HeartbeatInfo:
    return HeartbeatInfo.from_json(writer.storage.read(heartbeat_path(writer.instant)))


def newest_rollback(table: HudiTable) -> Rollback:
    newest = CommitLog(table.storage).newest()
    assert isinstance(newest, Rollback)
    return newest


class TestBegun:
    @pytest.mark.parametrize("priority", [True, 1.5, "400"])
    def test_a_priority_is_a_whole_number(self, priority: int) -> None:
        with pytest.raises(InvalidInputError, match="priority must be a whole number"):
            WriteSettings(priority=priority)

    def test_others_are_told_who_writes_and_on_what_it_is_based(self, table: HudiTable) -> None:
        owner = describe_owner()
        said = HeartbeatInfo(owner, "commit", "UPSERT", 321, 30.0, 7, "key")
        for base in (0, 1):
            writer = begin_write(table, operation="UPSERT", settings=SETTINGS, operation_key="key")
            assert heartbeat_of(writer) == HeartbeatInfo(**{**vars(said), "base": base})
            writer.commit([])

    def test_it_knows_its_transaction_and_how_often_it_was_begun_before(self, table: HudiTable) -> None:
        with begin_write(table, operation="UPSERT") as first:
            assert first.transaction == WriteTransaction()
            assert (first.losses, first.rebases, first.ended) == (0, 0, False)
        transaction = WriteTransaction(5, txn_goes_on=True)
        with begin_write(table, operation="UPSERT", transaction=transaction, losses=2) as again:
            assert (again.transaction, again.losses) == (transaction, 2)

    def test_it_is_lost_with_the_process_that_it_drives(self, table: HudiTable) -> None:
        plan = planned(table)
        for writer in (
            begin_write(table, operation="UPSERT", is_alive=lambda: False),
            begin_planned(table, plan, is_alive=lambda: False),
        ):
            writer.tell("on its way")
            with pytest.raises(HeartbeatExpiredError, match="is gone"):
                writer.heartbeat.check()
            writer.abort()


class TestPlanned:
    def test_others_are_told_who_carries_it_out(self, table: HudiTable) -> None:
        group = upsert(table)
        plan = planned(table, group)
        upsert(table, 1)
        beats = HeartbeatSettings(30.0, 7)
        with begin_planned(table, plan, heartbeat=beats, operation_key="key") as writer:
            said = HeartbeatInfo(describe_owner(), "clustering", "CLUSTER", 7, 30.0, 7, "key", base=2)
            assert heartbeat_of(writer) == said
            with pytest.raises(
                WriteConflictError, match=f"is being carried out already by {said.owner}; wait"
            ):
                begin_planned(table, plan)

    def test_others_are_told_nobody_where_it_ends_in_that_moment(
        self, table: HudiTable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plan, put = planned(table), Storage.put_if_absent
        with begin_planned(table, plan) as writer:

            def ends(self: Storage, path: str, data: bytes) -> bool:
                done = put(self, path, data)
                if path == heartbeat_path(plan):
                    writer.commit([])
                return done

            monkeypatch.setattr(Storage, "put_if_absent", ends)
            with pytest.raises(WriteConflictError, match=f"{plan} is being carried out already; wait"):
                begin_planned(table, plan)

    def test_it_begins_although_others_are_in_its_way_and_loses_at_its_commit(self, table: HudiTable) -> None:
        group = upsert(table)
        plan = planned(table, group)
        with begin_write(table, operation="UPSERT") as ingestion:
            ingestion.plan([group])
            writer = begin_planned(table, plan)
            writer.abort()

    def test_who_has_ended_it_is_told(self, table: HudiTable) -> None:
        rolled_back, completed = planned(table), planned(table)
        rollback(table, rolled_back)
        begin_planned(table, completed).commit([])
        for instant, ended in ((rolled_back, "rolled back"), (completed, "completed")):
            with pytest.raises(NoSuchInstantError, match=f"plan {instant} was {ended} at "):
                begin_planned(table, instant)
        with pytest.raises(
            NoSuchInstantError, match="there is no plan 20240101000000000; schedule one first"
        ):
            begin_planned(table, "20240101000000000")


class TestCommit:
    def test_it_says_by_which_operation_and_in_which_transaction(self, table: HudiTable) -> None:
        with begin_write(
            table,
            operation="UPSERT",
            settings=SETTINGS,
            operation_key="key",
            transaction=WriteTransaction(5, 0),
        ) as writer:
            writer.plan(())
            result = writer.commit([], extra_metadata={"mine": "1", "priority": "2"})
            assert writer.ended
        found = table.find_commit(writer.instant)
        assert found is not None
        extra = {name: value for name, value in found[1].extra_metadata.items() if name != "schema"}
        said = {"mine": "1", "priority": "321", "txn_id": "5", "write_id": "0", "operation_key": "key"}
        assert extra == said
        entry = CommitLog(table.storage).newest()
        assert isinstance(entry, Commit)
        assert (result.instant, result.completion_time) == (entry.instant, entry.completion_time)
        assert (result.action, result.sequence, result.rebases) == (Action.COMMIT, 1, 0)
        assert not entry.evolves

    def test_it_says_nothing_that_it_was_not_told(self, table: HudiTable) -> None:
        with begin_write(table, operation="UPSERT", settings=SETTINGS) as writer:
            writer.commit([])
        found = table.find_commit(writer.instant)
        assert found is not None
        assert set(found[1].extra_metadata) == {"schema", "priority"}


class TestEnded:
    def test_it_is_given_up_once(self, table: HudiTable) -> None:
        writer = begin_write(table, operation="UPSERT")
        writer.abort()
        entry = newest_rollback(table)
        assert (entry.rolls_back, entry.reason) == (writer.instant, "given up by its writer")
        assert writer.ended
        writer.abort("once more")
        assert newest_rollback(table) == entry

    def test_who_leaves_without_a_commit_is_rolled_back_and_says_why(self, table: HudiTable) -> None:
        with begin_write(table, operation="UPSERT"):
            pass
        assert newest_rollback(table).reason == "its writer left without a commit"
        with pytest.raises(ZeroDivisionError), begin_write(table, operation="UPSERT"):
            raise ZeroDivisionError("a fault")
        assert newest_rollback(table).reason == "ZeroDivisionError: a fault"

    def test_who_could_not_begin_is_rolled_back_and_says_why(
        self, table: HudiTable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        upsert(table)
        put = Storage.put_if_absent

        def unanswered(self: Storage, path: str, data: bytes) -> bool:
            done = put(self, path, data)
            if path.endswith(".commit.requested"):
                raise OSError("no answer")
            return done

        with monkeypatch.context() as patch:
            patch.setattr(Storage, "put_if_absent", unanswered)
            with pytest.raises(OSError, match="no answer"):
                begin_write(table, operation="UPSERT")
        assert newest_rollback(table).reason == "could not begin"


class TestLost:
    def test_a_conflict_is_told_with_both_instants_and_the_file_groups(self, table: HudiTable) -> None:
        group = upsert(table)
        with begin_write(table, operation="UPSERT") as writer:
            upsert(table)
            newest = CommitLog(table.storage).newest()
            assert newest is not None
            for look in (writer.plan, writer.check):
                with pytest.raises(WriteConflictError, match="lost a write conflict: UPSERT") as caught:
                    look([group])
                assert str(caught.value).endswith("; run the write again on the new snapshot")
                assert caught.value.details == {
                    "instant": writer.instant,
                    "conflicting_instant": newest.instant,
                    "file_groups": [["", group.file_id]],
                }
            writer.check([FileGroupId("", "another-0")])

    def test_who_could_not_merge_again_is_told_of_no_turn(
        self, table: HudiTable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(turns.TURN_SECONDS, "ingestion", -1.0)  # any merge takes longer
        group = upsert(table)
        with begin_write(table, operation="UPSERT") as writer:
            writer.plan([group])
            upsert(table)
            with pytest.raises(WriteConflictError, match=r"run the write again on the new snapshot$"):
                writer.commit([], replaced={"": [group.file_id]})

    def test_who_misses_a_file_is_told_by_whom_it_was_rolled_back(self, table: HudiTable) -> None:
        writer = begin_write(table, operation="UPSERT")
        assert writer.taken_away() is None
        rollback(table, writer.instant)
        entry, told = newest_rollback(table), writer.taken_away()
        assert isinstance(told, InstantRolledBackError)
        assert f"was rolled back at {entry.completion_time} by {entry.owner}; run" in str(told)
        with pytest.raises(InstantRolledBackError, match=f"was rolled back at {entry.completion_time} by"):
            writer.check([])
        with pytest.raises(InstantRolledBackError, match="was rolled back at"), writer:
            raise FileNotFoundError("a data file")

    def test_who_misses_a_file_is_told_what_it_was_based_on_that_was_undone(self, table: HudiTable) -> None:
        upsert(table)
        commit = CommitLog(table.storage).newest()
        assert commit is not None
        with begin_write(table, operation="INSERT") as writer:
            revert(table, commit.instant, reason="its transaction was aborted")
            entry, told = CommitLog(table.storage).newest(), writer.taken_away()
            assert isinstance(entry, Revert)
            assert isinstance(told, WriteConflictError)
            assert told.details == {"instant": writer.instant, "conflicting_instant": commit.instant}
            assert f"which was undone at {entry.completion_time}" in str(told)


def test_a_heartbeat_that_stands_still_is_a_write_that_cannot_be_planned(
    table: HudiTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = begin_write(table, operation="UPSERT")

    def lost(self: Heartbeat) -> None:
        raise HeartbeatExpiredError("lost")

    with monkeypatch.context() as patch:
        patch.setattr(Heartbeat, "check", lost)
        with pytest.raises(HeartbeatExpiredError):
            writer.plan((), early_check=False)
    writer.plan((), early_check=False)
    writer.abort()
