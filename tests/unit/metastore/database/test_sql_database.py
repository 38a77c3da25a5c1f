"""URLs, secrets, migrations, and databases that cannot be used."""

from __future__ import annotations

import logging
import os
import sqlite3
import subprocess
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import SAWarning

from airflow_provider.exceptions import InvalidInputError, MetastoreError, MetastoreUnavailableError
from airflow_provider.metastore import Metastore, open_metastore
from airflow_provider.metastore.database import schema, sql_database
from airflow_provider.metastore.transactions import transactions
from tests.unit.metastore.conftest import only_database

MIGRATIONS = Path(schema.__file__).parents[1] / "migrations"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("no url", "cannot be parsed"),
        ("", "cannot be parsed"),
        ("mysql://u:hunter2@h/d", "cannot live in 'mysql'"),
        ("sqlite://", "no absolute path"),
        ("sqlite:///relative.db", "'relative.db' has no absolute path"),
        ("sqlite:///:memory:", "no absolute path"),
        ("sqlite+aiosqlite:////abs.db", "asynchronous driver 'sqlite\\+aiosqlite'"),
        ("postgresql+nosuch://u:hunter2@h/d", "cannot be parsed"),
        ("postgresql+psycopg2://u:hunter2@h/d", "driver 'psycopg2' is not installed"),
        ("postgresql://u:hunter2@h:port/d", "cannot be parsed"),
    ],
)
def test_urls_that_cannot_be_a_metastores(url: str, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said) as caught:
        open_metastore(url)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_secrets_never_show(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    file = tmp_path / "metastore.db"
    with pytest.warns(SAWarning, match="not accepted by the pysqlite driver"):
        metastore = open_metastore(f"sqlite:///{file}?sslpassword=hunter2")
    shown = f"{metastore!r} {metastore.url} {metastore.ping()} {metastore._sql!r}"
    metastore.close()
    file.write_bytes(b"hunter2 " * 4096)
    with pytest.raises(MetastoreError) as caught:
        metastore.current_event_id()
    shown += "".join(traceback.format_exception(caught.value)) + caplog.text
    assert "hunter2" not in shown
    assert "sslpassword=***" in shown


def test_a_new_database_gets_its_folders_and_schema(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b" / "metastore.db"
    metastore = open_metastore(f"sqlite:///{file}")
    assert metastore.current_event_id() == 0
    assert metastore.ping() == f"sqlite:///{file}: schema {schema.SCHEMA_REVISION}, last event 0"
    with closing(sqlite3.connect(file)) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_schema_of_a_newer_release_is_not_touched(url: str) -> None:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database, database:
        database.execute(f"UPDATE {schema.VERSION_TABLE} SET version_num = '9999'")
    with pytest.raises(MetastoreError, match=r"at revision '9999'.*upgrade this package"):
        open_metastore(url)


def test_an_opened_metastore_imports_no_alembic(url: str) -> None:
    """A trigger or a request of the page opens a metastore in milliseconds."""
    code = (
        "import sys; from airflow_provider.metastore import open_metastore; "
        f"assert open_metastore({url!r}).current_event_id() == 2; "
        "assert not {'alembic', 'airflow', 'pyarrow', 'lark'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_migration_that_fails_leaves_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/metastore.db"

    def migrate_and_fail(connection: Connection) -> None:
        sql_database._migrate(connection)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sql_database.SqlDatabase(url).write(migrate_and_fail)
    with closing(sqlite3.connect(tmp_path / "metastore.db")) as database:
        assert database.execute("SELECT name FROM sqlite_master").fetchall() == []
    assert open_metastore(url).list_databases() == ["default"]


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    file = tmp_path / "metastore.db"
    file.write_text("not a database, but long enough to look like one " * 50)
    with pytest.raises(MetastoreError, match=f"metastore sqlite:///{file}: file is not a database"):
        open_metastore(f"sqlite:///{file}")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MetastoreUnavailableError, match=f"the folder {tmp_path}/file/sub cannot be made"):
        open_metastore(f"sqlite:///{tmp_path}/file/sub/metastore.db")


def test_a_locked_database_is_unavailable_after_the_timeout(url: str) -> None:
    metastore = open_metastore(url, timeout_seconds=0.3)
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        started = time.monotonic()
        with pytest.raises(MetastoreUnavailableError, match="database is locked; check that") as caught:
            metastore.open_txn("me", "here")
        assert 0.3 <= time.monotonic() - started < 30, "30 s are the default"
        assert caught.value.retryable
        # Readers continue.
        assert metastore.current_event_id() == 2
        other.execute("ROLLBACK")
    assert metastore.open_txn("me", "here") == 1


def test_a_lock_that_is_released_in_time_is_waited_for(url: str) -> None:
    metastore = open_metastore(url, timeout_seconds=10)
    with closing(
        sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, check_same_thread=False)
    ) as other:
        other.execute("BEGIN IMMEDIATE")
        release = threading.Timer(0.2, lambda: other.execute("ROLLBACK"))
        release.start()
        assert metastore.open_txn("me", "here") == 1
        release.join()


def test_a_busy_thread_makes_others_unavailable_after_the_timeout(url: str) -> None:
    metastore = open_metastore(url, timeout_seconds=0.2)
    entered, leave = threading.Event(), threading.Event()

    def hold(connection: object) -> None:
        entered.set()
        leave.wait(30)

    holder = threading.Thread(target=metastore._sql.write, args=(hold,))
    holder.start()
    entered.wait(10)
    with pytest.raises(MetastoreUnavailableError, match=r"other threads .* kept it busy for 0.2 s"):
        metastore.open_txn("me", "here")
    leave.set()
    holder.join()


@only_database
def test_a_failed_operation_leaves_nothing(metastore: Metastore) -> None:
    before = metastore.current_event_id()
    with pytest.raises(ZeroDivisionError):
        metastore._sql.write(_open_and_fail)
    assert metastore.current_event_id() == before
    assert metastore.open_txn("me", "here") == 1


def _open_and_fail(connection: Connection) -> None:
    transactions.open_txn(connection, "me", "here", agent=None, commit_on_recovery=True)
    raise ZeroDivisionError


@only_database
def test_threads_share_one_metastore(metastore: Metastore) -> None:
    def work(number: int) -> tuple[int, int]:
        txn_id = metastore.open_txn("me", "here")
        write_id = metastore.allocate_table_write_id(txn_id, "lake", "flights")
        metastore.commit_txn(txn_id)
        assert metastore.valid_write_id_list("lake", "flights").is_valid(write_id)
        return txn_id, write_id

    with ThreadPoolExecutor(16) as pool:
        made = list(pool.map(work, range(32)))
    assert sorted(txn_id for txn_id, _ in made) == list(range(1, 33))
    assert sorted(write_id for _, write_id in made) == list(range(1, 33))
    assert [event.event_id for event in metastore.next_events(0)] == list(range(1, 2 + 3 * 32 + 1))


@only_database
def test_a_forked_child_has_connections_of_its_own(metastore: Metastore) -> None:
    assert metastore.open_txn("parent", "here") == 1
    parents = metastore._sql._engine
    child = os.fork()
    if child == 0:
        same = metastore._sql._engine is parents
        done = metastore.open_txn("child", "here") == 2
        os._exit(0 if done and not same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert metastore._sql._engine is parents
    assert metastore.get_txn(2).user == "child"
    assert metastore.open_txn("parent", "here") == 3
