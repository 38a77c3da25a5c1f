"""Features of the Thrift client alone: its URL, errors on the wire, and limits of the protocol."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from thriftpy2.rpc import make_client

from airflow_provider import exceptions
from airflow_provider.exceptions import (
    EventsExpiredError,
    InvalidInputError,
    TableServiceError,
    UnsupportedByServerError,
)
from airflow_provider.metastore import AnyMetastore, Column, Metastore, PartitionSpec
from airflow_provider.metastore.thrift.client.client import ThriftMetastore
from airflow_provider.metastore.thrift.protocol.errors import from_hive, in_hive
from airflow_provider.metastore.thrift.protocol.idl import hive
from airflow_provider.metastore.thrift.url import Server, ThriftUrl, parse_thrift_url
from tests.unit.metastore.thrift.test_thrift_server import table as hives_table

by_server = pytest.mark.parametrize("metastore", ["server"], indirect=True)
ERRORS = [
    kind
    for kind in vars(exceptions).values()
    if isinstance(kind, type) and issubclass(kind, TableServiceError)
]


@pytest.fixture
def raw(metastore: ThriftMetastore) -> Iterator[Any]:
    """Requests as another client would send them."""
    [server] = parse_thrift_url(metastore.url).servers
    opened = make_client(hive.ThriftHiveMetastore, server.host, server.port, timeout=10_000)
    yield opened
    opened.close()


class TestUrls:
    def test_all_of_it(self) -> None:
        text = "thrift://a%40b:p%3Aw%2F%3F@127.0.0.1,[::1]:1?tls=on&tls_ca=/c%26a.pem&tls_key=/k&tls_certificate=/c"
        url = parse_thrift_url(text)
        assert url.servers == (Server("127.0.0.1", 9083), Server("::1", 1))
        assert (url.username, url.password) == ("a@b", "p:w/?")
        assert (url.tls, url.tls_ca, url.tls_certificate, url.tls_key) == ("on", "/c&a.pem", "/c", "/k")
        assert parse_thrift_url(url.render_as_string(hide_password=False)) == url
        assert "p:w" not in f"{url} {url!r}"
        assert str(url).startswith("thrift://a%40b:***@127.0.0.1:9083,[::1]:1?tls=on")

    def test_fields_outside_of_the_url_are_used(self) -> None:
        url = parse_thrift_url("thrift://ana@127.0.0.1", username=None, password="geheim")
        assert url == ThriftUrl((Server("127.0.0.1", 9083),), "ana", "geheim")

    @pytest.mark.parametrize(
        ("url", "said"),
        [
            ("thrift://ana@localhost", "needs a user and a password, or neither"),
            ("thrift://ana:geheim@hms", "would cross the network in clear text"),
            ("thrift://ana:geheim@127.0.0.1,hms", "would cross the network in clear text"),
            ("thrift://hms?tls=yes", "known: on, off"),
            ("thrift://hms?tls_ca=/ca.pem", "no tls=on"),
            ("thrift://hms?tls=on&ca=/ca.pem", "must be thrift://host:port"),
            ("thrift://hms?tls=on&tls_ca=/no/ca.pem", r"cannot be used \(/no/ca.pem\)"),
        ],
    )
    def test_an_error_about_the_url_does_not_show_the_password(self, url: str, said: str) -> None:
        with pytest.raises(InvalidInputError, match=said) as raised:
            ThriftMetastore(url)
        assert "geheim" not in str(raised.value)


def test_the_lock_client_imports_no_sqlalchemy() -> None:
    code = """
import sys
from airflow_provider.locks import open_lock
from airflow_provider.table.storage import Storage
open_lock({"provider": "metastore", "url": "thrift://127.0.0.1", "table": "t"}, Storage("/lake/t"))
assert "sqlalchemy" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


class TestErrors:
    @pytest.mark.parametrize(
        "declared",
        [
            ["NoSuchObjectException", "MetaException"],
            ["InvalidOperationException", "MetaException"],
            ["AlreadyExistsException", "InvalidObjectException", "MetaException"],
            ["NoSuchTxnException", "TxnAbortedException"],
            [],
        ],
    )
    @pytest.mark.parametrize("kind", ERRORS)
    def test_errors_arrive_with_their_class(self, kind: type[TableServiceError], declared: list[str]) -> None:
        exception, text = in_hive(kind("table lake.t: it is: so"), declared)
        assert exception in (*declared, None)
        heard = from_hive(str(exception), text)
        assert (type(heard), str(heard)) == (kind, "table lake.t: it is: so")

    @pytest.mark.parametrize(
        ("exception", "text", "kind"),
        [
            ("NoSuchObjectException", "lake.t: gone", "NoSuchObjectError"),
            ("MetaException", "java.lang.RuntimeException: no", "MetastoreError"),
            ("MetaException", "Exception: no", "MetastoreError"),
            ("UnknownDBException", "", "NoSuchObjectError"),
        ],
    )
    def test_the_text_of_a_hives_error_is_kept_whole(self, exception: str, text: str, kind: str) -> None:
        heard = from_hive(exception, text)
        assert (type(heard).__name__, str(heard)) == (kind, text)


@by_server
class TestProtocol:
    @pytest.mark.parametrize(
        "method",
        [
            "purge_events",
            "remove_timed_out_locks",
        ],
    )
    def test_methods_that_hives_protocol_does_not_have(self, metastore: ThriftMetastore, method: str) -> None:
        assert hasattr(Metastore, method)
        with pytest.raises(UnsupportedByServerError, match=rf"no word for {method}\(\).*SQLAlchemy URL"):
            getattr(metastore, method)("name")

    def test_the_client_has_every_method_of_the_metastore(self, metastore: ThriftMetastore) -> None:
        own = {name for name in dir(Metastore) if not name.startswith("_")}
        assert own - set(dir(ThriftMetastore)) == {"sql"}
        assert {name for name in dir(AnyMetastore) if not name.startswith("_")} <= own

    def test_a_reader_that_fell_behind_is_told(
        self, metastore: ThriftMetastore, by_database: Metastore
    ) -> None:
        by_database.purge_events(-1)
        with pytest.raises(EventsExpiredError, match="events 2 to 2 were removed"):
            metastore.next_events(1)
        assert metastore.next_events(2) == []

    def test_an_external_table_has_the_property_that_hive_reads(
        self, metastore: ThriftMetastore, raw: Any
    ) -> None:
        made = metastore.create_table(
            "lake", "logs", location="/l", schema=[Column("id", "int")], table_type="EXTERNAL_TABLE"
        )
        assert raw.get_table("lake", "logs").parameters["EXTERNAL"] == "TRUE"
        assert (made.table_type, made.parameters) == ("EXTERNAL_TABLE", {})
        assert metastore.alter_table("lake", "logs", parameters={"a": "b"}).parameters == {"a": "b"}
        assert raw.get_table("lake", "logs").parameters == {"a": "b", "EXTERNAL": "TRUE"}

    def test_fields_without_a_name_here_stay(self, metastore: ThriftMetastore, raw: Any) -> None:
        raw.create_table(hives_table())
        before = raw.get_table("lake", "places")
        altered = metastore.alter_table("lake", "places", owner="ops")
        after = raw.get_table("lake", "places")
        assert (altered.owner, after.owner) == ("ops", "ops")
        after.owner = before.owner
        assert after == before
        assert metastore.rename_table("lake", "places", "lake", "spots").hive_fields == altered.hive_fields

    def test_a_table_of_ours_is_the_same_by_both_ways(
        self, metastore: ThriftMetastore, by_database: Metastore
    ) -> None:
        hudi = {"spark.sql.sources.provider": "hudi", "a": "b"}
        for name, parameters in (("hudi", hudi), ("plain", {"a": "b"})):
            made = metastore.create_table(
                "lake", name, location="/t", schema=[Column("id", "array<int>", "x")], parameters=parameters
            )
            # Only the server knows when that was.
            assert set(made.hive_fields) == {"4"}
            assert by_database.get_table("lake", name) == made

    def test_a_write_id_that_a_request_names_is_the_changes_own(
        self, metastore: ThriftMetastore, by_database: Metastore, raw: Any
    ) -> None:
        txn_id = metastore.open_txn("me", "here")
        spec = PartitionSpec(("2013", "1"), "/p")
        metastore.add_partitions("lake", "flights", [spec], txn_id=txn_id)
        metastore.alter_partition("lake", "flights", spec.values, location="/q", txn_id=txn_id)
        metastore.fire_insert_event("lake", "flights", ["/q/f"], values=spec.values, txn_id=txn_id)
        metastore.drop_partitions("lake", "flights", [spec.values], txn_id=txn_id)
        metastore.alter_table("lake", "flights", owner="ops", txn_id=txn_id)
        assert metastore.allocate_table_write_id(txn_id, "lake", "flights") == 1
        assert not by_database.valid_write_id_list("lake", "flights").is_valid(1)
        request = hive.AlterTableRequest(
            dbName="lake", tableName="flights", table=raw.get_table("lake", "flights")
        )
        request.table.owner, request.writeId = "dev", 77
        with pytest.raises(hive.InvalidOperationException, match="no transaction has write id 77"):
            raw.alter_table_req(request)
        assert by_database.get_table("lake", "flights").owner == "ops"
