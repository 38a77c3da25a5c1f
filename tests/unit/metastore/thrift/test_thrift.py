"""The client by Thrift: URLs, and a server that answers as a Hive of version 4, which cannot be run here."""

from __future__ import annotations

import base64
import gzip
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from thriftpy2.protocol import TBinaryProtocolFactory
from thriftpy2.thrift import TProcessor
from thriftpy2.transport import TBufferedTransportFactory, TServerSocket, TTransportException

from airflow_provider.exceptions import (
    EventsExpiredError,
    InvalidInputError,
    MetastoreError,
    MetastoreUnavailableError,
    TransactionAbortedError,
)
from airflow_provider.metastore.thrift.client.client import ThriftMetastore
from airflow_provider.metastore.thrift.protocol import from_hive, in_hive
from airflow_provider.metastore.thrift.protocol.idl import hive
from airflow_provider.metastore.thrift.url import Server, ThriftUrl, parse_thrift_url


@pytest.mark.parametrize(
    ("url", "servers"),
    [
        ("thrift://hms", [Server("hms", 9083)]),
        ("thrift://hms:1", [Server("hms", 1)]),
        ("thrift://hms1:1,hms2", [Server("hms1", 1), Server("hms2", 9083)]),
        ("thrift://hms1:1,thrift://hms2:2", [Server("hms1", 1), Server("hms2", 2)]),
        ("thrift://[::1]:1", [Server("::1", 1)]),
    ],
)
def test_urls(url: str, servers: list[Server]) -> None:
    assert parse_thrift_url(url) == ThriftUrl(tuple(servers))
    assert parse_thrift_url(ThriftMetastore(url).url) == ThriftUrl(tuple(servers))


@pytest.mark.parametrize(
    "url",
    [
        "thrift://",
        "thrift://a,,b",
        "thrift://a/x",
        "a:1",
        "thrift://a:x",
        "thrift://a:99999",
        "thrift://u:p@a/x",
        "thrift://a?u:p",
        "thrift://a?password=u:p",
    ],
)
def test_urls_that_name_no_servers(url: str) -> None:
    with pytest.raises(InvalidInputError, match="must be thrift://host:port") as raised:
        ThriftMetastore(url)
    assert "u:p" not in str(raised.value)


class HiveFour:
    """A server that answers like a Hive of version 4."""

    def get_open_txns(self) -> Any:
        # Bits 1 and 9 are set: the second and the tenth are aborted.
        ids = [3, 5, *range(10, 18)]
        return hive.GetOpenTxnsResponse(
            txn_high_water_mark=20, open_txns=ids, min_open_txn=3, abortedBits=b"\x02\x02"
        )

    def allocate_table_write_ids(self, rqst: Any) -> Any:
        if rqst.txnIds == [5]:
            raise hive.TxnAbortedException(message="Transaction txnid:5 already aborted")
        assert (rqst.dbName, rqst.tableName, rqst.reallocate) == ("lake", "flights", False)
        return hive.AllocateTableWriteIdsResponse(
            txnToWriteIds=[hive.TxnToWriteId(txnId=rqst.txnIds[0], writeId=7)]
        )

    def get_next_notification(self, rqst: Any) -> Any:
        body = base64.b64encode(gzip.compress(b'{"txnid": 7, "timestamp": 1}')).decode()
        events = [
            hive.NotificationEvent(eventId=number, eventTime=1, eventType=kind, message=body)
            for number, kind in ((5, "COMMIT_TXN"), (6, "ACID_WRITE"))
            if number > rqst.lastEvent
        ]
        for event in events:
            event.messageFormat = "gzip(json-2.0)"
        return hive.NotificationEventResponse(events=events)

    def get_all_databases(self) -> Any:
        raise hive.MetaException(message="no database today")


@pytest.fixture
def hive_four() -> Iterator[ThriftMetastore]:
    listening = TServerSocket("127.0.0.1", 0, client_timeout=None)
    listening.listen()
    thread = threading.Thread(target=_serve_one, args=(listening,))
    thread.start()
    metastore = ThriftMetastore(f"thrift://127.0.0.1:{listening.sock.getsockname()[1]}")
    yield metastore
    metastore.close()
    thread.join()
    listening.close()


def _serve_one(listening: TServerSocket) -> None:
    """Serve one connection until it is closed."""
    transport = TBufferedTransportFactory().get_transport(listening.accept())
    protocol = TBinaryProtocolFactory().get_protocol(transport)
    processor = TProcessor(hive.ThriftHiveMetastore, HiveFour())
    with suppress(TTransportException):
        while True:
            processor.process(protocol, protocol)
    transport.close()


def test_open_and_aborted_transactions(hive_four: ThriftMetastore) -> None:
    snapshot = hive_four.valid_txn_list()
    assert str(snapshot) == "20:3:3,10-16:5,17"
    assert snapshot.aborted == {5, 17}
    own = hive_four.valid_txn_list(12)
    assert str(own) == "12:3:3,10,11:5"


def test_write_ids_and_errors_on_one_connection(hive_four: ThriftMetastore) -> None:
    assert hive_four.allocate_table_write_id(3, "lake", "flights") == 7
    with pytest.raises(TransactionAbortedError, match="Transaction txnid:5 already aborted"):
        hive_four.allocate_table_write_id(5, "lake", "flights")
    with pytest.raises(MetastoreError, match="no database today"):
        hive_four.list_databases()
    assert hive_four.allocate_table_write_id(3, "lake", "flights") == 7


def test_events_in_hives_own_wrapping_and_a_gap_in_them(hive_four: ThriftMetastore) -> None:
    [commit] = hive_four.next_events(4, event_types=["COMMIT_TXN"])
    assert (commit.event_id, commit.message) == (5, {"txnid": 7, "timestamp": 1})
    assert [event.event_type for event in hive_four.next_events(4)] == ["COMMIT_TXN", "ACID_WRITE"]
    with pytest.raises(EventsExpiredError, match="events 3 to 4 were removed"):
        hive_four.next_events(2)


def test_a_database_that_is_away_is_no_mistake_of_the_request() -> None:
    away = MetastoreUnavailableError("the database is away")
    chosen, text = in_hive(away, {"InvalidOperationException", "MetaException"})
    assert chosen == "MetaException"
    assert type(from_hive(chosen, text)) is MetastoreUnavailableError
