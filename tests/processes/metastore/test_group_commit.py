"""Groups of requests on PostgreSQL: one statement does them all, and a killed server loses nothing."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest
from sqlalchemy import Connection, text

from airflow_provider.exceptions import MetastoreUnavailableError
from airflow_provider.metastore import (
    Column,
    EventType,
    LockComponent,
    LockResponse,
    LockState,
    LockType,
    Metastore,
    TxnState,
)
from airflow_provider.metastore.api.metastore import open_embedded_metastore
from airflow_provider.metastore.database import sql_database
from airflow_provider.metastore.database.schema import Counter, advance
from airflow_provider.metastore.locks.lock_group import LOCKS, Lock, Unlock
from airflow_provider.metastore.notifications import append_event, last_event_id
from airflow_provider.metastore.thrift.client.client import ThriftMetastore
from airflow_provider.metastore.transactions.transactions import lock_open
from tests.processes.metastore.metastore_service import metastore_service
from tests.processes.servers import free_port, postgresql
from tests.unit.metastore.database.grouped_requests import check_groups

CLIENTS = 8


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgresql() as server:
        yield server.url


@pytest.fixture
def metastore(server: str) -> Iterator[Metastore]:
    """A metastore on the server's only database, which still has the rows of earlier tests."""
    opened = open_embedded_metastore(server)
    yield opened
    opened.close()


def test_a_group_on_postgresql_does_what_its_requests_do_one_by_one_on_sqlite(
    metastore: Metastore, tmp_path: Path
) -> None:
    with closing(open_embedded_metastore(f"sqlite:///{tmp_path}/single.db")) as single:
        check_groups(metastore, single, random.Random(7), 60)


def test_a_commit_that_has_to_wait_keeps_nobody_waiting(metastore: Metastore) -> None:
    held, other = metastore.open_txn("me", "here"), metastore.open_txn("me", "here")
    locked, go_on = threading.Event(), threading.Event()

    def hold(connection: object) -> None:
        lock_open(connection, held)  # type: ignore[arg-type]
        locked.set()
        assert go_on.wait(60)

    holder = threading.Thread(target=metastore.sql.write, args=(hold,))
    holder.start()
    assert locked.wait(60)
    waiter = threading.Thread(target=metastore.commit_txn, args=(held,))
    waiter.start()
    assert metastore.get_txn(other).state is TxnState.OPEN
    metastore.commit_txn(other)
    assert metastore.get_txn(held).state is TxnState.OPEN
    go_on.set()
    waiter.join()
    holder.join()
    assert metastore.get_txn(held).state is TxnState.COMMITTED


def test_the_last_event_is_no_older_than_the_question(metastore: Metastore) -> None:
    def ask(_: int) -> None:
        for _ in range(50):
            mine = metastore.sql.write(lambda connection: append_event(connection, EventType.OPEN_TXN, {}))
            assert last_event_id(metastore.sql) >= mine

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(ask, range(CLIENTS)))


def exclusive(table: str) -> Lock:
    # A new database, because another test may have left locks in the shared one.
    return Lock(
        (LockComponent(LockType.EXCLUSIVE, "of_locks", table),), "me", "here", None, None, 300.0, True
    )


def test_free_locks_are_entered_by_one_statement_and_the_rest_is_left(
    metastore: Metastore,
) -> None:
    held = metastore.lock(exclusive("held").components, "me", "here").lock_id
    group = [exclusive("held"), exclusive("free"), exclusive("free"), Unlock(held), Unlock(held + 1_000)]
    answers = LOCKS.at_once(metastore.sql.run_statement, group)
    # The same statement releases the held lock, so no other lock waits for it.
    assert answers == {
        0: LockResponse(held + 1, LockState.ACQUIRED),
        1: LockResponse(held + 2, LockState.ACQUIRED),
        3: None,
    }
    again = LOCKS.at_once(metastore.sql.run_statement, [exclusive("held"), exclusive("other")])
    assert again == {1: LockResponse(held + 3, LockState.ACQUIRED)}
    for lock_id in range(held + 1, held + 4):
        metastore.unlock(lock_id)


def test_a_group_waits_for_a_process_that_enters_a_lock(metastore: Metastore) -> None:
    held = metastore.lock(exclusive("beside").components, "me", "here").lock_id
    group = [Unlock(held), exclusive("beside")]
    counted, go_on = threading.Event(), threading.Event()

    def enter(connection: Connection) -> None:
        advance(connection, Counter.LOCK_ID)
        counted.set()
        assert go_on.wait(60)

    with ThreadPoolExecutor(2) as pool:
        entering = pool.submit(metastore.sql.write, enter)
        assert counted.wait(60)
        done = pool.submit(LOCKS.do, metastore.sql, group)
        waiting = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        while not metastore.sql.read(lambda connection: connection.execute(waiting).scalar_one()):
            assert not done.done()
        assert [info.lock_id for info in metastore.show_locks("of_locks", "beside")] == [held]
        # A group that only releases locks needs no turn.
        assert LOCKS.do(metastore.sql, [Unlock(held)]) == {0: None}
        go_on.set()
        entering.result(60)
        # The other process has moved the counter, so the statement ran again.
        assert done.result(60) == {1: LockResponse(held + 2, LockState.ACQUIRED)}
    metastore.unlock(held + 2)


def test_a_group_that_never_gets_its_turn_leaves_its_locks_to_be_entered_alone(metastore: Metastore) -> None:
    turns = 0

    def other_was_first(*_: object) -> list[tuple[bool, list[int], list[int], list[int]]]:
        nonlocal turns
        turns += 1
        return [(False, [], [], [])]

    assert LOCKS.at_once(other_was_first, [exclusive("one"), exclusive("other")]) == {}
    assert turns == 3


def test_processes_never_hold_exclusive_locks_together(server: str, metastore: Metastore) -> None:
    holding: set[int] = set()
    met: list[set[int]] = []
    acquired = 0

    def lock_and_unlock(mine: Metastore) -> None:
        nonlocal acquired
        for _ in range(30):
            answer = mine.lock(exclusive("one").components, "me", "here")
            if answer.state is LockState.ACQUIRED:
                holding.add(answer.lock_id)
                acquired += 1
                if len(others := {*holding}) > 1:
                    met.append(others)
                # The wait is long enough to let another process in by mistake.
                time.sleep(0.005)
                holding.discard(answer.lock_id)
            mine.unlock(answer.lock_id)

    # Groups belong to an SqlDatabase, so two of them act like two processes.
    with closing(open_embedded_metastore(server)) as second:
        threads = [threading.Thread(target=lock_and_unlock, args=(one,)) for one in (metastore, second) * 3]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert acquired
    assert not met
    assert not metastore.show_locks("of_locks", "one")


def test_a_cut_connection_is_an_error_and_the_next_request_gets_another(
    metastore: Metastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No ping finds this out before the request.
    monkeypatch.setattr(sql_database, "_SURELY_ALIVE_SECONDS", 1e9)
    last = metastore.open_txn("me", "here")
    others = "pid <> pg_backend_pid() AND backend_type = 'client backend'"
    metastore.sql.write(
        lambda connection: connection.execute(
            text(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")
        )
    )
    with pytest.raises(MetastoreUnavailableError, match="terminat"):
        metastore.open_txn("me", "here")
    assert metastore.open_txn("me", "here") == last + 1


class Client(threading.Thread):
    """A client that writes to the shared table in a transaction, under a lock, and notes each answer."""

    def __init__(self, url: str, number: int) -> None:
        super().__init__()
        self.opened: list[int] = []
        self.write_ids: dict[int, int] = {}
        self.committed: list[int] = []
        self.lock_ids: list[int] = []
        self.unlocked: list[int] = []
        self.busy = threading.Event()
        self._url, self._component = url, LockComponent(LockType.EXCLUSIVE, "lake", f"t{number}")

    def run(self) -> None:
        with suppress(MetastoreUnavailableError), closing(ThriftMetastore(self._url)) as metastore:
            while True:
                self.opened.append(metastore.open_txn("me", "here"))
                self.lock_ids.append(metastore.lock([self._component], "me", "here").lock_id)
                write_id = metastore.allocate_table_write_id(self.opened[-1], "busy", "of_all")
                self.write_ids[self.opened[-1]] = write_id
                metastore.commit_txn(self.opened[-1])
                self.committed.append(self.opened[-1])
                metastore.unlock(self.lock_ids[-1])
                self.unlocked.append(self.lock_ids[-1])
                if len(self.committed) == 5:
                    self.busy.set()


def test_servers_killed_at_any_moment_lose_nothing_that_they_answered(
    server: str, metastore: Metastore, tmp_path: Path
) -> None:
    metastore.create_database("busy")
    metastore.create_table("busy", "of_all", location="/of_all", schema=[Column("id", "int")])
    first_event = metastore.current_event_id()
    with metastore_service(tmp_path, server, "--processes", "2", port=free_port()) as service:
        clients = [Client(service.uri, number) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        assert all(client.busy.wait(120) for client in clients)
        for process in [*psutil.Process(service.process.pid).children(recursive=True), service.process]:
            process.kill()
        for client in clients:
            client.join()
    # PostgreSQL may still carry out the last requests of the killed servers.
    working = text("SELECT count(*) FROM pg_stat_activity WHERE state <> 'idle' AND pid <> pg_backend_pid()")
    while metastore.sql.read(lambda connection: connection.execute(working).scalar_one()):
        time.sleep(0.01)
    events = metastore.next_events(first_event, 1_000_000)
    last = metastore.current_event_id()
    assert [event.event_id for event in events] == list(range(first_event + 1, last + 1))
    opened = [event.message["txnIds"][0] for event in events if event.event_type == EventType.OPEN_TXN]
    assert opened == list(range(opened[0], opened[0] + len(opened)))
    ended = {
        event.message["txnid"]: event.event_id for event in events if event.event_type == EventType.COMMIT_TXN
    }
    told = [txn_id for client in clients for txn_id in client.opened]
    assert len(told) == len({*told})
    assert {*told} <= {*opened}
    assert {txn_id for client in clients for txn_id in client.committed} <= ended.keys()
    for txn_id in opened:
        info = metastore.get_txn(txn_id)
        assert info.event_id == ended.get(txn_id)
        assert info.state is (TxnState.COMMITTED if txn_id in ended else TxnState.OPEN)
    taken = [
        (event.message["writeIdList"][0], event.message["txnIdList"][0])
        for event in events
        if event.event_type == EventType.ALLOC_WRITE_ID
    ]
    assert [write_id for write_id, _ in taken] == list(range(1, len(taken) + 1))
    of_txns = {txn_id: write_id for write_id, txn_id in taken}
    assert len(of_txns) == len(taken)
    for client in clients:
        assert client.write_ids.items() <= of_txns.items()
    there = {info.lock_id for info in metastore.show_locks()}
    given = [lock_id for client in clients for lock_id in client.lock_ids]
    assert len(given) == len({*given})
    assert not there & {lock_id for client in clients for lock_id in client.unlocked}
