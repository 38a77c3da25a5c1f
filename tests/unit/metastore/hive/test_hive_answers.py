"""Hive's additions to its clients' objects, its checks, and its answers, on a socket."""

from __future__ import annotations

import base64
import gzip
import json
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from pysasl.hashing import BuiltinHash
from sqlalchemy import text
from thriftpy2.rpc import make_client
from thriftpy2.transport import TSocket, TTransportException

from airflow_provider.exceptions import InvalidInputError, MetastoreError, MetastoreUnavailableError
from airflow_provider.metastore import Metastore, open_metastore
from airflow_provider.metastore.api import Housekeeper
from airflow_provider.metastore.thrift.protocol import hive
from airflow_provider.metastore.thrift.protocol.sasl import SaslPlain, password_digest
from airflow_provider.metastore.thrift.server.limits import ServerLimits
from airflow_provider.metastore.thrift.server.serve import ServiceOptions, serving
from airflow_provider.metastore.thrift.server.server import MetastoreServer
from tests.unit.metastore.thrift.test_thrift_server import table

Serve = Callable[..., MetastoreServer]


@pytest.fixture
def serve(by_database: Metastore) -> Iterator[Serve]:
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(
            serving(by_database, ServiceOptions("", port=0, **options), housekeeping=False)
        )


@pytest.fixture
def connect() -> Iterator[Callable[[MetastoreServer], Any]]:
    with ExitStack() as stack:

        def connect(server: MetastoreServer) -> Any:
            opened = make_client(hive.ThriftHiveMetastore, "127.0.0.1", server.port, timeout=10_000)
            stack.callback(opened.close)
            return opened

        yield connect


@pytest.fixture
def client(serve: Serve, connect: Callable[[MetastoreServer], Any]) -> Any:
    return connect(serve())


class TestTables:
    def test_skewed_values_are_kept(self, client: Any, by_database: Metastore) -> None:
        described = table()
        described.sd.skewedInfo = hive.SkewedInfo(
            skewedColNames=["id", "ünïcode"], skewedColValues=[["1", "é"], ["2", ""]]
        )
        client.create_table(described)
        found = client.get_table("lake", "places").sd.skewedInfo
        assert (found.skewedColNames, found.skewedColValues) == (["id", "ünïcode"], [["1", "é"], ["2", ""]])
        # A client that alters the table sends them back.
        changed = client.get_table("lake", "places")
        changed.parameters["k"] = "v"
        client.alter_table("lake", "places", changed)
        assert client.get_table("lake", "places").sd.skewedInfo == found

    def test_a_type_that_hive_does_not_know_is_refused(self, client: Any) -> None:
        client.create_table(table("kept"))
        wrong = table()
        wrong.sd.cols = [
            hive.FieldSchema(name="id", type="array<int>"),
            hive.FieldSchema(name="v", type="nosuch"),
        ]
        with pytest.raises(hive.InvalidObjectException, match="Invalid column type: nosuch, of column 'v'"):
            client.create_table(wrong)
        changed = client.get_table("lake", "kept")
        changed.sd.cols = wrong.sd.cols
        with pytest.raises(hive.InvalidOperationException, match="Invalid column type: nosuch"):
            client.alter_table("lake", "kept", changed)
        assert client.get_all_tables("lake") == ["flights", "kept"]

    def test_the_time_of_the_last_change_is_a_parameter(self, client: Any) -> None:
        before = int(time.time())
        client.create_table(table())
        changed = client.get_table("lake", "places")
        assert before <= int(changed.parameters.pop("transient_lastDdlTime")) <= time.time()
        changed.parameters["transient_lastDdlTime"] = "17"
        client.alter_table("lake", "places", changed)
        assert client.get_table("lake", "places").parameters["transient_lastDdlTime"] == "17"
        place = {"dbName": "lake", "tableName": "places"}
        added = client.add_partition(hive.Partition(values=["2013"], **place))
        assert int(added.parameters["transient_lastDdlTime"]) >= before

    def test_everything_is_in_hives_catalog(self, client: Any, by_database: Metastore) -> None:
        client.create_table(table())
        place = {"dbName": "lake", "tableName": "places"}
        by_database.create_function("lake", "f", "a.B")
        told = [
            client.get_table("lake", "places"),
            client.add_partition(hive.Partition(values=["2013"], **place)),
            client.get_function("lake", "f"),
            *client.get_table_meta("lake", "places", []),
        ]
        assert [one.catName for one in told] == ["hive"] * 4
        assert '"17": {"str": "hive"}' in json.dumps(
            json.loads(by_database.next_events(2)[0].message["tableObjJson"])
        )
        by_database.open_txn("me", "here")
        events = client.get_next_notification(hive.NotificationEventRequest(lastEvent=0)).events
        catalogs = {one.eventType: one.catName for one in events}
        assert catalogs["CREATE_TABLE"] == catalogs["CREATE_FUNCTION"] == "hive"
        assert catalogs["OPEN_TXN"] is None

    def test_an_external_table_becomes_a_managed_one_and_back(self, client: Any) -> None:
        client.create_table(table(parameters={"EXTERNAL": "TRUE"}))
        for external, kind in (("FALSE", "MANAGED_TABLE"), ("TRUE", "EXTERNAL_TABLE")):
            found = client.get_table("lake", "places")
            found.parameters["EXTERNAL"] = external
            client.alter_table("lake", "places", found)
            assert client.get_table("lake", "places").tableType == kind

    def test_a_table_that_is_sent_back_as_it_came_is_not_changed(
        self, client: Any, by_database: Metastore
    ) -> None:
        client.create_table(table())
        before = by_database.current_event_id()
        client.alter_table("lake", "places", client.get_table("lake", "places"))
        assert by_database.current_event_id() == before

    def test_tables_are_asked_for_by_names_and_a_pattern(self, client: Any) -> None:
        client.create_table(table())

        def found(**request: Any) -> list[str]:
            asked = hive.GetTablesRequest(**{"dbName": "lake", **request})
            return [one.tableName for one in client.get_table_objects_by_name_req(asked).tables]

        assert found(tablesPattern="p*") == ["places"]
        assert found(tblNames=["places", "flights"], tablesPattern="f*") == ["flights"]
        with pytest.raises(hive.InvalidOperationException, match="give tblNames or tablesPattern"):
            found()
        with pytest.raises(hive.UnknownDBException, match="nowhere"):
            found(dbName="nowhere", tblNames=["places"])

    def test_databases_by_a_pattern_with_the_catalog_as_java_clients_send_it(self, client: Any) -> None:
        every = ["default", "lake"]
        for pattern in ("@hive#.*", "@hive#*", "@hive#", ".*", "*"):
            assert client.get_databases(pattern) == every
        assert client.get_databases("@hive#l*") == ["lake"]
        assert client.get_databases("@hive#!") == []

    def test_a_type_of_table_that_is_none_is_refused(self, client: Any) -> None:
        with pytest.raises(hive.MetaException, match="'NOPE' is no type of a table"):
            client.get_tables_by_type("lake", "*", "NOPE")

    def test_a_projection_of_tables_is_obeyed(self, client: Any) -> None:
        client.create_table(table(parameters={"keep": "1", "drop": "2"}))
        wanted = hive.GetProjectionsSpec(
            fieldList=["tableName", "sd.location", "parameters"], includeParamKeyPattern="k%"
        )
        request = hive.GetTablesRequest(dbName="lake", tblNames=["places"], projectionSpec=wanted)
        [found] = client.get_table_objects_by_name_req(request).tables
        assert (found.tableName, found.sd.location) == ("places", "/lake/places")
        assert (found.parameters, found.owner, found.sd.cols) == ({"keep": "1"}, None, None)


def test_only_a_transaction_asks_for_a_lock_without_waiting(client: Any) -> None:
    def asked(kind: int, txn_id: int | None = None) -> Any:
        component = hive.LockComponent(
            type=kind, level=hive.LockLevel.TABLE, dbname="lake", tablename="flights"
        )
        request = hive.LockRequest(component=[component], txnid=txn_id, user="me", hostname="here")
        request.zeroWaitReadEnabled = kind == hive.LockType.SHARED_READ
        return client.lock(request)

    asked(hive.LockType.EXCLUSIVE)
    assert asked(hive.LockType.SHARED_READ).state == hive.LockState.WAITING
    request = hive.OpenTxnRequest(num_txns=1, user="me", hostname="here")
    [txn_id] = client.open_txns(request).txn_ids
    assert asked(hive.LockType.SHARED_READ, txn_id).state == hive.LockState.NOT_ACQUIRED


def test_write_ids_as_of_one_of_them(client: Any, by_database: Metastore) -> None:
    earlier, mine, later = [by_database.open_txn("me", "here") for _ in range(3)]
    for txn_id in (earlier, mine, later):
        by_database.allocate_table_write_id(txn_id, "lake", "flights")
    by_database.commit_txn(later)
    request = hive.GetValidWriteIdsRequest(fullTableNames=["lake.flights"], writeId=2)
    [found] = client.get_valid_write_ids(request).tblValidWriteIds
    assert (found.writeIdHighWaterMark, found.invalidWriteIds) == (2, [1])
    request.writeId = 9
    with pytest.raises(hive.MetaException, match="no transaction has write id 9"):
        client.get_valid_write_ids(request)


class TestEvents:
    def test_write_ids_have_the_type_that_hives_consumers_know(
        self, serve: Serve, connect: Callable[[MetastoreServer], Any], by_database: Metastore
    ) -> None:
        server = serve()
        txn_id = by_database.open_txn("me", "here")
        by_database.allocate_table_write_id(txn_id, "lake", "flights")
        request = hive.NotificationEventRequest(lastEvent=2)
        client = connect(server)
        assert [one.eventType for one in client.get_next_notification(request).events] == [
            "OPEN_TXN",
            "ALLOC_WRITE_ID_EVENT",
        ]
        request.eventTypeSkipList = ["ALLOC_WRITE_ID_EVENT"]
        assert [one.eventType for one in client.get_next_notification(request).events] == ["OPEN_TXN"]
        ours = open_metastore(f"thrift://127.0.0.1:{server.port}")
        assert ours.next_events(2) == by_database.next_events(2)
        assert ours.next_events(2, event_types=["OPEN_TXN"]) == by_database.next_events(2, 1)
        ours.close()

    def test_messages_are_zipped_by_option(
        self, serve: Serve, connect: Callable[[MetastoreServer], Any], by_database: Metastore
    ) -> None:
        server = serve(message_format="gzip(json-2.0)")
        [told] = connect(server).get_next_notification(hive.NotificationEventRequest(lastEvent=1)).events
        assert told.messageFormat == "gzip(json-2.0)"
        message = json.loads(gzip.decompress(base64.b64decode(told.message)))
        [known] = by_database.next_events(1)
        assert message == known.message
        ours = open_metastore(f"thrift://127.0.0.1:{server.port}")
        assert [one.message for one in ours.next_events(1)] == [known.message]
        ours.close()
        with pytest.raises(InvalidInputError, match="'xml'"):
            serve(message_format="xml")


class TestTransactions:
    def test_lists_of_open_ones_ask_the_database_once(
        self, client: Any, by_database: Metastore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        aborted, opened, _ = [by_database.open_txn("me", "here") for _ in range(3)]
        by_database.abort_txn(aborted)
        asked: list[object] = []
        read = by_database.sql.read
        monkeypatch.setattr(
            by_database.sql, "read", lambda *given, **how: asked.append(given) or read(*given, **how)
        )
        infos = client.get_open_txns_info().open_txns
        assert [(one.id, one.state) for one in infos[:2]] == [
            (aborted, hive.TxnState.ABORTED),
            (opened, hive.TxnState.OPEN),
        ]
        assert len(asked) == 1
        request = hive.GetOpenTxnsRequest(excludeTxnTypes=[hive.TxnType.READ_ONLY])
        assert len(client.get_open_txns_req(request).open_txns) == 3
        assert len(asked) == 2
        request = hive.GetOpenTxnsRequest(excludeTxnTypes=[hive.TxnType.DEFAULT])
        assert client.get_open_txns_req(request).open_txns == [aborted]
        assert len(asked) == 4

    def test_a_batch_is_told_by_one_event(self, client: Any, by_database: Metastore) -> None:
        before = by_database.current_event_id()
        request = hive.OpenTxnRequest(num_txns=3, user="me", hostname="here")
        opened = client.open_txns(request).txn_ids
        assert opened == [opened[0], opened[0] + 1, opened[0] + 2]
        [told] = by_database.next_events(before)
        expected = {"txnIds": opened, "fromTxnId": opened[0], "toTxnId": opened[2]}
        assert {name: told.message[name] for name in expected} == expected
        assert by_database.open_txn("me", "here") == opened[2] + 1

    def test_aborted_ones_without_a_write_are_forgotten_after_a_day(self, by_database: Metastore) -> None:
        empty, recent, wrote, still_open = [by_database.open_txn("me", "here") for _ in range(4)]
        by_database.allocate_table_write_id(wrote, "lake", "flights")
        for txn_id in (empty, wrote):
            by_database.abort_txn(txn_id)
        with by_database.sql._engine.begin() as connection:
            connection.execute(text("UPDATE metastore_txns SET closed_at = closed_at - 90000000"))
        by_database.abort_txn(recent)
        Housekeeper(by_database, event_ttl=None, timeout_seconds=1e9).keep_house()
        snapshot = by_database.valid_txn_list()
        assert snapshot.exceptions == (recent, wrote, still_open)
        # Its write id may be in files.
        assert by_database.valid_write_id_list("lake", "flights").aborted == {1}
        assert by_database.open_txn("me", "here") == still_open + 1


class TestWhatClientsLearn:
    def test_an_error_of_the_database_names_no_place(
        self,
        client: Any,
        by_database: Metastore,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        def away(*asked: object, **options: object) -> None:
            raise MetastoreUnavailableError("metastore postgresql://me@secret/db is away", of_database=True)

        monkeypatch.setattr(type(by_database.sql), "read", away)
        with pytest.raises(hive.MetaException) as raised:
            client.get_all_databases()
        assert "secret" not in str(raised.value)
        assert "cannot be used now" in raised.value.message
        assert "secret" in caplog.text

    def test_the_engine_marks_its_errors(self, by_database: Metastore) -> None:
        with pytest.raises(MetastoreError) as raised:
            by_database.sql.read(lambda connection: connection.execute(text("SELECT nothing")))
        assert raised.value.details["of_database"]

    def test_a_methods_name_forges_no_line_of_the_log(
        self, serve: Serve, caplog: pytest.LogCaptureFixture
    ) -> None:
        name = b"x\n2026-01-01 INFO forged"
        server = serve()
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as opened:
            opened.sendall(
                b"\x80\x01\x00\x01" + len(name).to_bytes(4, "big") + name + b"\x00\x00\x00\x01\x00"
            )
            assert b"Invalid method name" in opened.recv(1_000)
        [line] = [one for one in caplog.messages if "forged" in one]
        assert "\n" not in line

    @pytest.mark.parametrize("user", ["ann", "nobody"])
    def test_a_user_who_is_unknown_costs_as_much_as_a_wrong_password(
        self, user: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        authenticate = SaslPlain({"ann": password_digest("right")})
        looked_at: list[object] = []
        verify = BuiltinHash.verify
        monkeypatch.setattr(
            BuiltinHash, "verify", lambda own, *given: looked_at.append(given) or verify(own, *given)
        )
        ours, theirs = socket.socketpair()
        with ours, theirs:
            response = b"\0" + user.encode() + b"\0wrong"
            for status, payload in ((1, b"PLAIN"), (2, response)):
                theirs.sendall(struct.pack(">BI", status, len(payload)) + payload)
            with pytest.raises(TTransportException, match="not let in"):
                authenticate(TSocket(sock=ours))
        assert len(looked_at) == 1


class TestConnections:
    def test_more_than_allowed_are_refused_until_one_is_closed(
        self, serve: Serve, connect: Callable[[MetastoreServer], Any], caplog: pytest.LogCaptureFixture
    ) -> None:
        server = serve(limits=ServerLimits(connections=2))
        first, second = connect(server), connect(server)
        for one in (first, second):
            one.getStatus()
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as third:
            assert third.recv(1) == b""
        assert "--max-connections" in caplog.text
        first.close()
        until = time.monotonic() + 30
        while True:
            try:
                assert connect(server).getStatus() == hive.fb_status.ALIVE
                break
            except (OSError, EOFError, TTransportException):
                assert time.monotonic() < until
                time.sleep(0.05)

    def test_one_that_says_nothing_is_closed(self, serve: Serve) -> None:
        server = serve(limits=ServerLimits(idle_seconds=1))
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as silent:
            assert silent.recv(1) == b""

    def test_the_system_looks_for_dead_clients(
        self, serve: Serve, connect: Callable[[MetastoreServer], Any]
    ) -> None:
        server = serve()
        connect(server).getStatus()
        [held] = server._open
        assert held.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert held.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
