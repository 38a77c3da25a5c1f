"""Any history of transactions and write ids, compared with a model of plain dicts."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from airflow_provider.exceptions import NoSuchTransactionError, TransactionAbortedError
from airflow_provider.metastore import Metastore, PartitionSpec, ValidTxnList, open_metastore

NO_OPEN = 9223372036854775807
# A history is many small commits; on a disk each waits for the platter.
MEMORY = Path("/dev/shm")


class MetastoreHistory(RuleBasedStateMachine):
    """The metastore's answers at any moment follow from the earlier requests."""

    new_database: Path

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        shutil.copy(self.new_database, self.folder / "metastore.db")
        self.metastore: Metastore = open_metastore(f"sqlite:///{self.folder}/metastore.db")
        self.states: dict[int, str] = {}
        self.write_ids: dict[str, dict[int, int]] = {"t1": {}, "t2": {}}
        self.names = {"t1": "flights", "t2": "trains"}
        self.events = 2
        self.partitions: set[str] = set()

    @initialize()
    def second_table(self) -> None:
        self.metastore.create_table("lake", "trains", location="/lake/trains", schema=[])
        self.events += 1

    def teardown(self) -> None:
        self.metastore.close()
        shutil.rmtree(self.folder)

    @rule()
    def open(self) -> None:
        txn_id = self.metastore.open_txn("me", "here")
        assert txn_id == len(self.states) + 1
        self.states[txn_id] = "open"
        self.events += 1

    @precondition(lambda self: self.states)
    @rule(data=st.data(), commit=st.booleans())
    def end(self, data: st.DataObject, commit: bool) -> None:
        txn_id = data.draw(st.sampled_from(sorted(self.states)))
        wanted = "committed" if commit else "aborted"
        state = self.states[txn_id]
        end = self.metastore.commit_txn if commit else self.metastore.abort_txn
        if state not in {"open", wanted}:
            with pytest.raises(TransactionAbortedError if commit else NoSuchTransactionError):
                end(txn_id)
            return
        event_id = end(txn_id)
        if state == "open":
            self.states[txn_id] = wanted
            self.events += 1
            assert event_id == self.events
        assert self.metastore.get_txn(txn_id).event_id == event_id

    @precondition(lambda self: self.states)
    @rule(data=st.data(), table=st.sampled_from(["t1", "t2"]))
    def allocate(self, data: st.DataObject, table: str) -> None:
        txn_id = data.draw(st.sampled_from(sorted(self.states)))
        name, ids = self.names[table], self.write_ids[table]
        if self.states[txn_id] != "open":
            with pytest.raises((TransactionAbortedError, NoSuchTransactionError)):
                self.metastore.allocate_table_write_id(txn_id, "lake", name)
            return
        expected = ids.get(txn_id, len(ids) + 1)
        assert self.metastore.allocate_table_write_id(txn_id, "lake", name) == expected
        if txn_id not in ids:
            ids[txn_id] = expected
            self.events += 1

    @rule(table=st.sampled_from(["t1", "t2"]))
    def rename(self, table: str) -> None:
        old = self.names[table]
        self.names[table] = old[:-1] if old.endswith("_") else f"{old}_"
        self.metastore.rename_table("lake", old, "lake", self.names[table])
        self.events += 1

    @rule(month=st.sampled_from(["1", "2", None]))
    def add_partition(self, month: str | None) -> None:
        name = self.names["t1"]
        added = self.metastore.add_partitions("lake", name, [PartitionSpec(("2013", month), "/p")])
        new = str(month) not in self.partitions
        assert len(added) == new
        self.partitions.add(str(month))
        if new:
            # OPEN_TXN, ALLOC_WRITE_ID, ADD_PARTITION, COMMIT_TXN.
            self.events += 4
            txn_id = len(self.states) + 1
            self.states[txn_id] = "committed"
            self.write_ids["t1"][txn_id] = len(self.write_ids["t1"]) + 1

    @invariant()
    def events_have_no_gap(self) -> None:
        assert self.metastore.current_event_id() == self.events
        last = self.metastore.next_events(max(0, self.events - 3))
        assert [event.event_id for event in last] == list(range(max(1, self.events - 2), self.events + 1))

    @rule(data=st.data())
    def snapshot_of_transactions(self, data: st.DataObject) -> None:
        own = data.draw(st.sampled_from([None, *self.states]))
        snapshot = self.metastore.valid_txn_list(own)
        assert snapshot.high_watermark == (own or len(self.states))
        for txn_id in range(1, len(self.states) + 3):
            sees = own == txn_id or self.states.get(txn_id) == "committed"
            assert snapshot.is_valid(txn_id) == (sees and txn_id <= snapshot.high_watermark)
            is_other = txn_id != own and txn_id <= snapshot.high_watermark
            assert snapshot.is_aborted(txn_id) == (is_other and self.states[txn_id] == "aborted")

    @rule(data=st.data(), table=st.sampled_from(["t1", "t2"]))
    def snapshot_of_write_ids(self, data: st.DataObject, table: str) -> None:
        """Check that in every snapshot a write id is visible exactly if its transaction is."""
        watermark = data.draw(st.integers(0, len(self.states) + 1))
        numbers = st.integers(1, watermark) if watermark else st.nothing()
        exceptions = sorted(data.draw(st.sets(numbers)))
        aborted = frozenset(data.draw(st.sets(st.sampled_from(exceptions)))) if exceptions else frozenset()
        opened = [one for one in exceptions if one not in aborted]
        txns = ValidTxnList(watermark, tuple(exceptions), aborted, opened[0] if opened else NO_OPEN)
        name, ids = self.names[table], self.write_ids[table]
        snapshot = self.metastore.valid_write_id_list("lake", name, txns)
        assert snapshot.table == f"lake.{name}"
        assert snapshot.high_watermark <= len(ids)
        for txn_id, write_id in ids.items():
            assert snapshot.is_valid(write_id) == txns.is_valid(txn_id)
            if snapshot.is_aborted(write_id):
                assert txns.is_aborted(txn_id)
        assert all(one <= snapshot.high_watermark for one in snapshot.exceptions)
        assert not snapshot.is_valid(len(ids) + 1)


@pytest.fixture(autouse=True)
def _begin_with(new_database: Path) -> None:
    MetastoreHistory.new_database = new_database


class TestMetastoreHistory(MetastoreHistory.TestCase):
    settings = settings(max_examples=max(1, settings().max_examples // 12), stateful_step_count=25)
