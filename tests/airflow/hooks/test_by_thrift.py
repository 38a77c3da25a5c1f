"""Hooks, operators and sensors with a metastore that is reached by Thrift."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

from airflow_provider.exceptions import InvalidConnectionError
from airflow_provider.hooks import LockProviderHook, MetastoreHook
from airflow_provider.metastore import Column, TxnState, open_metastore
from airflow_provider.metastore.thrift.client.client import ThriftMetastore
from airflow_provider.metastore.thrift.protocol.sasl import password_digest
from airflow_provider.metastore.thrift.server.serve import ServiceOptions, served
from airflow_provider.sensors import NotificationLogCatchupSensor, PriorCommitsFenceSensor
from airflow_provider.triggers import NotificationLogEventTrigger
from tests.airflow.flights import ingest, rows_of
from tests.airflow.sensors.test_event_trigger import triggerer, until


@pytest.fixture
def by_thrift(metastore, connect, tmp_path):
    """Make the default connection name a server of the test's metastore; return the server's URL."""
    with served(ServiceOptions(f"sqlite:///{tmp_path}/metastore.db", port=0)) as server:
        url = f"thrift://127.0.0.1:{server.port}"
        connect("table_metastore_default", conn_type="table_metastore", extra=json.dumps({"url": url}))
        yield url


@pytest.fixture
def flights(by_thrift, table):
    """A table that was created and registered by Thrift."""
    return table


class TestIngestion:
    def test_registration_transaction_and_partitions(self, metastore, flights, source, spark_connect):
        registered = metastore.get_table("lake", "flights")
        assert (registered.location, registered.parameters["spark.sql.sources.provider"]) == (
            flights.location,
            "hudi",
        )
        result = ingest(source, spark_conn_id=spark_connect).execute({})
        assert len(rows_of(flights)) == 3
        txn = metastore.get_txn(result["txn_id"])
        assert (txn.state, txn.event_id) == (TxnState.COMMITTED, result["event_id"])
        assert [write.instant for write in metastore.writes_of(txn.id)] == [result["instant"]]
        partitions = {one.values: one.location for one in metastore.get_partitions("lake", "flights")}
        assert partitions == {(day,): f"{flights.location}/day={day}" for day in ("mon", "tue")}
        # Each partition's event has the write's own id: the write has taken no second id.
        assert metastore.valid_write_id_list("lake", "flights").high_watermark == result["write_id"] == 1
        fence = PriorCommitsFenceSensor(task_id="fence", table="lake.flights", before=result["instant"])
        assert fence.look().is_done

    def test_a_transaction_left_alone_is_ended_by_the_next_write(
        self, metastore, flights, source, tmp_path, spark_connect
    ):
        left_alone = metastore.open_txn("someone", "a worker that is gone", agent="another task")
        metastore.record_write(left_alone, "lake", "flights", "20240101000000000")
        with closing(sqlite3.connect(tmp_path / "metastore.db")) as database, database:
            database.execute("UPDATE metastore_txns SET heartbeat_at = 0 WHERE id = ?", [left_alone])
        result = ingest(source, spark_conn_id=spark_connect).execute({})
        assert metastore.get_txn(left_alone).state == TxnState.ABORTED
        assert metastore.get_txn(result["txn_id"]).state == TxnState.COMMITTED


class TestHook:
    async def test_servers_by_a_url_or_by_host_and_port(self, metastore, by_thrift, connect):
        hosts, port = by_thrift.removeprefix("thrift://").split(":")
        connect(
            "parts", conn_type="table_metastore", host=hosts, port=int(port), extra='{"dialect": "thrift"}'
        )
        metastore.create_database("lake")
        for hook in (MetastoreHook(), MetastoreHook("parts")):
            assert hook.get_metastore().list_databases() == ["default", "lake"]
            assert hook.test_connection() == (True, f"{by_thrift}: Hive Metastore 4.1.0")
            assert await hook.aget_url() == by_thrift

    async def test_a_password_reaches_the_server_and_is_never_shown(self, connect, tmp_path):
        users = tmp_path / "users"
        users.write_text(f"ana:{password_digest('geheim-7')}\n")
        options = ServiceOptions(f"sqlite:///{tmp_path}/m.db", port=0, users=str(users))
        with served(options) as server:
            fields = {"conn_type": "table_metastore", "host": "127.0.0.1", "port": server.port}
            fields |= {"login": "ana", "extra": '{"dialect": "thrift"}'}
            connect("right", password="geheim-7", **fields)
            works, message = MetastoreHook("right").test_connection()
            assert works, message
            assert f"thrift://ana:***@127.0.0.1:{server.port}" in message
            with closing(open_metastore(await MetastoreHook("right").aget_url())) as opened:
                assert opened.list_databases() == ["default"]
            connect("wrong", password="geheim-8", **fields)
            works, message = MetastoreHook("wrong").test_connection()
            assert (works, "did not let user 'ana' in" in message, "geheim" in message) == (
                False,
                True,
                False,
            )
            extra = {"provider": "metastore", "url": f"thrift://ana@127.0.0.1:{server.port}"}
            extra |= {"table": "flights", "test_location": str(tmp_path)}
            connect("lock", conn_type="table_lock", password="geheim-7", extra=json.dumps(extra))
            works, message = LockProviderHook("lock").test_connection()
            assert works, message

    async def test_files_for_tls_reach_the_client(self, connect):
        extra = {"url": "thrift://hms1,hms2:1", "tls": "on", "tls_ca": "/etc/ca.pem"}
        fields = {
            "conn_type": "table_metastore",
            "login": "ana",
            "password": "a b/c",
            "extra": json.dumps(extra),
        }
        connect("ms", **fields)
        url = await MetastoreHook("ms").aget_url()
        assert url == "thrift://ana:a%20b%2Fc@hms1:9083,hms2:1?tls=on&tls_ca=/etc/ca.pem"
        works, message = MetastoreHook("ms").test_connection()
        assert not works
        assert "the files for TLS with the metastore cannot be used (/etc/ca.pem): No such file" in message

    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            (
                {"extra": {"url": "thrift://u:hunter22@127.0.0.1"}},
                "put it into the connection's field 'Password'",
            ),
            (
                {"extra": {"url": "thrift://u@h"}, "password": "hunter22"},
                "would cross the network in clear text",
            ),
            (
                {"extra": {"url": "thrift://h"}, "password": "hunter22"},
                "needs a user and a password, or neither",
            ),
            ({"extra": {"url": "thrift://h", "tls_ca": "/ca.pem"}}, "has files for TLS, and no tls=on"),
            ({"extra": {"url": "thrift://h", "tls": "maybe"}}, "extra 'tls' is 'maybe'; known: off, on"),
            ({"extra": {"dialect": "thrift"}}, "must be thrift://host:port"),
            ({"extra": {"url": "sqlite:////m.db", "tls": "on"}}, "tls are for a metastore by Thrift"),
        ],
    )
    def test_a_connection_that_cannot_work_says_why_and_shows_no_password(self, connect, fields, said):
        connect("ms", conn_type="table_metastore", **(fields | {"extra": json.dumps(fields["extra"])}))
        with pytest.raises(InvalidConnectionError) as raised:
            MetastoreHook("ms").get_metastore()
        assert said in str(raised.value)
        assert "hunter22" not in str(raised.value)

    def test_a_locks_url_shows_no_password_either(self, connect):
        extra = json.dumps({"provider": "metastore", "url": "thrift://u:hunter22@127.0.0.1"})
        connect("lock", conn_type="table_lock", extra=extra)
        with pytest.raises(InvalidConnectionError, match="field 'Password'") as raised:
            LockProviderHook("lock").lock_config()
        assert "hunter22" not in str(raised.value)


def test_consumers_are_waited_for_by_thrift(metastore, by_thrift):
    opened = MetastoreHook().get_metastore()
    assert isinstance(opened, ThriftMetastore)
    opened.register_consumer("report")
    metastore.create_database("lake")
    sensor = NotificationLogCatchupSensor(task_id="t", until=metastore.current_event_id())
    assert not sensor.look().is_done
    opened.advance_consumer("report", metastore.current_event_id())
    assert sensor.look().result == {"event_id": 1, "consumers": {"report": 1}}
    nobody = NotificationLogCatchupSensor(task_id="t", until=1, consumers=[])
    assert nobody.execute({}) == {"event_id": 1, "consumers": {}}


async def test_events_start_dags_by_thrift(metastore, by_thrift):
    metastore.create_database("lake")
    metastore.create_table("lake", "flights", location="/lake/flights", schema=[Column("id", "bigint")])
    trigger = NotificationLogEventTrigger(consumer="report", table="lake.flights", poll_interval=0.05)
    async with triggerer(trigger) as running:
        await until(lambda: metastore.consumers())
        told = metastore.fire_insert_event("lake", "flights", ["/lake/flights/a.parquet"])
        payload = await running.event()
        while payload["event_id"] < told:
            payload = await running.event()
        assert payload["events"][-1]["event_type"] == "INSERT"
        await until(lambda: metastore.consumers()[0].event_id >= told)
