"""Readers' arguments on the wire, and a server's options for them, with replicas of different positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from thriftpy2.rpc import make_client

from airflow_provider.exceptions import WriteIdsRequiredError
from airflow_provider.metastore import CachedStore, Column, Metastore, MissReason, ReaderSession
from airflow_provider.metastore.cache.cache_updater import CacheUpdater
from airflow_provider.metastore.thrift.client.client import ThriftMetastore
from airflow_provider.metastore.thrift.protocol.idl import hive
from airflow_provider.metastore.thrift.server.serve import ServiceOptions, served, serving
from airflow_provider.metastore.thrift.server.server import MetastoreServer
from tests.unit.metastore.cache.cached import add, change, missed, now

EXTERNAL = "EXTERNAL_TABLE"
Serve = Callable[..., MetastoreServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A function that serves a metastore or a replica: ``serve(store, **options)``."""
    with ExitStack() as stack:

        def serve(store: Metastore | CachedStore, **options: Any) -> MetastoreServer:
            given = ServiceOptions(store.url if isinstance(store, Metastore) else "", port=0, **options)
            return stack.enter_context(serving(store, given, housekeeping=False))

        yield serve


@pytest.fixture
def client() -> Iterator[Callable[..., ThriftMetastore]]:
    """A client of this package for some servers."""
    with ExitStack() as stack:

        def client(*servers: MetastoreServer) -> ThriftMetastore:
            places = ",".join(f"127.0.0.1:{one.port}" for one in servers)
            opened = ThriftMetastore(f"thrift://{places}", timeout_seconds=60)
            stack.callback(opened.close)
            return opened

        yield client


@pytest.fixture
def raw() -> Iterator[Callable[[MetastoreServer], Any]]:
    """Requests, as another client sends them."""
    with ExitStack() as stack:

        def raw(server: MetastoreServer) -> Any:
            opened = make_client(hive.ThriftHiveMetastore, "127.0.0.1", server.port, timeout=10_000)
            stack.callback(opened.close)
            return opened

        yield raw


READS: dict[str, Callable[..., object]] = {
    "table": lambda metastore, **reader: metastore.get_table("lake", "flights", **reader).owner,
    "partitions": lambda metastore, **reader: metastore.get_partitions("lake", "flights", **reader),
    "filter": lambda metastore, **reader: metastore.get_partitions_by_filter(
        "lake", "flights", "month > 1", **reader
    ),
    "partition": lambda metastore, **reader: (
        metastore.get_partition("lake", "flights", ("2013", "1"), **reader).location
    ),
}


class TestMonotonicReads:
    """One reader with one write id list asks a replica that is ahead, then one that is behind."""

    @pytest.fixture(params=[True, False])
    def pair(
        self, request: pytest.FixtureRequest, by_database: Metastore, replica: Callable[..., CachedStore]
    ) -> list[CachedStore]:
        """Two replicas, with and without the option to serve newer copies than the reader asks for."""
        add(by_database, "1")
        stores = [replica(name, serve_newer=request.param) for name in ("ahead", "behind")]
        for store in stores:
            store.updater.prewarm()
        return stores

    @pytest.mark.parametrize("ask", READS)
    @pytest.mark.parametrize("ends", [None, "commit", "abort"])
    def test_our_client_never_sees_less(
        self,
        by_database: Metastore,
        pair: list[CachedStore],
        serve: Serve,
        client: Callable[..., ThriftMetastore],
        ask: str,
        ends: str | None,
    ) -> None:
        ahead, behind = pair
        servers, read, reader = [serve(one) for one in pair], READS[ask], now(by_database)
        old = read(by_database)
        txn_id = by_database.open_txn("me", "here")
        change(by_database, "ops", txn_id)
        add(by_database, "2", txn_id)
        by_database.alter_partition("lake", "flights", ("2013", "1"), location="/new", txn_id=txn_id)
        if ends is not None:
            getattr(by_database, f"{ends}_txn")(txn_id)
        ahead.catch_up()
        new = read(by_database)
        assert new != old
        ours = client(*servers)
        assert read(ours, **reader) == new
        servers[0].stop()
        ours.close()
        missed(behind)
        assert read(ours, **reader) == new
        assert set(missed(behind)) == {MissReason.BEHIND_SESSION}
        # A reader that has seen nothing yet gets an answer for its snapshot, like a reader without a session.
        assert read(client(servers[1]), **reader) == old
        assert missed(behind) == []

    def test_a_reader_without_a_session_goes_back(
        self, by_database: Metastore, pair: list[CachedStore], serve: Serve, raw: Callable[..., Any]
    ) -> None:
        """By the document only changes committed before the snapshot stay visible; others may vanish."""
        ahead, behind = [raw(serve(one)) for one in pair]
        change(by_database, "seen")
        for store in pair:
            store.catch_up()
        reader = now(by_database)
        request = hive.GetTableRequest(
            dbName="lake",
            tblName="flights",
            validWriteIdList=str(reader["valid_write_ids"]),
            id=reader["table_id"],
        )
        change(by_database, "later")
        pair[0].catch_up()
        assert ahead.get_table_req(request).table.owner == "later"
        answer = behind.get_table_req(request)
        assert (answer.table.owner, answer.eventId) == ("seen", None)

    def test_a_session_goes_from_client_to_client(
        self,
        by_database: Metastore,
        pair: list[CachedStore],
        serve: Serve,
        client: Callable[..., ThriftMetastore],
    ) -> None:
        first, second = [client(serve(one)) for one in pair]
        reader, session = now(by_database), ReaderSession()
        change(by_database, "ops")
        pair[0].catch_up()
        assert first.get_table("lake", "flights", **reader, session=session).owner == "ops"
        assert second.get_table("lake", "flights", **reader).owner is None
        assert second.get_table("lake", "flights", **reader, session=session).owner == "ops"
        assert session.event_id == by_database.current_event_id()


class TestEventualReads:
    def test_external_tables_come_late_and_never_go_back_for_our_client(
        self,
        by_database: Metastore,
        replica: Callable[..., CachedStore],
        serve: Serve,
        client: Callable[..., ThriftMetastore],
    ) -> None:
        by_database.create_table("lake", "logs", location="/old", schema=[], table_type=EXTERNAL)
        stores = [replica(name) for name in ("ahead", "behind")]
        for store in stores:
            store.updater.prewarm()
        ahead, behind = [serve(one, eventual_reads=True) for one in stores]
        ours, other = client(ahead, behind), client(behind)
        by_database.alter_table("lake", "logs", location="/new")
        assert ours.get_table("lake", "logs").location == "/old"
        stores[0].catch_up()
        assert ours.get_table("lake", "logs").location == "/new"
        ahead.stop()
        ours.close()
        assert other.get_table("lake", "logs").location == "/old"
        assert ours.get_table("lake", "logs").location == "/new"
        # A client that changes the table begins with the present state, and sees its change.
        assert other.alter_table("lake", "logs", owner="me").location == "/new"
        assert other.get_table("lake", "logs").owner == "me"

    @pytest.mark.parametrize(
        ("options", "table", "database"),
        [
            ({}, "/new", ["default", "lake", "mart"]),
            ({"eventual_reads": True}, "/old", ["default", "lake", "mart"]),
            ({"eventual_databases": True}, "/new", ["default", "lake"]),
        ],
    )
    def test_tables_and_databases_have_an_option_each(
        self,
        by_database: Metastore,
        url: str,
        raw: Callable[..., Any],
        options: dict[str, bool],
        table: str,
        database: list[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        by_database.create_table("lake", "logs", location="/old", schema=[], table_type=EXTERNAL)
        # The replica neither fills its memory by itself nor follows the log: it keeps what this client reads.
        monkeypatch.setattr(CacheUpdater, "prewarm", lambda updater: 0)
        monkeypatch.setattr(CacheUpdater, "step", lambda updater, limit=1: 0)
        given = ServiceOptions(url, port=0, replica="r1", **options)
        with served(given, housekeeping=False) as server:
            client = raw(server)
            client.get_all_databases()
            client.get_table("lake", "logs")
            by_database.alter_table("lake", "logs", location="/new")
            by_database.create_database("mart")
            assert client.get_table("lake", "logs").sd.location == table
            assert client.get_all_databases() == database


class TestRequiredWriteIds:
    """A server that refuses ``get_table_req`` of managed tables without a write id list."""

    @pytest.fixture(params=["database", "replica"])
    def strict(self, request: pytest.FixtureRequest, r1: CachedStore, serve: Serve) -> MetastoreServer:
        return serve(r1 if request.param == "replica" else r1.metastore, require_write_ids=True)

    def test_requests_that_have_the_field_have_to_fill_it(
        self, by_database: Metastore, strict: MetastoreServer, raw: Callable[..., Any]
    ) -> None:
        client = raw(strict)
        for method, request in {
            "get_table_req": hive.GetTableRequest(dbName="lake", tblName="flights"),
            "get_fields_req": hive.GetFieldsRequest(dbName="lake", tblName="flights"),
            "get_partitions_req": hive.PartitionsRequest(dbName="lake", tblName="flights"),
        }.items():
            with pytest.raises(hive.MetaException, match=r"lake\.flights is managed"):
                getattr(client, method)(request)
            reader = now(by_database)
            request.validWriteIdList, request.id = str(reader["valid_write_ids"]), reader["table_id"]
            getattr(client, method)(request)
        assert client.get_table("lake", "flights").tableName == "flights"
        assert client.get_partitions("lake", "flights", -1) == []
        by_database.create_table("lake", "logs", location="/l", schema=[], table_type=EXTERNAL)
        request = hive.GetTableRequest(dbName="lake", tblName="logs")
        assert client.get_table_req(request).table.tableName == "logs"

    def test_our_client_does(
        self, by_database: Metastore, strict: MetastoreServer, client: Callable[..., ThriftMetastore]
    ) -> None:
        ours = client(strict)
        assert ours.get_table("lake", "flights") == by_database.get_table("lake", "flights")
        made = ours.create_table("lake", "made", location="/m", schema=[Column("id", "int")])
        assert made == by_database.get_table("lake", "made")
        assert ours.alter_table("lake", "made", owner="ops").owner == "ops"
        add(ours, "1")
        assert [one.values for one in ours.get_partitions("lake", "flights")] == [("2013", "1")]
        assert ours.get_partition("lake", "flights", ("2013", "1")).location == "/lake/flights/1"
        assert len(ours.get_partitions_by_filter("lake", "flights", "month = 1")) == 1
        assert ours.rename_table("lake", "made", "lake", "renamed").name == "renamed"
        ours.create_table("lake", "logs", location="/l", schema=[], table_type=EXTERNAL)

    def test_a_replica_refuses_a_table_in_its_memory_too(self, replica: Callable[..., CachedStore]) -> None:
        store = replica(require_write_ids=True)
        store.updater.prewarm()
        with pytest.raises(WriteIdsRequiredError):
            store.get_table("lake", "flights")
