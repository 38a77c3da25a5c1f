"""The database's lock alone: its table, its keys, its drivers."""

from __future__ import annotations

import threading
import time
import uuid
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider.exceptions import InvalidConnectionError, LockTimeoutError, LockUnavailableError
from airflow_provider.locks import LockProvider, open_lock
from airflow_provider.locks.database import locks, waiters
from airflow_provider.metastore.database.schema import current_millis
from airflow_provider.table.storage.storage import Storage
from tests.processes.locks.contender import Contender
from tests.processes.servers import Postgres


@pytest.fixture
def database(postgres: Postgres) -> sa.URL:
    """A new PostgreSQL database."""
    name = f"locks_{uuid.uuid4().hex}"
    engine = sa.create_engine(postgres.url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return sa.make_url(postgres.url).set(database=name)


def database_lock(url: str | sa.URL, root: str = "/lake/t", **options: Any) -> LockProvider:
    config = {"provider": "database", "url": str(url), **options}
    return open_lock(config, Storage(root))


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_processes_make_the_table_at_once(
    kind: str, database: sa.URL, processes: ForkServerContext, tmp_path: Path
) -> None:
    url = str(database) if kind == "postgresql" else f"sqlite:///{tmp_path}/locks.db"
    config = {"provider": "database", "url": url}
    contenders = [Contender(processes, config, f"/lake/{number}", {}) for number in range(6)]
    for contender in contenders:
        contender.tell("acquire", 30)
    assert [contender.answer() for contender in contenders] == [1] * 6  # each has its own table
    for contender in contenders:
        contender.kill()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_database_of_before_there_was_a_line_gets_one(kind: str, database: sa.URL, tmp_path: Path) -> None:
    url = database if kind == "postgresql" else sa.make_url(f"sqlite:///{tmp_path}/locks.db")
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        locks.create(connection)
        held = {"lock_key": "/lake/t", "fencing_token": 7, "contender": "c", "owner": "before"}
        connection.execute(sa.insert(locks).values(**held, lease_millis=300, renewed_at=current_millis()))
    engine.dispose()
    heir = database_lock(url)
    assert heir.waiters() == []
    holder = heir.holder()
    assert holder is not None
    assert (holder.owner, holder.fencing_token) == ("before", 7)
    heir.acquire(timeout=60)
    assert heir.fencing_token == 8
    heir.release()


def test_a_waiter_whose_ticket_was_removed_takes_another(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    holder, waiter, observer = (database_lock(url, owner=name) for name in ("holder", "waiter", "observer"))
    holder.acquire()
    waiting = threading.Thread(target=waiter.acquire, args=(300,))
    waiting.start()
    engine = sa.create_engine(url)
    deadline = time.monotonic() + 300
    for _ in range(2):
        while observer.waiters() != ["waiter"]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with engine.begin() as connection:
            connection.execute(sa.delete(waiters))
    holder.release()
    waiting.join()
    assert waiter.is_held()
    assert observer.waiters() == []
    engine.dispose()


def test_a_key_makes_one_lock_of_two_tables(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    with database_lock(url, "/lake/a"), database_lock(url, "/lake/b"):
        pass
    with database_lock(url, "/lake/a", lock_key="lake", owner="a"):
        database_lock(url, "/lake/b").acquire(timeout=0)
        with pytest.raises(LockTimeoutError, match=r"lock of table /lake/b .* held by a"):
            database_lock(url, "/lake/b", lock_key="lake").acquire(timeout=0)


def test_a_user_without_the_right_is_told_so(database: sa.URL) -> None:
    engine = sa.create_engine(database, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text("CREATE TABLE table_locks (lock_key text)"))
    engine.dispose()
    with pytest.raises(LockUnavailableError, match=r"fencing_token.*may write table_locks"):
        database_lock(database).acquire(timeout=60)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "option 'url'"),
        ("postgresql", "option 'url'"),
        ("mysql://u:geheim-7@h/d", "option 'url'.*'mysql'"),
        ("sqlite:///relative.db", "option 'url'.*absolute path"),
        ("postgresql+psycopg2://u:geheim-7@h/d", "driver 'psycopg2' is not installed"),
    ],
)
def test_a_url_that_cannot_work_is_refused(url: str, message: str) -> None:
    with pytest.raises(InvalidConnectionError, match=message) as raised:
        database_lock(url)
    assert "geheim-7" not in str(raised.value)
