"""Transactions around writes into several tables: the rows that readers see, the conflicts, and the ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.concurrency import ServicePlan, WriteSettings, WriteTransaction, begin_write, schedule
from airflow_provider.exceptions import (
    CommitError,
    InvalidInputError,
    NoSuchTransactionError,
    SnapshotUnavailableError,
    TableError,
    TransactionAbortedError,
    UnsupportedTableError,
    WriteConflictError,
)
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.ingestion.arrow import ArrowRows
from airflow_provider.metastore import EventType, TxnState
from airflow_provider.table import HudiTable
from airflow_provider.table.file_groups.view import FileGroupId, FileSystemView
from airflow_provider.table.files.base_file_reader import read_base_file
from airflow_provider.table.files.base_file_writer import BaseFileWriter
from airflow_provider.table.files.log_file import LogFileName
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.active import instant_path
from airflow_provider.table.timeline.instant import Action, Instant, State, after, now
from airflow_provider.table.timeline.metadata import CommitMetadata, WriteStat, encode, encode_commit_metadata
from tests.unit.concurrency.transactions.transactional_lake import SCHEMA, Lake, data_of


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


class TestReads:
    def test_several_tables_change_together(self, lake: Lake) -> None:
        lake.write("trips", {1: 10})
        txn_id = lake.begin()
        lake.write("trips", {1: 11, 2: 20}, txn_id)
        lake.write("riders", {7: 70}, txn_id)
        before = lake.metastore.valid_txn_list()
        assert (lake.seen("trips"), lake.seen("riders")) == ({1: 10}, {})
        assert (lake.plain("trips"), lake.plain("riders")) == ({1: 11, 2: 20}, {7: 70})
        lake.commit(txn_id)
        assert (lake.seen("trips"), lake.seen("riders")) == ({1: 11, 2: 20}, {7: 70})
        # A reader with an earlier list still sees the same rows.
        assert lake.seen("trips", valid_txns=before) == {1: 10}
        assert lake.seen("riders", valid_txns=before) == {}

    def test_a_writer_sees_its_own_writes(self, lake: Lake) -> None:
        txn_id = lake.begin()
        lake.write("trips", {1: 10}, txn_id)
        lake.write("trips", {1: 11, 2: 20}, txn_id)
        assert lake.seen("trips", txn_id) == {1: 11, 2: 20}
        assert lake.seen("trips") == {}

    def test_a_long_transaction_sees_its_own_writes_on_top_of_later_ones(self, lake: Lake) -> None:
        txn_id = lake.begin()
        lake.write("trips", {1: 10, 2: 20})
        lake.write("trips", {1: 11}, txn_id)
        # The transaction's list of Hive's kind ends with itself: the files do not separate the rows that it
        # wrote on top.
        with pytest.raises(SnapshotUnavailableError):
            lake.seen("trips", txn_id)
        own = lake.metastore.valid_txn_list().with_committed(txn_id)
        assert lake.seen("trips", valid_txns=own) == {1: 11, 2: 20}

    def test_what_belongs_to_no_transaction_is_seen_at_once(self, lake: Lake) -> None:
        ingest_arrow(lake.tables["trips"], data_of({1: 10}))
        assert lake.seen("trips") == {1: 10}

    def test_a_commit_merged_on_one_that_is_not_seen_is_told(self, lake: Lake) -> None:
        """This is the moment between a commit and the end of its own transaction."""
        slow = lake.metastore.open_txn("me", "here")
        write_id = lake.metastore.allocate_table_write_id(slow, "lake", "trips")
        data = data_of({1: 10})
        ingest_arrow(lake.tables["trips"], data, txn_id=slow, write_id=write_id)
        lake.write("trips", {2: 20})
        with pytest.raises(SnapshotUnavailableError, match=f"of transaction {slow}, which is not"):
            lake.seen("trips")
        lake.metastore.commit_txn(slow)
        assert lake.seen("trips") == {1: 10, 2: 20}

    def test_files_that_were_cleaned_are_told(self, lake: Lake) -> None:
        first = lake.write("trips", {1: 10})
        txn_id = lake.begin()
        lake.write("trips", {1: 11}, txn_id)
        (old,) = Path(lake.tables["trips"].location).rglob(f"*{first}.parquet")
        old.unlink()
        with pytest.raises(SnapshotUnavailableError, match="was cleaned"):
            lake.seen("trips")

    def test_a_replaced_partition_shows_again(self, lake: Lake) -> None:
        lake.write("trips", {1: 10})
        txn_id = lake.begin()
        lake.write("trips", {2: 20}, txn_id, "insert_overwrite")
        assert (lake.seen("trips"), lake.plain("trips")) == ({1: 10}, {2: 20})


class TestRewrites:
    """A clustering by a planner that ignores transactions: other files, the same rows."""

    @staticmethod
    def cluster(table: HudiTable) -> str:
        old = table.view().all_base_files()
        with begin_write(
            table, operation="CLUSTER", action=Action.REPLACE_COMMIT, settings=WriteSettings(priority=200)
        ) as writer:
            writer.plan([], ["city=sf"])
            with BaseFileWriter(
                table.storage,
                partition_path="city=sf",
                file_id="clustered-0",
                write_token="0-0-0",
                instant=writer.instant,
                schema=table.schema,
            ) as file:
                for base_file in old:
                    file.write_preserved(read_base_file(table.storage, base_file.path))
                written = file.close()
            stat = WriteStat("clustered-0", "city=sf", written.path, num_writes=written.rows)
            writer.commit([stat], replaced={"city=sf": [base_file.file_id for base_file in old]})
        return writer.instant

    def test_it_hides_and_shows_with_the_rows_that_it_moved(self, lake: Lake) -> None:
        lake.write("trips", {1: 10}, operation="bulk_insert")
        txn_id = lake.begin()
        lake.write("trips", {2: 20}, txn_id, "bulk_insert")
        self.cluster(lake.tables["trips"])
        assert lake.seen("trips") == {1: 10}
        assert lake.plain("trips") == {1: 10, 2: 20}
        lake.commit(txn_id)
        assert lake.seen("trips") == {1: 10, 2: 20}

    def test_what_was_written_on_top_of_it_cannot_be_told_apart(self, lake: Lake) -> None:
        txn_id = lake.begin()
        lake.write("trips", {1: 10}, txn_id)
        self.cluster(lake.tables["trips"])
        lake.write("trips", {2: 20})
        with pytest.raises(SnapshotUnavailableError, match="was merged on commit"):
            lake.seen("trips")
        # The transaction cannot be undone either; no reader with a snapshot sees any of its rows.
        with pytest.raises(TableError, match=r"cannot be undone .* has written to its file groups since"):
            lake.abort(txn_id)
        assert lake.state(txn_id) is TxnState.ABORTED

    def test_our_own_planners_leave_alone_what_is_held(self, lake: Lake) -> None:
        lake.write("trips", {1: 10}, operation="bulk_insert")
        table = lake.tables["trips"]
        (free,) = table.view().all_base_files()
        txn_id = lake.begin()
        lake.write("trips", {2: 20}, txn_id, "bulk_insert")
        told: list[frozenset[FileGroupId]] = []

        def planner(view: FileSystemView, reserved: frozenset[FileGroupId]) -> ServicePlan | None:
            told.append(reserved)
            return ServicePlan(frozenset(each.file_group for each in view.all_base_files()), b"plan")

        service = {"action": Action.CLUSTERING, "operation": "CLUSTER", "priority": 200}
        with pytest.raises(InvalidInputError, match="an open transaction holds"):
            schedule(table, planner, **service)
        (reserved,) = told
        assert len(reserved) == 1
        assert free.file_group not in reserved
        lake.commit(txn_id)
        assert schedule(table, planner, **service) is not None
        assert told[-1] == frozenset()


class TestHeld:
    """No writer builds on a write that an open transaction may still undo."""

    @pytest.mark.parametrize("on_conflict", ["raise", "rebase"])
    def test_its_file_groups(self, lake: Lake, on_conflict: str) -> None:
        lake.write("trips", {1: 10})
        txn_id = lake.begin()
        lake.write("trips", {1: 11}, txn_id)
        with pytest.raises(WriteConflictError, match=f"transaction {txn_id}.*has not ended") as raised:
            lake.write("trips", {2: 20}, on_conflict=on_conflict)
        assert raised.value.retryable
        lake.write("trips", {3: 30}, txn_id)
        lake.commit(txn_id)
        lake.write("trips", {2: 20}, on_conflict=on_conflict)
        assert lake.seen("trips") == lake.plain("trips") == {1: 11, 2: 20, 3: 30}

    def test_keys_that_it_took_out(self, lake: Lake) -> None:
        lake.write("trips", {1: 10}, operation="bulk_insert")
        lake.write("trips", {2: 20}, operation="bulk_insert")
        txn_id = lake.begin()
        lake.write("trips", {1: 0}, txn_id, "delete")
        # The write goes to another file group; it would not know that key 1 may come back.
        with pytest.raises(WriteConflictError, match="has not ended"):
            lake.write("trips", {1: 12, 2: 21}, target_file_size=1, small_file_limit=0)
        lake.abort(txn_id)
        assert lake.seen("trips") == lake.plain("trips") == {1: 10, 2: 20}

    def test_keys_that_it_took_out_of_other_partitions(self, lake: Lake) -> None:
        """If a record index makes keys unique in the whole table, the keys may come back in any partition."""
        table = lake.tables["trips"]
        lake.write("trips", {1: 10, 100: 99})
        schedule_index(table, ["files", "record_index"])
        run_index(table)
        txn_id = lake.begin()
        lake.write("trips", {1: 0}, txn_id, "delete")
        elsewhere = pa.table({"id": [1], "city": ["la"], "fare": [12]}, schema=SCHEMA)
        with pytest.raises(WriteConflictError, match=f"transaction {txn_id}.*has not ended"):
            ingest_arrow(table, elsewhere)
        lake.abort(txn_id)
        assert lake.seen("trips") == lake.plain("trips") == {1: 10, 100: 99}

    def test_a_rebase_does_not_build_on_it_either(self, lake: Lake) -> None:
        lake.write("trips", {1: 10})
        table = lake.tables["trips"]
        (base_file,) = table.view().all_base_files()
        group = base_file.file_group
        with begin_write(table, operation="UPSERT") as late:
            late.plan([group])
            txn_id = lake.begin()
            lake.write("trips", {1: 11}, txn_id)
            with pytest.raises(WriteConflictError):
                late.check([group])
        assert lake.plain("trips") == {1: 11}

    def test_other_partitions_and_file_groups_are_free(self, lake: Lake) -> None:
        txn_id = lake.begin()
        lake.write("trips", {1: 10}, txn_id)
        data = data_of({100: 99})
        ingest_arrow(lake.tables["trips"], data)
        with begin_write(lake.tables["trips"], operation="INSERT") as writer:
            writer.plan([], ["city=sf"])
        lake.abort(txn_id)
        assert lake.plain("trips") == {100: 99}

    def test_storage_that_could_not_undo_it(self, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Storage, "moves_atomically", False)
        txn_id = lake.begin()
        with pytest.raises(UnsupportedTableError, match="could not be undone"):
            lake.write("trips", {1: 10}, txn_id)
        lake.write("trips", {1: 10})


class TestAnotherHudiWriter:
    def test_what_it_merged_on_an_open_transaction_stays(self, lake: Lake) -> None:
        txn_id = lake.begin()
        lake.write("trips", {1: 10}, txn_id)
        table = lake.tables["trips"]
        (below,) = table.view().all_base_files()
        requested, completed = now(), after(now())
        path = f"city=sf/{below.file_id}_1-1-1_{requested}.parquet"
        table.storage.put(path, table.storage.read(below.path))
        stat = WriteStat(below.file_id, "city=sf", path, prev_commit=below.instant, num_writes=1)
        foreign = Instant(requested, Action.COMMIT, State.COMPLETED, completed)
        metadata = encode_commit_metadata(CommitMetadata("UPSERT", (stat,)), Action.COMMIT)
        table.storage.put(instant_path(foreign), metadata)
        with pytest.raises(SnapshotUnavailableError, match=f"of transaction {txn_id}, which is not"):
            lake.seen("trips")
        with pytest.raises(TableError, match=f"cannot be undone .* UPSERT {requested} was merged on it"):
            lake.abort(txn_id)
        assert lake.plain("trips") == {1: 10}

    @pytest.mark.parametrize(("read", "merges"), [(True, False), (False, False), (False, True)])
    def test_what_it_compacted_of_an_open_transaction_stays(
        self, tmp_path: Path, read: bool, merges: bool
    ) -> None:
        """A compaction that was planned before does not block an abort; a later write does."""
        lake = Lake(tmp_path, table_type="merge_on_read")
        lake.write("trips", {1: 10})
        before = lake.tables["trips"].timeline().commits()[-1].requested_time
        txn_id = lake.begin()
        undone = lake.write("trips", {1: 11}, txn_id)
        table = lake.tables["trips"]
        (below,) = table.view().all_base_files()
        requested, completed = now(), after(now())
        log_file = LogFileName(below.file_id, undone if read else before, 1, "0-0-0")
        operation = {
            "partitionPath": "city=sf",
            "fileId": below.file_id,
            "deltaFilePaths": [f"city=sf/{log_file}"],
            "dataFilePath": below.path.rpartition("/")[2],
            "baseInstantTime": below.instant,
        }
        nothing_to_read = operation | {"fileId": "another-0", "deltaFilePaths": None}
        plan = {"operations": [nothing_to_read, operation], "version": 2}
        stat = WriteStat(below.file_id, "city=sf", f"city=sf/{below.file_id}_1-1-1_{requested}.parquet", "1")
        metadata = encode_commit_metadata(CommitMetadata("COMPACT", (stat,)), Action.COMMIT)
        instants = {
            Instant(requested, Action.COMPACTION, State.REQUESTED): encode("HoodieCompactionPlan", plan),
            Instant(requested, Action.COMMIT, State.COMPLETED, completed): metadata,
        }
        if merges:
            requested = after(completed)
            metadata = encode_commit_metadata(CommitMetadata("UPSERT", (stat,)), Action.COMMIT)
            instants[Instant(requested, Action.COMMIT, State.COMPLETED, after(requested))] = metadata
        for instant, content in instants.items():
            table.storage.put(instant_path(instant), content)
        if read or merges:
            by = "UPSERT" if merges else "COMPACT"
            with pytest.raises(TableError, match=f"cannot be undone .* {by} {requested} was merged on it"):
                lake.abort(txn_id)
        else:
            lake.abort(txn_id)
            assert lake.tables["trips"].timeline().find(undone) is None


class TestEnd:
    def test_a_commit_registers_partitions_and_lets_go(self, lake: Lake) -> None:
        txn_id = lake.begin()
        lake.write("trips", {1: 10}, txn_id)
        lake.write("riders", {7: 70}, txn_id)
        assert lake.metastore.get_partitions("lake", "trips") == []
        before = lake.metastore.current_event_id()
        event_id = lake.commit(txn_id)
        assert lake.commit(txn_id) == event_id
        told = [event for event in lake.metastore.next_events(before) if event.event_type == EventType.INSERT]
        assert sorted(event.table or "" for event in told) == sorted(lake.tables)
        assert all(len(event.message["files"]) == 1 for event in told)
        for name in lake.tables:
            (partition,) = lake.metastore.get_partitions("lake", name)
            assert partition.values == ("sf",)
        lake.check_nothing_is_left()
        with pytest.raises(NoSuchTransactionError, match="already committed"):
            lake.abort(txn_id)

    def test_an_abort_undoes_every_table(self, lake: Lake) -> None:
        lake.write("trips", {1: 10})
        txn_id = lake.begin()
        lake.write("trips", {1: 11}, txn_id)
        undone = lake.write("trips", {1: 12, 2: 20}, txn_id)
        lake.write("riders", {7: 70}, txn_id)
        event_id = lake.abort(txn_id)
        assert lake.abort(txn_id) == event_id
        assert (lake.seen("trips"), lake.seen("riders")) == ({1: 10}, {})
        assert (lake.plain("trips"), lake.plain("riders")) == ({1: 10}, {})
        lake.check_nothing_is_left()
        with pytest.raises(TransactionAbortedError):
            lake.commit(txn_id)
        lake.write("trips", {1: 13})
        assert lake.plain("trips") == {1: 13}
        for table in lake.tables.values():
            assert list(Path(table.location).rglob(f"*{undone}.parquet")) == []
        assert list(Path(lake.tables["riders"].location).rglob("*.parquet")) == []

    def test_an_abort_undoes_a_write_that_was_rebased_onto_a_later_one(
        self, lake: Lake, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lake.write("trips", {1: 10}, operation="bulk_insert")
        lake.write("trips", {2: 20}, operation="bulk_insert")
        txn_id = lake.begin()
        look_up = ArrowRows.find

        def find(self: ArrowRows, *arguments: Any) -> Any:
            """Looks keys up, while another task of the transaction changes the same file group."""
            monkeypatch.undo()
            found = look_up(self, *arguments)
            lake.write("trips", {1: 11, 2: 21}, txn_id)
            return found

        monkeypatch.setattr(ArrowRows, "find", find)
        lake.write("trips", {1: 12}, txn_id, on_conflict="rebase")
        first, second = lake.tables["trips"].timeline().commits()[-2:]
        assert first.requested_time > second.requested_time
        assert lake.seen("trips", txn_id) == {1: 12, 2: 21}
        lake.abort(txn_id)
        assert lake.seen("trips") == lake.plain("trips") == {1: 10, 2: 20}
        lake.check_nothing_is_left()

    def test_an_abort_brings_back_what_was_taken_out(self, lake: Lake) -> None:
        lake.write("trips", {1: 10, 2: 20})
        txn_id = lake.begin()
        lake.write("trips", {1: 0}, txn_id, "delete")
        lake.write("trips", {3: 30}, txn_id, "insert_overwrite")
        assert lake.plain("trips") == {3: 30}
        lake.abort(txn_id)
        assert lake.seen("trips") == lake.plain("trips") == {1: 10, 2: 20}

    def test_what_was_superseded_has_to_be_there(self, lake: Lake) -> None:
        lake.write("trips", {1: 10})
        (before,) = lake.tables["trips"].view().all_base_files()
        txn_id = lake.begin()
        lake.write("trips", {1: 11}, txn_id)
        lake.tables["trips"].storage.delete(before.path)
        with pytest.raises(TableError, match=f"the files of city=sf/{before.file_id}.* are gone"):
            lake.abort(txn_id)

    def test_an_abort_rolls_back_what_is_still_written(self, lake: Lake) -> None:
        txn_id = lake.begin()
        lake.metastore.allocate_table_write_id(txn_id, "lake", "trips")
        table = lake.tables["trips"]
        writer = begin_write(
            table, operation="INSERT", transaction=WriteTransaction(txn_id, txn_goes_on=True)
        )
        writer.plan([FileGroupId("city=sf", "new-0")])
        with pytest.raises(CommitError, match=r"lake\.trips has a write id in it, but was not written"):
            lake.commit(txn_id)
        lake.abort(txn_id)
        lake.check_nothing_is_left()
        with pytest.raises(CommitError, match="was rolled back"):
            writer.check([])
        writer.abort()

    def test_a_commit_waits_for_nobody(self, lake: Lake) -> None:
        txn_id = lake.begin()
        lake.write("trips", {1: 10}, txn_id)
        with begin_write(
            lake.tables["trips"], operation="INSERT", transaction=WriteTransaction(txn_id, txn_goes_on=True)
        ):
            with pytest.raises(CommitError, match="still being written"):
                lake.commit(txn_id)
            assert lake.state(txn_id) is TxnState.OPEN
        lake.commit(txn_id)
        assert lake.seen("trips") == {1: 10}

    @pytest.mark.parametrize(
        ("moment", "told"), [("before", "which was undone"), ("after", "lost a write conflict: ROLLBACK")]
    )
    def test_an_upsert_that_did_not_see_what_an_abort_brings_back(
        self, lake: Lake, monkeypatch: pytest.MonkeyPatch, moment: str, told: str
    ) -> None:
        lake.write("trips", {1: 10}, operation="bulk_insert")
        lake.write("trips", {2: 20}, operation="bulk_insert")
        txn_id = lake.begin()
        lake.write("trips", {1: 0}, txn_id, "delete")
        look_up = ArrowRows.find

        def find(self: ArrowRows, *arguments: Any) -> Any:
            """Looks keys up; the transaction is aborted right before or after it."""
            if moment == "before":
                lake.abort(txn_id)
            found = look_up(self, *arguments)
            if moment == "after":
                lake.abort(txn_id)
            return found

        monkeypatch.setattr(ArrowRows, "find", find)
        # The write opens a file group of its own for key 1, because no file group that it sees has the key.
        with pytest.raises(WriteConflictError, match=told) as raised:
            lake.write("trips", {1: 12}, small_file_limit=0)
        assert raised.value.retryable
        monkeypatch.undo()
        assert lake.plain("trips") == {1: 10, 2: 20}
        lake.write("trips", {1: 12}, small_file_limit=0)
        assert lake.plain("trips") == {1: 12, 2: 20}
