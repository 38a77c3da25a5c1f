"""The rules of the document "Synchronized Metastore Cache", one by one: reads, writes, updates."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import event

from airflow_provider.exceptions import InvalidInputError, NoSuchObjectError
from airflow_provider.metastore import Metastore, PartitionInfo
from airflow_provider.metastore.cache import cache_updater
from airflow_provider.metastore.cache.cached_store import CachedStore, MissReason
from tests.unit.metastore.cache.cached import add, change, missed, now


@pytest.fixture
def metastore(by_database: Metastore) -> Metastore:
    """The metastore by its database, because replicas need a database."""
    return by_database


class TestReading:
    def test_a_fresh_copy_is_served_without_the_database(self, metastore: Metastore, r1: CachedStore) -> None:
        reader = now(metastore)
        statements: list[str] = []
        event.listen(
            r1.metastore.sql._engine, "before_cursor_execute", lambda *seen: statements.append(seen[2])
        )
        assert r1.get_table("LAKE", "Flights", **reader).location == "/lake/flights"
        assert r1.get_partitions("lake", "flights", **reader) == []
        assert statements == []
        assert missed(r1) == []
        assert r1.statistics().hits == 2

    def test_a_newer_copy_is_served(self, metastore: Metastore, r1: CachedStore) -> None:
        before = now(metastore)
        change(metastore, "ops")
        r1.catch_up()
        assert r1.get_table("lake", "flights", **before).owner == "ops"
        assert missed(r1) == []

    def test_a_newer_copy_is_not_served_to_a_reader_that_wants_its_exact_snapshot(
        self, metastore: Metastore, replica: Callable[..., CachedStore]
    ) -> None:
        store = replica(serve_newer=False)
        store.updater.prewarm()
        before = now(metastore)
        change(metastore, "ops")
        store.catch_up()
        assert store.get_table("lake", "flights", **before).owner == "ops"
        assert missed(store) == [MissReason.NEWER]
        store.get_table("lake", "flights", **now(metastore))
        assert missed(store) == []

    def test_a_stale_copy_is_not_served(self, metastore: Metastore, r1: CachedStore) -> None:
        change(metastore, "ops")
        assert r1.get_table("lake", "flights", **now(metastore)).owner == "ops"
        assert missed(r1) == [MissReason.STALE]

    def test_an_abort_makes_no_copy_stale(self, metastore: Metastore, r1: CachedStore) -> None:
        txn_id = metastore.open_txn("me", "here")
        metastore.allocate_table_write_id(txn_id, "lake", "flights")
        metastore.abort_txn(txn_id)
        r1.get_table("lake", "flights", **now(metastore))
        assert missed(r1) == []

    def test_lists_of_partitions_follow_the_same_rule(self, metastore: Metastore, r1: CachedStore) -> None:
        before = now(metastore)
        add(metastore, "1")
        add(metastore, "2")
        after = now(metastore)
        wanted = [PartitionInfo(("2013", "2"), "/lake/flights/2")]
        for reader, reasons in ((before, []), (after, [MissReason.STALE] * 3)):
            r1.get_partitions_by_filter("lake", "flights", "month = 2", **reader)
            r1.get_partitions("lake", "flights", **reader)
            if reader is after:
                assert r1.get_partition("lake", "flights", ("2013", "2"), **reader) == wanted[0]
            assert missed(r1) == reasons
        r1.catch_up()
        assert r1.get_partitions_by_filter("lake", "flights", "year = 2013 and month > 1", **after) == wanted
        assert r1.get_partition("lake", "flights", ("2013", "2"), **after) == wanted[0]
        assert len(r1.get_partitions("lake", "flights", **after)) == 2
        assert missed(r1) == []

    def test_a_missing_object_is_an_error_from_memory_too(
        self, metastore: Metastore, r1: CachedStore
    ) -> None:
        reader = now(metastore)
        with pytest.raises(NoSuchObjectError, match="no partition"):
            r1.get_partition("lake", "flights", ("2013", "1"), **reader)
        with pytest.raises(InvalidInputError, match="has 1 values"):
            r1.get_partition("lake", "flights", ("2013",), **reader)
        with pytest.raises(InvalidInputError, match="no partition key"):
            r1.get_partitions_by_filter("lake", "flights", "dest = 'x'", **reader)
        assert missed(r1) == []
        with pytest.raises(NoSuchObjectError, match=r"lake\.trains does not exist"):
            r1.get_table("lake", "trains", **reader)

    def test_a_table_not_in_memory_is_read_and_kept(
        self, metastore: Metastore, replica: Callable[..., CachedStore]
    ) -> None:
        store = replica()
        reader = now(metastore)
        store.get_table("lake", "flights", **reader)
        store.get_table("lake", "flights", **reader)
        assert missed(store) == [MissReason.NOT_CACHED]
        store.get_partitions("lake", "flights", **reader)
        store.get_partitions("lake", "flights", **reader)
        assert missed(store) == [MissReason.NOT_CACHED]


class TestWriting:
    def test_own_writes_are_read_before_they_are_committed(
        self, metastore: Metastore, r1: CachedStore
    ) -> None:
        txn_id = metastore.open_txn("me", "here")
        change(metastore, "ops", txn_id)
        own = now(metastore, txn_id=txn_id)
        assert r1.get_table("lake", "flights", **own).owner == "ops"
        assert missed(r1) == [MissReason.STALE]
        r1.catch_up()
        assert r1.get_table("lake", "flights", **own).owner == "ops"
        assert missed(r1) == [MissReason.IN_TRANSACTION]

    def test_own_writes_are_read_although_others_made_the_copy_newer(
        self, metastore: Metastore, r1: CachedStore
    ) -> None:
        """Hive's ``compare`` calls the copy newer: only it has 1. But the copy lacks the reader's own 2."""
        other = metastore.open_txn("you", "there")
        mine = metastore.open_txn("me", "here")
        metastore.allocate_table_write_id(other, "lake", "flights")
        own = metastore.read_snapshot([("lake", "flights")], mine)
        metastore.commit_txn(other)
        r1.catch_up()
        change(metastore, "ops", mine)
        reader = now(metastore, txn_id=mine)
        # The earlier snapshot, with the reader's own write id, as Hive's client keeps it.
        ids = own.tables["lake.flights"].write_ids.with_committed(2)
        assert (str(ids), str(reader["valid_write_ids"])) == (
            "lake.flights:2:1:1:",
            "lake.flights:2:9223372036854775807::",
        )
        assert (
            r1.get_table("lake", "flights", valid_write_ids=ids, table_id=reader["table_id"]).owner == "ops"
        )
        assert missed(r1) == [MissReason.STALE]

    def test_every_kind_of_change_makes_copies_stale(self, metastore: Metastore, r1: CachedStore) -> None:
        changes: list[Callable[[], object]] = [
            lambda: add(metastore, "1"),
            lambda: metastore.alter_partition("lake", "flights", ("2013", "1"), location="/new"),
            lambda: metastore.drop_partitions("lake", "flights", [("2013", "1")]),
            lambda: change(metastore, "ops"),
            lambda: metastore.fire_insert_event("lake", "flights", ["/a.parquet"]),
        ]
        for number, make in enumerate(changes, 1):
            make()
            reader = now(metastore)
            assert reader["valid_write_ids"] is not None
            assert reader["valid_write_ids"].high_watermark == number
            told = r1.get_partitions("lake", "flights", **reader)
            assert told == metastore.get_partitions("lake", "flights")
            assert missed(r1) == [MissReason.STALE]
            r1.catch_up()
            assert r1.get_partitions("lake", "flights", **reader) == told
            assert r1.get_table("lake", "flights", **reader) == metastore.get_table("lake", "flights")
            assert missed(r1) == []


class TestUpdating:
    def test_a_copy_is_unusable_between_a_write_and_its_commit(
        self, metastore: Metastore, r1: CachedStore
    ) -> None:
        before = now(metastore)
        txn_id = metastore.open_txn("me", "here")
        metastore.allocate_table_write_id(txn_id, "lake", "flights")
        r1.catch_up()
        r1.get_table("lake", "flights", **before)
        assert missed(r1) == []
        change(metastore, "ops", txn_id)
        r1.catch_up()
        assert r1.get_table("lake", "flights", **before).owner == "ops"
        assert missed(r1) == [MissReason.IN_TRANSACTION]
        metastore.commit_txn(txn_id)
        r1.get_table("lake", "flights", **now(metastore))
        assert missed(r1) == [MissReason.IN_TRANSACTION]
        r1.catch_up()
        for reader in (before, now(metastore)):
            assert r1.get_table("lake", "flights", **reader).owner == "ops"
        assert missed(r1) == []

    @pytest.mark.parametrize("kind", ["add", "alter", "drop", "insert"])
    def test_partition_and_insert_events_make_it_unusable_too(
        self, metastore: Metastore, r1: CachedStore, kind: str
    ) -> None:
        add(metastore, "1")
        r1.catch_up()
        before = now(metastore)
        txn_id = metastore.open_txn("me", "here")
        if kind == "add":
            add(metastore, "2", txn_id)
        elif kind == "alter":
            metastore.alter_partition("lake", "flights", ("2013", "1"), location="/new", txn_id=txn_id)
        elif kind == "drop":
            metastore.drop_partitions("lake", "flights", [("2013", "1")], txn_id=txn_id)
        else:
            metastore.fire_insert_event("lake", "flights", ["/a"], values=("2013", "1"), txn_id=txn_id)
        r1.catch_up()
        r1.get_partitions("lake", "flights", **before)
        assert missed(r1) == [MissReason.IN_TRANSACTION]
        metastore.abort_txn(txn_id)
        r1.catch_up()
        assert r1.get_partitions("lake", "flights", **before) == metastore.get_partitions("lake", "flights")
        assert missed(r1) == []

    @pytest.mark.parametrize("followed", [True, False])
    def test_a_copy_read_within_a_transaction_waits_for_its_end(
        self, metastore: Metastore, replica: Callable[..., CachedStore], followed: bool
    ) -> None:
        """The copy was read from the database after the first of two changes."""
        store = replica()
        txn_id = metastore.open_txn("me", "here")
        change(metastore, "half", txn_id)
        before = now(metastore)
        store.get_table("lake", "flights", **before)
        assert missed(store) == [MissReason.NOT_CACHED]
        if followed:
            store.catch_up()
        change(metastore, "whole", txn_id)
        assert store.get_table("lake", "flights", **before).owner == "whole"
        assert missed(store) == [MissReason.IN_TRANSACTION]
        metastore.commit_txn(txn_id)
        store.catch_up()
        assert store.get_table("lake", "flights", **now(metastore)).owner == "whole"
        assert missed(store) == []

    def test_requests_of_one_transaction_through_different_replicas(
        self, metastore: Metastore, replica: Callable[..., CachedStore]
    ) -> None:
        r1, r2 = replica("r1"), replica("r2")
        for store in (r1, r2):
            store.updater.prewarm()
        txn_id = metastore.open_txn("me", "here")
        change(r1.metastore, "first", txn_id)
        add(r2.metastore, "1", txn_id)
        change(r2.metastore, "second", txn_id)
        own = now(metastore, txn_id=txn_id)
        for store in (r1, r2):
            assert store.get_table("lake", "flights", **own).owner == "second"
            assert len(store.get_partitions("lake", "flights", **own)) == 1
        r1.catch_up()
        change(r2.metastore, "third", txn_id)
        for store in (r1, r2):
            assert store.get_table("lake", "flights", **own).owner == "third"
        metastore.commit_txn(txn_id)
        after = now(metastore)
        for store in (r1, r2):
            store.catch_up()
            missed(store)
            assert store.get_table("lake", "flights", **after).owner == "third"
            assert len(store.get_partitions("lake", "flights", **after)) == 1
            assert missed(store) == []

    def test_a_partition_with_other_values(self, metastore: Metastore, r1: CachedStore) -> None:
        add(metastore, "1")
        r1.catch_up()
        metastore.rename_partition("lake", "flights", ("2013", "1"), ("2014", "2"))
        r1.catch_up()
        [renamed] = r1.get_partitions("lake", "flights", **now(metastore))
        assert renamed.values == ("2014", "2")
        assert missed(r1) == []

    def test_an_event_older_than_the_copy_does_not_bring_the_old_back(
        self, metastore: Metastore, replica: Callable[..., CachedStore]
    ) -> None:
        store = replica()
        change(metastore, "old")
        change(metastore, "new")
        reader = now(metastore)
        assert store.get_table("lake", "flights", **reader).owner == "new"
        while store.updater.step(1):
            assert store.get_table("lake", "flights", **reader).owner == "new"
        assert store.get_table("lake", "flights", **reader).owner == "new"
        assert missed(store)[0] == MissReason.NOT_CACHED

    def test_a_batch_of_transactions_without_writes_is_passed_over(
        self, metastore: Metastore, replica: Callable[..., CachedStore]
    ) -> None:
        store = replica()
        store.catch_up()
        for _ in range(5):
            metastore.commit_txn(metastore.open_txn("me", "here"))
        change(metastore, "new")
        positions = [store.updater._state.event_id]
        for _ in range(20):
            store.updater.step(2)
            positions.append(store.updater._state.event_id)
        assert positions == sorted(positions)
        assert positions[-1] == metastore.current_event_id()

    def test_a_copy_that_the_log_overtook_while_it_was_read_is_not_kept(
        self, metastore: Metastore, replica: Callable[..., CachedStore], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = replica()
        read = store._sql.read

        def read_then_fall_behind(operation: Callable[..., object]) -> object:
            answer = read(operation)  # type: ignore[arg-type]
            change(metastore, "ops")
            monkeypatch.undo()
            store.catch_up()
            return answer

        reader = now(metastore)
        monkeypatch.setattr(store._sql, "read", read_then_fall_behind)
        assert store.get_table("lake", "flights", **reader).owner is None
        assert store.get_table("lake", "flights", **now(metastore)).owner == "ops"
        assert missed(store) == [MissReason.NOT_CACHED] * 2

    def test_write_ids_seeded_meanwhile_are_read_anew(self, metastore: Metastore, r1: CachedStore) -> None:
        metastore.seed_write_id("lake", "flights", 10**12)
        change(metastore, "ops")
        r1.catch_up()
        for _ in range(2):
            assert r1.get_table("lake", "flights", **now(metastore)).owner == "ops"
        assert missed(r1) == [MissReason.NOT_CACHED]

    def test_a_copy_that_stays_stale_is_read_anew(self, metastore: Metastore, r1: CachedStore) -> None:
        """The log has no event for seeded ids."""
        metastore.seed_write_id("lake", "flights", 5)
        reader = now(metastore)
        for _ in range(30):
            r1.get_table("lake", "flights", **reader)
        assert missed(r1) == [MissReason.STALE] * 21 + [MissReason.NOT_CACHED]

    def test_a_message_that_cannot_be_read_costs_a_read(
        self, metastore: Metastore, r1: CachedStore, url: str
    ) -> None:
        metastore.create_database("other")
        with metastore.sql._engine.begin() as connection:
            connection.exec_driver_sql(
                "UPDATE metastore_notification_log SET event_type = 'ALTER_TABLE', database_name = 'lake', "
                "table_name = 'flights' WHERE event_id = 3"
            )
        r1.catch_up()
        r1.get_table("lake", "flights", **now(metastore))
        assert missed(r1) == [MissReason.NOT_CACHED]


class TestWriteIdsOfATransaction:
    def lookups(self, store: CachedStore, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        asked: list[int] = []
        look_up = cache_updater.table_write_ids_of

        def noted(connection: object, txn_id: int) -> list[tuple[int, int]]:
            asked.append(txn_id)
            return look_up(connection, txn_id)  # type: ignore[arg-type]

        monkeypatch.setattr(cache_updater, "table_write_ids_of", noted)
        return asked

    def test_from_the_log_when_its_beginning_was_seen(
        self, metastore: Metastore, r1: CachedStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = self.lookups(r1, monkeypatch)
        change(metastore, "ops")
        r1.catch_up()
        r1.get_table("lake", "flights", **now(metastore))
        assert missed(r1) == []
        assert asked == []

    def test_from_the_database_when_it_began_before_the_replica(
        self,
        metastore: Metastore,
        replica: Callable[..., CachedStore],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        txn_id = metastore.open_txn("me", "here")
        metastore.allocate_table_write_id(txn_id, "lake", "flights")
        store = replica()
        store.updater.prewarm()
        asked = self.lookups(store, monkeypatch)
        change(metastore, "ops", txn_id)
        metastore.rename_table("lake", "flights", "lake", "trips")
        metastore.commit_txn(txn_id)
        store.catch_up()
        assert store.get_table("lake", "trips", **now(metastore, "trips")).owner == "ops"
        assert missed(store) == []
        assert asked == [txn_id]

    def test_one_that_wrote_before_the_replica_began_blocks_until_it_ends(
        self, metastore: Metastore, replica: Callable[..., CachedStore]
    ) -> None:
        txn_id = metastore.open_txn("me", "here")
        change(metastore, "half", txn_id)
        store = replica()
        store.updater.prewarm()
        before = now(metastore)
        change(metastore, "whole", txn_id)
        assert store.get_table("lake", "flights", **before).owner == "whole"
        assert missed(store) == [MissReason.IN_TRANSACTION]
        metastore.commit_txn(txn_id)
        store.catch_up()
        assert store.get_table("lake", "flights", **now(metastore)).owner == "whole"
        assert missed(store) == []
