"""Connections, by type: their valid fields, and the objects that the hooks make from them."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from airflow.sdk import Connection

from airflow_provider.concurrency import WriteSettings, begin_write
from airflow_provider.exceptions import (
    InvalidConnectionError,
    InvalidInputError,
    NoSuchObjectError,
    NotATableError,
)
from airflow_provider.hooks import LockProviderHook, MetastoreHook, TableHook
from airflow_provider.locks import InProcessLockProvider
from airflow_provider.metastore import Column, open_metastore
from airflow_provider.table.hudi_table import HudiTable
from tests.airflow.conftest import HOME

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])


def lock_connection(connect, **extra):
    return connect("locks", conn_type="table_lock", extra=json.dumps(extra))


class TestLockProviderHook:
    def test_without_a_connection_the_lock_is_the_file_lock_in_the_table(self, tmp_path):
        hook = LockProviderHook()
        assert hook.lock_config() == {"provider": "filesystem"}
        with hook.get_lock(str(tmp_path)) as lock:
            assert lock.is_held()
            assert (tmp_path / ".hoodie/locks/lock1.acquired").exists()
        assert not lock.is_held()

    def test_options_reach_the_provider_and_those_of_others_do_not(self, connect):
        conn_id = lock_connection(
            connect, provider="in_process", timeout_seconds=2, lease_seconds=9, test_location="/somewhere"
        )
        hook = LockProviderHook(conn_id)
        assert hook.lock_config() == {"provider": "in_process", "timeout_seconds": 2.0}
        assert isinstance(hook.get_lock("/lake/t"), InProcessLockProvider)

    def test_a_uri_gives_numbers_as_text(self, monkeypatch):
        monkeypatch.setenv("AIRFLOW_CONN_LOCKS", "table-lock://?timeout_seconds=1.5&provider=filesystem")
        assert LockProviderHook("locks").lock_config() == {"provider": "filesystem", "timeout_seconds": 1.5}

    @pytest.mark.parametrize(
        ("extra", "names"),
        [
            ({"colour": "red"}, ["'colour'", "known: acl, authentication, base_path"]),
            (
                {"provider": "zoo"},
                ["'provider'", "'zoo'", "known: filesystem, hudi_filesystem, zookeeper, metastore, database"],
            ),
            ({"provider": 3}, ["'provider'", "must be text, not int"]),
            ({"timeout_seconds": 0}, ["'timeout_seconds'", "must be a number above 0, not 0"]),
            ({"lease_seconds": "soon"}, ["'lease_seconds'", "not 'soon'"]),
            ({"lease_seconds": True}, ["'lease_seconds'", "not True"]),
            ({"lease_seconds": "nan"}, ["'lease_seconds'", "not 'nan'"]),
            ({"acl": "nobody"}, ["'acl'", "'nobody'", "known: open, creator"]),
            ({"url": "postgresql+psycopg://u:geheim-7@h/d"}, ["'url'", "connection's field 'Password'"]),
            ({"url": "postgresql+psycopg://h/d?password=geheim-7"}, ["'url'", "field 'Password'"]),
        ],
    )
    def test_an_extra_that_cannot_work_is_named_with_what_is_known(self, connect, extra, names):
        hook = LockProviderHook(lock_connection(connect, **extra))
        with pytest.raises(InvalidConnectionError) as raised:
            hook.lock_config()
        for name in ["connection 'locks'", *names]:
            assert name in str(raised.value)
        assert "geheim-7" not in str(raised.value)
        assert hook.test_connection() == (False, f"InvalidConnectionError: {raised.value}")

    def test_hosts_and_user_are_where_every_connection_has_them(self, connect):
        extra = json.dumps({"provider": "zookeeper", "authentication": "digest", "tls_key_password": "p-8"})
        connect(
            "locks",
            conn_type="table_lock",
            host="zk1:1,zk2:2",
            login="hudi",
            password="geheim-7",
            extra=extra,
        )
        assert LockProviderHook("locks").lock_config() == {
            "provider": "zookeeper",
            "hosts": "zk1:1,zk2:2",
            "authentication": "digest",
            "username": "hudi",
            "password": "geheim-7",
            "tls_key_password": "p-8",
        }
        connect("locks", conn_type="table_lock", host="zk1", port=2181, extra='{"provider": "zookeeper"}')
        assert LockProviderHook("locks").lock_config() == {"provider": "zookeeper", "hosts": "zk1:2181"}

    def test_the_database_gets_its_password_and_nobody_sees_it(self, connect, tmp_path):
        extra = json.dumps(
            {"provider": "database", "url": "postgresql+psycopg://hudi@127.0.0.1:1/lake", "lock_key": "k"}
            | {"connection_timeout_seconds": 1, "timeout_seconds": 1}
        )
        connect("locks", conn_type="table_lock", password="geheim-7", extra=extra)
        hook = LockProviderHook("locks")
        assert hook.lock_config()["password"] == "geheim-7"
        works, message = hook.test_connection()
        assert not works
        assert message.startswith("LockUnavailableError: ")
        assert "postgresql+psycopg://hudi:***@127.0.0.1:1/lake" in message
        assert "geheim-7" not in message

    def test_a_database_lock_by_its_connection(self, connect, tmp_path):
        conn_id = lock_connection(
            connect, provider="database", url=f"sqlite:///{tmp_path}/locks.db", test_location="/lake/t"
        )
        assert LockProviderHook(conn_id).test_connection() == (
            True,
            "database lock taken and released in /lake/t (fencing token 1)",
        )

    def test_a_metastore_lock_by_its_connection(self, connect, tmp_path):
        conn_id = lock_connection(
            connect,
            provider="metastore",
            url=f"sqlite:///{tmp_path}/metastore.db",
            database="lake",
            table="flights",
            test_location="/lake/t",
        )
        assert LockProviderHook(conn_id).test_connection() == (
            True,
            "metastore lock taken and released in /lake/t (fencing token 1)",
        )

    def test_another_connection_type_or_none_at_all_is_refused(self, connect):
        connect("files", conn_type="fs")
        with pytest.raises(InvalidConnectionError, match="is of type 'fs'; type 'table_lock' is needed"):
            LockProviderHook("files").lock_config()
        with pytest.raises(InvalidConnectionError, match="'absent' does not exist; create it"):
            LockProviderHook("absent").lock_config()

    @pytest.mark.parametrize("extra", ["[1]", '{"provider": '])
    def test_an_extra_that_is_no_json_object_does_not_select_the_defaults(self, monkeypatch, extra):
        connection = Connection(conn_id="locks", conn_type="table_lock", extra=extra)
        monkeypatch.setattr(LockProviderHook, "get_connection", lambda self, conn_id: connection)
        with pytest.raises(InvalidConnectionError, match="extra"):
            LockProviderHook("locks").lock_config()

    def test_testing_takes_the_lock_where_the_connection_says(self, connect, tmp_path):
        conn_id = lock_connection(connect, test_location=str(tmp_path))
        works, message = LockProviderHook(conn_id).test_connection()
        assert works, message
        assert message == f"filesystem lock taken and released in {tmp_path} (fencing token 1)"
        assert (tmp_path / ".hoodie/locks/lock1.released").exists()

    def test_testing_says_who_holds_a_lock_that_cannot_be_had(self, connect, tmp_path):
        conn_id = lock_connection(connect, test_location=str(tmp_path), timeout_seconds=0.2)
        with LockProviderHook().get_lock(str(tmp_path)):
            works, message = LockProviderHook(conn_id).test_connection()
        assert not works
        assert message.startswith("LockTimeoutError: ")
        assert "held by " in message

    def test_testing_a_folder_that_cannot_be_written_fails(self, connect, tmp_path):
        (tmp_path / "file").touch()
        conn_id = lock_connection(connect, test_location=str(tmp_path / "file"))
        works, message = LockProviderHook(conn_id).test_connection()
        assert not works
        assert str(tmp_path / "file") in message


class TestMetastoreHook:
    def test_without_a_connection_it_is_embedded_in_airflows_home(self):
        database = HOME / "table_services" / "metastore.db"
        hook = MetastoreHook()
        works, message = hook.test_connection()
        assert works, message
        assert database.exists()
        assert hook.get_metastore() is hook.get_conn()
        assert "default" in hook.get_metastore().list_databases()

    @pytest.mark.parametrize("by", ["url", "parts"])
    def test_the_database_is_named_by_a_url_or_by_its_parts(self, connect, tmp_path, by):
        path = tmp_path / "of it's own" / "metastore.db"
        if by == "url":
            connect("ms", conn_type="table_metastore", extra=json.dumps({"url": f"sqlite:///{path}"}))
        else:
            connect("ms", conn_type="table_metastore", schema=str(path))
        MetastoreHook("ms").get_metastore().create_database("lake")
        assert "lake" in open_metastore(f"sqlite:///{path}").list_databases()

    def test_the_parts_make_a_url_with_the_password_of_the_connection(self, connect):
        secret = "p@ss/word:1"
        connect(
            "ms",
            conn_type="table_metastore",
            host="db.example",
            port=5433,
            login="hive",
            password=secret,
            schema="catalog",
            extra=json.dumps({"dialect": "postgresql+psycopg"}),
        )
        works, message = MetastoreHook("ms").test_connection()
        assert not works
        assert "db.example:5433/catalog" in message
        assert secret not in message

    async def test_in_an_event_loop_the_url_is_the_same(self, connect):
        extra = json.dumps({"url": "postgresql+psycopg://hive@db.example/catalog"})
        connect("ms", conn_type="table_metastore", password="geheim-7", extra=extra)
        assert await MetastoreHook("ms").aget_url() == "postgresql+psycopg://hive:geheim-7@db.example/catalog"

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"extra": {"url": "mysql://h/d"}}, "a metastore cannot live in 'mysql'"),
            ({"extra": {"url": "no url"}}, "cannot be parsed"),
            ({"extra": {"url": "sqlite:///relative.db"}}, "has no absolute path"),
            ({"extra": {"dialect": "sqlite"}}, "has no absolute path"),
            ({"extra": {"uri": "sqlite:////a.db"}}, "extra 'uri' is not known; known: dialect, lock_conn_id"),
            (
                {"extra": {"url": "postgresql://u:hunter22@h/d"}},
                "put it into the connection's field 'Password'",
            ),
            ({"extra": {"url": "postgresql://h/d?password=hunter22"}}, "put it into the connection's field"),
        ],
    )
    def test_a_connection_that_cannot_work_says_why_and_shows_no_password(self, connect, fields, message):
        connect("ms", conn_type="table_metastore", extra=json.dumps(fields["extra"]))
        with pytest.raises(InvalidConnectionError) as raised:
            MetastoreHook("ms").get_metastore()
        assert "connection 'ms'" in str(raised.value)
        assert message in str(raised.value)
        assert "hunter22" not in str(raised.value)

    async def test_a_missing_connection_other_than_the_default_is_refused(self):
        with pytest.raises(InvalidConnectionError, match="'absent' does not exist; create it"):
            MetastoreHook("absent").get_metastore()
        with pytest.raises(InvalidConnectionError, match="'absent' does not exist; create it"):
            await MetastoreHook("absent").aget_url()

    def test_transactions_and_write_ids_of_a_table(self, metastore, tmp_path):
        metastore.create_database("lake")
        metastore.create_table("lake", "flights", location=str(tmp_path), schema=[Column("id", "bigint")])
        hook = MetastoreHook()
        with hook.transaction("lake.flights", agent="a test") as transaction:
            txn_id = transaction.txn_id
            assert hook.allocate_write_id(txn_id, "lake.flights") == transaction.write_id == 1
        assert metastore.get_txn(txn_id).agent == "a test"
        assert metastore.next_events(0)[-1].event_type == "COMMIT_TXN"
        for name in ("flights", "a.b.c", ".b", "a."):
            with pytest.raises(InvalidInputError, match=r"of the form database\.table"):
                hook.transaction(name)


class TestTableHook:
    @pytest.fixture
    def registered(self, metastore, tmp_path) -> Path:
        location = tmp_path / "lake" / "flights"
        HudiTable.create(
            str(location), name="flights", schema=SCHEMA, record_key=["id"], partition_by=["day"]
        )
        metastore.create_database("lake")
        metastore.create_table("lake", "flights", location=str(location), schema=[Column("id", "bigint")])
        return location

    def test_a_table_is_found_by_name_path_and_url(self, registered):
        hook = TableHook()
        by_name = hook.resolve("lake.flights")
        assert (by_name.location, by_name.database, by_name.name) == (str(registered), "lake", "flights")
        assert by_name.is_registered
        assert not hook.resolve(str(registered)).is_registered
        for given in ("lake.flights", str(registered), f"file://{registered}"):
            assert hook.get_table(given).config.record_key_fields == ("id",)

    def test_what_is_no_table_says_so(self, registered, tmp_path):
        hook = TableHook()
        with pytest.raises(NoSuchObjectError, match="nothing"):
            hook.resolve("lake.nothing")
        with pytest.raises(NotATableError):
            hook.get_table(str(tmp_path))
        with pytest.raises(InvalidInputError, match="relative path"):
            hook.get_table("lake/flights")
        with pytest.raises(InvalidInputError, match=r"of the form database\.table"):
            hook.get_table("flights")

    def test_pending_writes_are_seen_on_the_timeline(self, registered):
        hook = TableHook()
        assert hook.pending_instants("lake.flights") == []
        with begin_write(
            hook.get_table("lake.flights"), operation="UPSERT", settings=WriteSettings(priority=300)
        ) as writer:
            [pending] = hook.pending_instants("lake.flights")
            assert (pending.instant, pending.alive, pending.priority) == (writer.instant, True, 300)
            assert [i.requested_time for i in hook.timeline("lake.flights").pending()] == [writer.instant]
        assert hook.pending_instants("lake.flights") == []

    async def test_storage_options_come_from_a_connection_of_their_own(self, connect, registered):
        connect("storage", conn_type="generic", extra=json.dumps({"auto_mkdir": True}))
        hook = TableHook(storage_conn_id="storage")
        assert hook.storage_options() == await hook.astorage_options() == {"auto_mkdir": True}
        assert hook.get_table("lake.flights").storage.options == {"auto_mkdir": True}
        with pytest.raises(InvalidConnectionError, match="'absent' does not exist"):
            TableHook(storage_conn_id="absent").storage_options()
        with pytest.raises(InvalidConnectionError, match="'absent' does not exist"):
            await TableHook(storage_conn_id="absent").astorage_options()
        assert TableHook().storage_options() == {}
