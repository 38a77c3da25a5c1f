"""Any history of changes, read through replicas at any pace, and compared with the list of all versions."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from airflow_provider.exceptions import NoSuchObjectError
from airflow_provider.metastore import (
    Metastore,
    PartitionInfo,
    PartitionSpec,
    TableInfo,
    TableSnapshot,
    ValidWriteIdList,
    open_metastore,
)
from airflow_provider.metastore.cache.cached_store import CachedStore
from airflow_provider.metastore.model.reader import Reader, ReaderSession

MEMORY = Path("/dev/shm")
REPLICAS = ["r1", "r2"]
MONTHS = ["1", "2", "3"]

State = tuple[TableInfo, tuple[PartitionInfo, ...]]


@dataclass
class Version:
    """The state of a table after one change."""

    state: State
    write_id: int


@dataclass
class Transaction:
    """An open transaction, and its write ids by table id."""

    txn_id: int
    write_ids: dict[int, int] = field(default_factory=dict)
    began: dict[int, ValidWriteIdList] = field(default_factory=dict)


class ReplicasHistory(RuleBasedStateMachine):
    """An answer is a version of the table with every change that the reader's write ids include."""

    new_database: Path

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        shutil.copy(self.new_database, self.folder / "metastore.db")
        self.url = f"sqlite:///{self.folder}/metastore.db"
        self.metastore: Metastore = open_metastore(self.url)
        self.replicas: dict[str, CachedStore] = {}
        self.history: dict[int, list[Version]] = {}
        self.names: list[str] = ["flights", "trains", "logs"]
        self.open: list[Transaction] = []
        self.snapshots: list[tuple[str, TableSnapshot]] = []
        self.sessions = [ReaderSession(), ReaderSession()]
        # By session and table id: the newest version that its reader has seen.
        self.seen: dict[tuple[int, int], int] = {}
        self.seen_external: dict[str, int] = {}
        self.numbers = iter(range(1, 1_000_000))

    @initialize()
    def tables(self) -> None:
        keys = self.metastore.get_table("lake", "flights").partition_keys
        for name, kind in (("trains", "MANAGED_TABLE"), ("logs", "EXTERNAL_TABLE")):
            self.metastore.create_table(
                "lake", name, location="/t", schema=[], partition_keys=keys, table_type=kind
            )
        for name in self.names:
            self._record(name, 0)
        for replica in REPLICAS:
            self._open(replica)

    def teardown(self) -> None:
        for store in self.replicas.values():
            store.close()
        self.metastore.close()
        shutil.rmtree(self.folder)

    # What happens to the database.

    @rule(data=st.data(), end=st.booleans(), commit=st.booleans())
    def transaction(self, data: st.DataObject, end: bool, commit: bool) -> None:
        if not self.open or (not end and len(self.open) < 3):
            begun = Transaction(self.metastore.open_txn("me", "here"))
            for name in self.names[:2]:
                _, snapshot = self._snapshot(name, begun.txn_id)
                begun.began[snapshot.table_id] = snapshot.write_ids
            self.open.append(begun)
            if data.draw(st.booleans(), label="writes at once"):
                self._change(data, data.draw(st.integers(0, 1)), "alter", begun)
            return
        ended = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        (self.metastore.commit_txn if commit else self.metastore.abort_txn)(ended.txn_id)

    @rule(
        data=st.data(),
        which=st.integers(0, 2),
        kinds=st.lists(st.sampled_from(["alter", "add", "move", "drop"]), min_size=1, max_size=3),
    )
    def change(self, data: st.DataObject, which: int, kinds: list[str]) -> None:
        for kind in kinds:
            transaction = data.draw(st.sampled_from([None, *self.open])) if which < 2 else None
            self._change(data, which, kind, transaction)

    def _change(self, data: st.DataObject, which: int, kind: str, transaction: Transaction | None) -> None:
        name, number = self.names[which], next(self.numbers)
        txn_id = None if transaction is None else transaction.txn_id
        values = ("2013", data.draw(st.sampled_from(MONTHS)))
        writer = data.draw(st.sampled_from(sorted(self.replicas)))
        through = self.replicas[writer].metastore
        if kind == "alter":
            through.alter_table("lake", name, owner=str(number), txn_id=txn_id)
        elif kind == "add":
            spec = PartitionSpec(values, f"/p/{number}")
            if not through.add_partitions("lake", name, [spec], txn_id=txn_id):
                return
        elif kind == "drop":
            if not through.drop_partitions("lake", name, [values], txn_id=txn_id):
                return
        else:
            try:
                through.alter_partition("lake", name, values, location=f"/p/{number}", txn_id=txn_id)
            except NoSuchObjectError:
                return
        write_id = 0
        if which < 2:
            if transaction is None:
                write_id = self.metastore.valid_write_id_list("lake", name).high_watermark
            else:
                write_id = self.metastore.allocate_table_write_id(transaction.txn_id, "lake", name)
                transaction.write_ids[self.metastore.get_table("lake", name).id] = write_id
        self._record(name, write_id)

    @rule(which=st.integers(0, 2), how=st.sampled_from(["rename", "exchange", "make again"]))
    def other_names(self, which: int, how: str) -> None:
        if how == "rename":
            self._rename(which)
        elif how == "exchange":
            self._exchange_names()
        elif which < 2 and not self.open:
            self._make_again(which)

    def _rename(self, which: int) -> None:
        old = self.names[which]
        new = old[:-1] if old.endswith("_") else f"{old}_"
        self.metastore.rename_table("lake", old, "lake", new)
        self.names[which] = new
        self._record(new, 0)

    def _exchange_names(self) -> None:
        first, second = self.names[:2]
        for old, new in ((first, "x"), (second, first), ("x", second)):
            self.metastore.rename_table("lake", old, "lake", new)
            self._record(new, 0)
        self.names[:2] = second, first

    def _make_again(self, which: int) -> None:
        name = self.names[which]
        keys = self.metastore.get_table("lake", name).partition_keys
        self.metastore.drop_table("lake", name)
        self.metastore.create_table("lake", name, location="/again", schema=[], partition_keys=keys)
        self._record(name, 0)

    # What happens to the replicas.

    @rule(replica=st.sampled_from(REPLICAS), events=st.sampled_from([*range(1, 9), 1000]))
    def follow(self, replica: str, events: int) -> None:
        self.replicas[replica].updater.step(events)

    @rule(replica=st.sampled_from(REPLICAS), how=st.sampled_from(["evict", "evict", "restart", "prewarm"]))
    def forget(self, replica: str, how: str) -> None:
        """Make a replica forget its copies: its next read is newer than its position in the log."""
        if how == "evict":
            self.replicas[replica]._state.tables.clear()
        else:
            self.replicas.pop(replica).close()
            self._open(replica, prewarm=how == "prewarm")

    # What readers see.

    @invariant()
    def every_replica_answers_a_reader_of_now(self) -> None:
        for name, snapshot in map(self._snapshot, self.names[:2]):
            for replica in self.replicas:
                self._check_read(replica, name, snapshot, None)

    @invariant()
    def a_reader_without_write_ids_sees_what_the_database_has(self) -> None:
        """Check all names that a table has had, too: memory must not know a table by an old name."""
        for store in self.replicas.values():
            for name in {*self.names, "flights", "flights_", "trains", "trains_", "logs", "logs_", "x"}:
                found = self._latest(store, name)
                if found is not None:
                    assert found == self._present(name)

    @rule(data=st.data(), session=st.sampled_from([None, 0, 1]))
    def read(self, data: st.DataObject, session: int | None) -> None:
        """Read through all replicas, in any order, with present and earlier snapshots."""
        for replica in data.draw(st.permutations(REPLICAS)):
            for name, snapshot in [*map(self._snapshot, self.names[:2]), *self.snapshots]:
                self._check_read(replica, name, snapshot, session)
        self.snapshots = [*self.snapshots[-2:], self._snapshot(self.names[data.draw(st.integers(0, 1))])]

    @invariant()
    def every_replica_shows_a_transaction_what_it_wrote(self) -> None:
        """Check reads with the list of the transaction's beginning, and with a present list."""
        for transaction in self.open:
            for name in self.names[:2]:
                _, current = self._snapshot(name)
                write_id = transaction.write_ids.get(current.table_id)
                if write_id is None:
                    continue
                lists = [current.write_ids, self._snapshot(name, transaction.txn_id)[1].write_ids]
                began = transaction.began[current.table_id]
                for one in (*lists, began):
                    own = TableSnapshot(
                        current.table_id, replace(one, table=f"lake.{name}").with_committed(write_id)
                    )
                    for replica in REPLICAS:
                        self._check_read(replica, name, own, None)

    @rule(replica=st.sampled_from(REPLICAS), session=st.sampled_from([None, 0, 1]))
    def read_external(self, replica: str, session: int | None) -> None:
        name = self.names[2]
        reader: Reader = {"session": None if session is None else self.sessions[session]}
        try:
            info = self.replicas[replica].get_table("lake", name, **reader)
        except NoSuchObjectError as error:
            raise AssertionError(f"the table is called {name}") from error
        known = [version.state[0] for version in self.history[info.id]]
        number = len(known) - 1 - known[::-1].index(info)
        assert number >= self.seen_external.get(replica, 0)
        self.seen_external[replica] = number
        if session is not None:
            assert number >= self.seen.get((session, info.id), 0)
            self.seen[session, info.id] = number

    @rule()
    def settle(self) -> None:
        """Check that memory answers with the present state, once all transactions have ended."""
        while self.open:
            self.metastore.commit_txn(self.open.pop().txn_id)
        for store in self.replicas.values():
            store.catch_up()
            for name, snapshot in map(self._snapshot, self.names[:2]):
                for _ in range(2):
                    before = store.statistics().hits
                    state = self._state_through(store, name, snapshot, None)
                assert store.statistics().hits == before + 2
                assert state == self._present(name) == self._latest(store, name)

    def _open(self, replica: str, *, prewarm: bool = False) -> None:
        store = CachedStore(open_metastore(self.url), replica, max_bytes=1_000_000)
        store.updater.begin()
        if prewarm:
            store.updater.prewarm()
        self.replicas[replica] = store

    def _latest(self, store: CachedStore, name: str) -> State | None:
        try:
            found = store.latest.table("lake", name, with_partitions=True)
        except NoSuchObjectError:
            with pytest.raises(NoSuchObjectError):
                self.metastore.get_table("lake", name)
            return None
        return None if found is None else (found[0], tuple(found[1].all))

    def _present(self, name: str) -> State:
        return self.metastore.get_table("lake", name), tuple(self.metastore.get_partitions("lake", name))

    def _record(self, name: str, write_id: int) -> None:
        state = self._present(name)
        self.history.setdefault(state[0].id, []).append(Version(state, write_id))

    def _snapshot(self, name: str, txn_id: int | None = None) -> tuple[str, TableSnapshot]:
        return name, self.metastore.read_snapshot([("lake", name)], txn_id).tables[f"lake.{name}"]

    def _state_through(
        self, store: CachedStore, name: str, snapshot: TableSnapshot, session: ReaderSession | None
    ) -> State:
        reader: Reader = {
            "valid_write_ids": snapshot.write_ids,
            "table_id": snapshot.table_id,
            "session": session,
        }
        info = store.get_table("lake", name, **reader)
        return info, tuple(store.get_partitions("lake", name, **reader))

    def _check_read(self, replica: str, name: str, snapshot: TableSnapshot, session: int | None) -> None:
        try:
            state = self._state_through(
                self.replicas[replica], name, snapshot, None if session is None else self.sessions[session]
            )
        except NoSuchObjectError:
            with pytest.raises(NoSuchObjectError):
                self.metastore.get_table("lake", name)
            return
        if state[0].id != snapshot.table_id:
            # Another table has that name now; only the database may report that.
            assert state == self._present(name)
            return
        versions = self.history[snapshot.table_id]
        # Table and partitions are two reads; each has at least the changes that the reader has to see.
        needed = self._needed(versions, snapshot.write_ids)
        numbers = [self._newest(versions, part, of) for part, of in enumerate(state)]
        assert min(numbers) >= needed
        if session is not None:
            key = (session, snapshot.table_id)
            assert min(numbers) >= self.seen.get(key, 0)
            self.seen[key] = min(numbers)

    def _newest(self, versions: list[Version], part: int, of: object) -> int:
        """The newest version with this description, or with these partitions."""
        return max(number for number, version in enumerate(versions) if version.state[part] == of)

    def _needed(self, versions: list[Version], write_ids: ValidWriteIdList) -> int:
        """The last version made under a write id that the reader sees."""
        seen = [
            number
            for number, version in enumerate(versions)
            if version.write_id and write_ids.is_valid(version.write_id)
        ]
        return max(seen, default=0)


@pytest.fixture(autouse=True)
def _begin_with(new_database: Path) -> None:
    ReplicasHistory.new_database = new_database


class TestReplicasHistory(ReplicasHistory.TestCase):
    settings = settings(max_examples=max(2, settings().max_examples // 6), stateful_step_count=40)
