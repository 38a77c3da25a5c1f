"""The rules of the document "Synchronized Metastore Cache", one by one: options and other features."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from airflow_provider.exceptions import InvalidInputError, MetastoreError, NoSuchObjectError
from airflow_provider.metastore import Column, Metastore, PartitionSpec, open_metastore
from airflow_provider.metastore.cache.cached_store import CachedStore, MissReason, open_cached_store
from airflow_provider.metastore.model.reader import ReaderSession
from airflow_provider.metastore.thrift.server.serve import ServiceOptions, served
from airflow_provider.metastore.transactions import transactions
from tests.unit.metastore.cache.cached import change, missed, now

EXTERNAL = "EXTERNAL_TABLE"


@pytest.fixture
def metastore(by_database: Metastore) -> Metastore:
    """The metastore by its database, because replicas need a database."""
    return by_database


class TestPrewarm:
    def make(self, metastore: Metastore, count: int) -> list[str]:
        names = [f"t{number}" for number in range(count)]
        for name in names:
            metastore.create_table("lake", name, location="/t", schema=[Column("id", "int")])
        return names

    def test_every_table_is_in_memory(
        self, metastore: Metastore, replica: Callable[..., CachedStore]
    ) -> None:
        names = self.make(metastore, 5)
        store = replica()
        assert store.updater.prewarm() == 6
        for name in names:
            store.get_partitions("lake", name, **now(metastore, name))
        assert missed(store) == []

    @pytest.mark.parametrize(("lifetime", "lists"), [(60.0, 1), (0.0, 6)])
    def test_one_list_of_transactions_serves_for_a_while(
        self,
        metastore: Metastore,
        replica: Callable[..., CachedStore],
        monkeypatch: pytest.MonkeyPatch,
        lifetime: float,
        lists: int,
    ) -> None:
        self.make(metastore, 5)
        store = replica(snapshot_lifetime=lifetime)
        taken: list[object] = []
        take = transactions.valid_txn_list

        def noted(*arguments: object) -> object:
            taken.append(arguments)
            return take(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(transactions, "valid_txn_list", noted)
        assert store.updater.prewarm() == 6
        assert len(taken) == lists

    def test_a_list_that_is_outdated_costs_reads_until_the_log_is_read(
        self, metastore: Metastore, replica: Callable[..., CachedStore], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = replica(snapshot_lifetime=60)
        list_tables = store.metastore.list_tables

        def change_meanwhile(database: str) -> list[str]:
            if database == "lake":
                change(metastore, "ops")
            return list_tables(database)

        metastore.create_table("default", "first", location="/t", schema=[])
        monkeypatch.setattr(store.metastore, "list_tables", change_meanwhile)
        store.updater.prewarm()
        reader = now(metastore)
        assert store.get_table("lake", "flights", **reader).owner == "ops"
        assert missed(store) == [MissReason.STALE]
        store.catch_up()
        assert store.get_table("lake", "flights", **reader).owner == "ops"
        assert missed(store) == []

    def test_it_stops_when_memory_is_full(
        self, metastore: Metastore, replica: Callable[..., CachedStore]
    ) -> None:
        self.make(metastore, 50)
        store = replica(max_bytes=20_000)
        copied = store.updater.prewarm()
        assert 5 < copied < 30
        statistics = store.statistics()
        assert (statistics.tables, statistics.evicted) == (copied, 0)
        assert statistics.bytes <= 20_000


class TestTableIds:
    def test_a_renamed_table_answers_by_its_new_name(self, metastore: Metastore, r1: CachedStore) -> None:
        old = now(metastore)
        metastore.rename_table("lake", "flights", "lake", "trips")
        new = now(metastore, "trips")
        assert r1.get_table("lake", "trips", **new).name == "trips"
        assert missed(r1) == [MissReason.OTHER_TABLE]
        r1.catch_up()
        assert r1.get_table("lake", "trips", **new).name == "trips"
        assert missed(r1) == []
        with pytest.raises(NoSuchObjectError):
            r1.get_table("lake", "flights", **old)

    def test_a_table_made_again_is_not_answered_by_the_old_one(
        self, metastore: Metastore, r1: CachedStore
    ) -> None:
        change(metastore, "ops")
        r1.catch_up()
        metastore.drop_table("lake", "flights")
        metastore.create_table("lake", "flights", location="/again", schema=[])
        reader = now(metastore)
        assert r1.get_table("lake", "flights", **reader).location == "/again"
        assert missed(r1) == [MissReason.OTHER_TABLE]
        r1.catch_up()
        for _ in range(2):
            assert r1.get_table("lake", "flights", **reader).location == "/again"
        assert missed(r1) == [MissReason.NOT_CACHED]

    def test_two_tables_that_change_names(self, metastore: Metastore, r1: CachedStore) -> None:
        metastore.create_table("lake", "trains", location="/lake/trains", schema=[])
        change(metastore, "ops")
        r1.catch_up()
        r1.get_table("lake", "trains", **now(metastore, "trains"))
        missed(r1)
        for old, new in (("flights", "x"), ("trains", "flights"), ("x", "trains")):
            metastore.rename_table("lake", old, "lake", new)
        for name, location in (("flights", "/lake/trains"), ("trains", "/lake/flights")):
            assert r1.get_table("lake", name, **now(metastore, name)).location == location
        assert missed(r1) == [MissReason.OTHER_TABLE] * 2
        r1.catch_up()
        for name, location in (("flights", "/lake/trains"), ("trains", "/lake/flights")):
            assert r1.get_table("lake", name, **now(metastore, name)).location == location
        assert missed(r1) == []

    def test_without_a_table_id_write_ids_prove_nothing(self, metastore: Metastore, r1: CachedStore) -> None:
        metastore.create_table("lake", "trains", location="/lake/trains", schema=[])
        metastore.rename_table("lake", "flights", "lake", "x")
        metastore.rename_table("lake", "trains", "lake", "flights")
        write_ids = now(metastore)["valid_write_ids"]
        assert r1.get_table("lake", "flights", valid_write_ids=write_ids).location == "/lake/trains"
        assert missed(r1) == [MissReason.NO_TABLE_ID]


class TestWithoutWriteIds:
    def test_an_external_table_is_served_as_it_is_known(
        self, metastore: Metastore, replica: Callable[..., CachedStore]
    ) -> None:
        metastore.create_table("lake", "logs", location="/l", schema=[], table_type=EXTERNAL)
        store = replica(require_write_ids=True)
        store.updater.prewarm()
        metastore.alter_table("lake", "logs", location="/new")
        assert store.get_table("lake", "logs").location == "/l"
        store.catch_up()
        assert store.get_table("lake", "logs").location == "/new"
        assert missed(store) == []

    def test_a_managed_table_is_read_through(self, metastore: Metastore, r1: CachedStore) -> None:
        change(metastore, "ops")
        assert r1.get_table("lake", "flights").owner == "ops"
        assert missed(r1) == [MissReason.NO_WRITE_IDS]

    @pytest.mark.parametrize("cached", [True, False])
    def test_a_managed_table_is_refused_when_write_ids_are_required(
        self, replica: Callable[..., CachedStore], cached: bool
    ) -> None:
        store = replica(require_write_ids=True)
        if cached:
            store.updater.prewarm()
        with pytest.raises(InvalidInputError, match=r"lake\.flights is managed: a read has to say"):
            store.get_table("lake", "flights")
        assert store.get_table("lake", "flights", require_write_ids=False).name == "flights"


class TestMonotonicReads:
    def test_a_reader_sees_a_commit_at_another_replica_too(
        self, metastore: Metastore, replica: Callable[..., CachedStore]
    ) -> None:
        ahead, behind = replica("ahead"), replica("behind")
        for store in (ahead, behind):
            store.updater.prewarm()
        for number in range(5):
            change(metastore, str(number))
            ahead.catch_up()
            assert ahead.get_table("lake", "flights", **now(metastore)).owner == str(number)
            assert behind.get_table("lake", "flights", **now(metastore)).owner == str(number)
        assert missed(ahead) == []
        assert missed(behind) == [MissReason.STALE] * 5

    def test_a_session_sees_an_uncommitted_change_at_another_replica_too(
        self, metastore: Metastore, replica: Callable[..., CachedStore]
    ) -> None:
        metastore.create_table("lake", "logs", location="/l", schema=[], table_type=EXTERNAL)
        ahead, behind = replica("ahead"), replica("behind")
        for store in (ahead, behind):
            store.updater.prewarm()
        reader, session = now(metastore), ReaderSession()
        txn_id = metastore.open_txn("me", "here")
        change(metastore, "ops", txn_id)
        metastore.alter_table("lake", "logs", location="/new")
        ahead.catch_up()
        assert ahead.get_table("lake", "flights", **reader, session=session).owner == "ops"
        assert ahead.get_table("lake", "logs", session=session).location == "/new"
        assert behind.get_table("lake", "flights", **reader).owner is None
        assert behind.get_table("lake", "logs").location == "/l"
        assert missed(behind) == []
        assert behind.get_table("lake", "flights", **reader, session=session).owner == "ops"
        assert behind.get_table("lake", "logs", session=session).location == "/new"
        assert missed(behind) == [MissReason.BEHIND_SESSION] * 2
        behind.catch_up()
        assert behind.get_table("lake", "logs", session=session).location == "/new"
        assert missed(behind) == []


class TestDatabasesAndFunctions:
    def test_they_are_served_as_new_as_asked_for(self, metastore: Metastore, r1: CachedStore) -> None:
        metastore.create_function("lake", "shout", "com.example.Shout", resources=["/shout.jar"])
        for _ in range(2):
            at = metastore.read_snapshot([]).catalog_event_id
            assert at == metastore.current_event_id()
            assert r1.get_database("LAKE", catalog_event_id=at).location is None
            assert r1.get_function("lake", "Shout", catalog_event_id=at).resources == ("/shout.jar",)
            assert r1.list_functions("lake", catalog_event_id=at) == ["shout"]
            assert r1.list_databases(catalog_event_id=at) == ["default", "lake"]
        assert missed(r1) == [MissReason.NOT_CACHED]
        metastore.alter_database("lake", location="/lake")
        metastore.drop_function("lake", "shout")
        later = metastore.read_snapshot([]).catalog_event_id
        assert r1.get_database("lake", catalog_event_id=later).location == "/lake"
        assert r1.list_functions("lake", catalog_event_id=later) == []
        assert r1.list_databases(catalog_event_id=at) == ["default", "lake"]
        assert missed(r1) == [MissReason.BEHIND_CATALOG] * 2
        r1.catch_up()
        for _ in range(2):
            assert r1.get_database("lake", catalog_event_id=later).location == "/lake"
            with pytest.raises(NoSuchObjectError):
                r1.get_function("lake", "shout", catalog_event_id=later)
        assert missed(r1) == [MissReason.NOT_CACHED]

    def test_changes_of_tables_do_not_disturb_them(self, metastore: Metastore, r1: CachedStore) -> None:
        r1.get_database("lake", catalog_event_id=0)
        missed(r1)
        change(metastore, "ops")
        assert r1.get_database("lake", catalog_event_id=metastore.read_snapshot([]).catalog_event_id).id > 0
        assert missed(r1) == []

    def test_without_an_event_they_are_read_through_or_a_moment_late(
        self, metastore: Metastore, r1: CachedStore, replica: Callable[..., CachedStore]
    ) -> None:
        assert r1.list_databases() == ["default", "lake"]
        assert missed(r1) == [MissReason.NO_CATALOG_EVENT]
        late = replica("late", eventual_databases=True)
        late.list_databases()
        metastore.create_database("mart")
        assert late.list_databases() == ["default", "lake"]
        assert r1.list_databases() == ["default", "lake", "mart"]
        late.catch_up()
        assert late.list_databases() == ["default", "lake", "mart"]


class TestMemory:
    def test_the_least_recently_used_copy_is_evicted_first(
        self, metastore: Metastore, replica: Callable[..., CachedStore]
    ) -> None:
        names = [f"t{number}" for number in range(4)]
        for name in names:
            metastore.create_table("lake", name, location="/t", schema=[Column("id", "int")])
        one = replica("measure")
        one.get_table("lake", "t0")
        store = replica(max_bytes=int(one.statistics().bytes * 3.5))
        readers = {name: now(metastore, name) for name in names}
        for name in ("t0", "t1", "t2", "t0", "t3", "t0", "t2", "t3"):
            store.get_table("lake", name, **readers[name])
        assert missed(store) == [MissReason.NOT_CACHED] * 4
        assert store.statistics().evicted == 1
        store.get_table("lake", "t1", **readers["t1"])
        assert missed(store) == [MissReason.NOT_CACHED]

    def test_partitions_count(self, metastore: Metastore, r1: CachedStore) -> None:
        before = r1.statistics().bytes
        specs = [PartitionSpec(("2013", str(number)), f"/lake/{number}") for number in range(100)]
        metastore.add_partitions("lake", "flights", specs)
        r1.catch_up()
        assert r1.statistics().bytes > before + 100 * 200
        metastore.drop_partitions("lake", "flights", [spec.values for spec in specs])
        r1.catch_up()
        assert r1.statistics().bytes <= before + 200

    def test_databases_and_functions_count(
        self, metastore: Metastore, replica: Callable[..., CachedStore]
    ) -> None:
        for number in range(50):
            metastore.create_function("lake", f"f{number}", "org.example.F", resources=["/f.jar"])
        names = [f"t{number}" for number in range(20)]
        for name in names:
            metastore.create_table("lake", name, location="/t", schema=[Column("id", "int")])
        at = metastore.read_snapshot([]).catalog_event_id
        measure = replica("measure")
        measure.get_database("lake", catalog_event_id=at)
        catalog = measure.statistics().bytes
        assert catalog > 50 * 200
        measure.updater.prewarm()
        whole = measure.statistics().bytes
        store = replica(max_bytes=whole - 1_000)
        store.updater.prewarm()
        assert store.statistics().tables == 21
        store.get_database("lake", catalog_event_id=at)
        statistics = store.statistics()
        assert statistics.evicted > 0
        assert catalog < statistics.bytes <= whole - 1_000
        for name in names:
            store.get_table("lake", name, **now(metastore, name))
            assert store.statistics().bytes <= whole - 1_000
        missed(store)
        store.get_database("lake", catalog_event_id=at)
        assert missed(store) == []
        metastore.create_database("mart")
        store.catch_up()
        assert store.statistics().bytes < whole - catalog
        small = replica("small", max_bytes=catalog - 1)
        for _ in range(2):
            assert small.get_database("lake", catalog_event_id=at).name == "lake"
        assert missed(small) == [MissReason.NOT_CACHED] * 2

    def test_a_table_larger_than_all_memory_is_read_through(
        self, metastore: Metastore, replica: Callable[..., CachedStore]
    ) -> None:
        store = replica(max_bytes=100)
        for _ in range(2):
            assert store.get_table("lake", "flights", **now(metastore)).name == "flights"
        assert missed(store) == [MissReason.NOT_CACHED] * 2


class TestLife:
    def test_a_thread_follows_the_log(self, metastore: Metastore, url: str) -> None:
        store = open_cached_store(url, "r1", poll_interval=0.01)
        change(metastore, "ops")
        assert store.catch_up(timeout=300) == metastore.current_event_id()
        assert [(one.name, one.event_id) for one in metastore.consumers()] == [
            ("r1", metastore.current_event_id())
        ]
        reader = now(metastore)
        store.get_table("lake", "flights", **reader)
        hits = store.statistics().hits
        assert store.get_table("lake", "flights", **reader).owner == "ops"
        assert store.statistics().hits == hits + 1
        store.close()
        assert not [one for one in threading.enumerate() if one.name == "replica-r1"]
        assert [one.name for one in metastore.consumers()] == ["r1"]

    def test_a_replica_that_does_not_follow_the_log_keeps_nothing(
        self, metastore: Metastore, url: str
    ) -> None:
        metastore.create_table("lake", "logs", location="/l", schema=[], table_type=EXTERNAL)
        store = CachedStore(open_metastore(url), "r1")

        def read() -> tuple[str, int]:
            store.list_databases(catalog_event_id=0)
            return store.get_table("lake", "logs").location, len(missed(store))

        assert [read(), read()] == [("/l", 2)] * 2
        store.updater.begin()
        assert [read(), read()] == [("/l", 2), ("/l", 0)]
        store.close()
        metastore.alter_table("lake", "logs", location="/new")
        assert [read(), read()] == [("/new", 2)] * 2
        store.close()

    def test_people_see_what_it_has_answered(self, metastore: Metastore, r1: CachedStore, url: str) -> None:
        r1.get_table("lake", "flights", **now(metastore))
        r1.get_partitions("lake", "flights", **now(metastore))
        r1.get_table("lake", "flights")  # managed, and without write ids
        r1.catch_up(timeout=300)
        [told] = metastore.consumers()
        assert (told.hits, told.misses) == (2, 1)
        with served(ServiceOptions(url, port=0), housekeeping=False) as server:
            client = open_metastore(f"thrift://127.0.0.1:{server.port}")
            [told] = client.consumers()
            client.close()
        assert (told.hits, told.misses) == (2, 1)

    def test_a_replica_that_comes_back_begins_at_the_logs_end(
        self, metastore: Metastore, replica: Callable[..., CachedStore]
    ) -> None:
        replica("r1").close()
        change(metastore, "ops")
        again = replica("r1")
        assert again.statistics().event_id == metastore.current_event_id()
        assert metastore.consumers()[0].event_id == metastore.current_event_id()

    def test_a_replica_that_fell_out_of_the_log_begins_anew(
        self, metastore: Metastore, url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        store = CachedStore(open_metastore(url), "r1", poll_interval=0.01)
        store.updater.begin()
        store.updater.prewarm()
        metastore.unregister_consumer("r1")
        change(metastore, "ops")
        metastore.purge_events(-1)
        store.updater.start()
        assert store.catch_up(timeout=300) == 6
        change(metastore, "dev")
        metastore.unregister_consumer("r1")
        deadline = time.monotonic() + 300
        while not metastore.consumers() and time.monotonic() < deadline:
            time.sleep(0.01)
        store.catch_up(timeout=300)
        assert store.get_table("lake", "flights", **now(metastore)).owner == "dev"
        store.close()
        assert "begins anew: no consumer 'r1'" in caplog.text

    def test_a_wait_for_an_event_that_does_not_come_ends(self, r1: CachedStore) -> None:
        with pytest.raises(MetastoreError, match=r"'r1' is at event 2, not at 99 after 0.2 s"):
            r1.catch_up(99, timeout=0.2)

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"max_megabytes": 0}, "a cache of 0 MB"),
            ({"poll_interval": 0}, "poll interval 0 s"),
            ({"expiry_seconds": 1}, "expiry 1 s"),
        ],
    )
    def test_options_that_cannot_be(self, url: str, options: dict[str, float], said: str) -> None:
        with pytest.raises(InvalidInputError, match=said):
            open_cached_store(url, "r1", **options)  # type: ignore[arg-type]
