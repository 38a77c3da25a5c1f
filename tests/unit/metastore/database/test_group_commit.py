"""Several threads share one database transaction; the failure of one request fails no other one."""

from __future__ import annotations

import random
import shutil
import signal
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from airflow_provider.exceptions import MetastoreUnavailableError, NoSuchTransactionError
from airflow_provider.metastore import LockComponent, LockState, LockType, Metastore
from airflow_provider.metastore.api.metastore import open_embedded_metastore
from airflow_provider.metastore.database import SqlDatabase, group_commit
from airflow_provider.metastore.database.group_commit import GroupedRequest, GroupOperation
from airflow_provider.metastore.transactions.transaction_group import TRANSACTIONS
from tests.unit.metastore.database.grouped_requests import check_groups

SECONDS = 30


class Gate(GroupedRequest[str]):
    """A request that blocks its group until the test releases it."""

    def __init__(self) -> None:
        self.there, self.go_on = threading.Event(), threading.Event()


class Name(GroupedRequest[str]):
    def __init__(self, name: str) -> None:
        self.name = name


@dataclass(frozen=True)
class Noted(GroupOperation):
    """An operation that records each group as a whole."""

    together: Callable[[Connection, Sequence[Any]], dict[int, Any]]

    def do(self, sql: SqlDatabase, requests: Sequence[Any]) -> dict[int, Any]:
        return sql.write(lambda connection: self.together(connection, requests))


class Groups:
    """Records which requests were done in one group, and which alone."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        self.together: list[list[str]] = []
        self.alone: list[str] = []
        self._then = then
        self.operation = Noted(self._alone, lambda _run, _requests: {}, self._together)

    def _together(self, connection: Connection, requests: Sequence[Any]) -> dict[int, str]:
        for one in requests:
            if isinstance(one, Gate):
                one.there.set()
                assert one.go_on.wait(SECONDS)
                self._then()
        names = [getattr(one, "name", "gate") for one in requests]
        self.together.append(names)
        if "bad" in names:
            raise ValueError("bad")
        return {at: name.upper() for at, name in enumerate(names) if name != "odd"}

    def _alone(self, connection: Connection, request: Name) -> str:
        self.alone.append(request.name)
        if request.name == "bad":
            raise ValueError("bad")
        return f"{request.name} alone"


def wait_for(metastore: Metastore, groups: Groups, waiting: int) -> None:
    """Wait until this many requests wait for the running one."""
    queue = metastore.sql._groups[groups.operation]
    reached = threading.Event()
    while len(queue._waiting) < waiting:
        assert not reached.wait(0.001)


def after_a_gate(metastore: Metastore, groups: Groups, names: Sequence[str]) -> tuple[Future[str], Any]:
    """Make requests while another one runs, then release that one; return its answer, and the others'."""
    gate = Gate()
    with ThreadPoolExecutor(len(names) + 1) as pool:
        first = pool.submit(metastore.sql.write_together, groups.operation, gate)
        assert gate.there.wait(SECONDS)
        others = []
        for number, name in enumerate(names, start=1):
            others.append(pool.submit(metastore.sql.write_together, groups.operation, Name(name)))
            wait_for(metastore, groups, number)
        gate.go_on.set()
    return first, others


def test_waiting_requests_are_one_group(by_database: Metastore) -> None:
    groups = Groups()
    first, others = after_a_gate(by_database, groups, ["a", "b", "odd", "c"])
    assert groups.together == [["gate"], ["a", "b", "odd", "c"]]
    assert [first.result(), *(one.result() for one in others)] == ["GATE", "A", "B", "odd alone", "C"]


def test_a_group_waits_for_the_threads_of_the_last_group(
    by_database: Metastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "_PATIENCE", 1e9)
    monkeypatch.setattr(group_commit, "_LONGEST_WAIT_SECONDS", SECONDS)
    groups, gate = Groups(), Gate()
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(by_database.sql.write_together, groups.operation, gate)
        assert gate.there.wait(SECONDS)
        a = pool.submit(by_database.sql.write_together, groups.operation, Name("a"))
        wait_for(by_database, groups, 1)
        gate.go_on.set()
        assert first.result(SECONDS) == "GATE"
        # The group had two requests; the thread that was answered makes another one.
        b = pool.submit(by_database.sql.write_together, groups.operation, Name("b"))
        assert (a.result(SECONDS), b.result(SECONDS)) == ("A", "B")
    assert groups.together == [["gate"], ["a", "b"]]


def test_a_lone_request_after_a_lone_request_does_not_wait(
    by_database: Metastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "_PATIENCE", 1e9)
    monkeypatch.setattr(group_commit, "_LONGEST_WAIT_SECONDS", 10 * SECONDS)
    groups = Groups()
    with ThreadPoolExecutor(1) as pool:
        for name in ("a", "b"):
            done = pool.submit(by_database.sql.write_together, groups.operation, Name(name))
            assert done.result(SECONDS) == name.upper()
    assert groups.together == [["a"], ["b"]]


def test_one_that_breaks_a_group_breaks_only_itself(by_database: Metastore) -> None:
    groups = Groups()
    _, (a, bad, b) = after_a_gate(by_database, groups, ["a", "bad", "b"])
    assert (a.result(), b.result()) == ("a alone", "b alone")
    with pytest.raises(ValueError, match="bad"):
        bad.result()
    assert sorted(groups.alone) == ["a", "b", "bad"]


def test_a_group_whose_database_is_gone_gets_the_error_and_is_not_done_again(by_database: Metastore) -> None:
    def gone() -> None:
        raise MetastoreUnavailableError("gone")

    groups = Groups(gone)
    first, (a,) = after_a_gate(by_database, groups, ["a"])
    with pytest.raises(MetastoreUnavailableError, match="gone"):
        first.result()
    # That request was not in the group.
    assert a.result() == "A"
    assert groups.alone == []


class Told:
    """The log's lines about a request without a waiting thread."""

    def __init__(self, name: str = "") -> None:
        self._name = name
        self._outcome: Future[str] = Future()
        self.by: threading.Thread | None = None

    def __call__(self, outcome: Callable[[], str]) -> None:
        assert not self._outcome.done()
        self.by = threading.current_thread()
        try:
            self._outcome.set_result(outcome())
        except Exception as error:
            self._outcome.set_exception(error)
        if self._name == "deaf":
            raise OSError("nobody listens")

    def result(self) -> str:
        return self._outcome.result(SECONDS)


def left_after_a_gate(metastore: Metastore, groups: Groups, names: Sequence[str]) -> list[Told]:
    """Leave some requests, in this thread, while another one runs, then release that one."""
    gate, told = Gate(), [Told(), *map(Told, names)]
    with ThreadPoolExecutor(1) as pool:
        pool.submit(metastore.sql.leave_with_others, groups.operation, gate, told[0])
        assert gate.there.wait(SECONDS)
        for name, one in zip(names, told[1:], strict=True):
            metastore.sql.leave_with_others(groups.operation, Name(name), one)
        gate.go_on.set()
    return told


def test_left_requests_are_done_together_and_answered(by_database: Metastore) -> None:
    groups = Groups()
    told = left_after_a_gate(by_database, groups, ["a", "deaf", "odd", "b"])
    assert [one.result() for one in told] == ["GATE", "A", "DEAF", "odd alone", "B"]
    assert groups.together == [["gate"], ["a", "deaf", "odd", "b"]]
    # A request that may have to wait does not delay others.
    assert told[1].by is told[4].by is not told[3].by


def test_a_left_request_that_breaks_a_group_breaks_only_itself(by_database: Metastore) -> None:
    groups = Groups()
    gate, a, bad = left_after_a_gate(by_database, groups, ["a", "bad"])
    assert (gate.result(), a.result()) == ("GATE", "a alone")
    with pytest.raises(ValueError, match="bad"):
        bad.result()


def test_left_requests_get_the_error_of_a_database_that_is_gone(by_database: Metastore) -> None:
    def gone() -> None:
        raise MetastoreUnavailableError("gone")

    groups = Groups(gone)
    gate, a = left_after_a_gate(by_database, groups, ["a"])
    with pytest.raises(MetastoreUnavailableError, match="gone"):
        gate.result()
    assert a.result() == "A"


def test_waiting_and_left_requests_are_one_group(by_database: Metastore) -> None:
    groups, gate, told = Groups(), Gate(), Told()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(by_database.sql.write_together, groups.operation, gate)
        assert gate.there.wait(SECONDS)
        by_database.sql.leave_with_others(groups.operation, Name("a"), told)
        b = pool.submit(by_database.sql.write_together, groups.operation, Name("b"))
        wait_for(by_database, groups, 2)
        gate.go_on.set()
        assert (first.result(SECONDS), told.result(), b.result(SECONDS)) == ("GATE", "A", "B")
    assert groups.together == [["gate"], ["a", "b"]]


def test_the_thread_that_leads_ends_when_nothing_comes_and_begins_again(
    by_database: Metastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "_IDLE_SECONDS", 0.01)
    groups = Groups()
    for _ in range(2):
        _, a = left_after_a_gate(by_database, groups, ["a"])
        assert a.result() == "A"
        assert a.by is not None
        a.by.join(SECONDS)
        assert not a.by.is_alive()


def test_a_waiting_thread_does_not_wait_for_an_interrupted_leader(by_database: Metastore) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    groups = Groups(interrupt)
    gate, told = Gate(), []

    def lead() -> None:
        try:
            by_database.sql.write_together(groups.operation, gate)
        except KeyboardInterrupt as error:
            told.append(error)

    leader = threading.Thread(target=lead)
    leader.start()
    assert gate.there.wait(SECONDS)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(by_database.sql.write_together, groups.operation, Name("a"))
        wait_for(by_database, groups, 1)
        gate.go_on.set()
        assert other.result(SECONDS) == "A"
    leader.join()
    assert len(told) == 1


def test_no_group_waits_for_a_thread_that_was_interrupted_while_it_waited(by_database: Metastore) -> None:
    groups, gate = Groups(), Gate()

    def interrupted(*_: object) -> None:
        raise TimeoutError("a task's timeout")

    before = signal.signal(signal.SIGUSR1, interrupted)
    main = threading.main_thread().ident
    assert main is not None

    def interrupt_main() -> None:
        wait_for(by_database, groups, 1)
        signal.pthread_kill(main, signal.SIGUSR1)

    try:
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(by_database.sql.write_together, groups.operation, gate)
            assert gate.there.wait(SECONDS)
            pool.submit(interrupt_main)
            with pytest.raises(TimeoutError, match="a task's timeout"):
                by_database.sql.write_together(groups.operation, Name("main"))
            gate.go_on.set()
            assert first.result(SECONDS) == "GATE"
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert by_database.sql.write_together(groups.operation, Name("next")) == "NEXT"
    assert groups.together == [["gate"], ["next"]]


def test_a_transaction_that_cannot_be_stored_leaves_the_others_of_its_group(by_database: Metastore) -> None:
    barrier = threading.Barrier(9)

    def open_txn(user: str) -> int:
        barrier.wait(SECONDS)
        return by_database.open_txn(user, "here")

    with ThreadPoolExecutor(9) as pool:
        opened = [pool.submit(open_txn, f"u{number}") for number in range(8)]
        broken = pool.submit(open_txn, "no text: \ud800")
        assert sorted(one.result() for one in opened) == list(range(1, 9))
        with pytest.raises(UnicodeEncodeError):
            broken.result()
    assert by_database.open_txn("next", "here") == 9
    assert [event.event_id for event in by_database.next_events(2)] == list(range(3, 12))


def test_a_commit_of_an_unknown_transaction_fails_in_its_own_thread_only(by_database: Metastore) -> None:
    txn_ids = [by_database.open_txn("me", "here") for _ in range(8)]
    barrier = threading.Barrier(9)

    def commit(txn_id: int) -> int:
        barrier.wait(SECONDS)
        return by_database.commit_txn(txn_id)

    with ThreadPoolExecutor(9) as pool:
        committed = [pool.submit(commit, txn_id) for txn_id in txn_ids]
        unknown = pool.submit(commit, 99)
        assert sorted(one.result() for one in committed) == list(range(11, 19))
        with pytest.raises(NoSuchTransactionError, match="99"):
            unknown.result()


def test_a_lock_of_a_transaction_that_ended_meanwhile_blocks_no_lock(
    by_database: Metastore, url: str
) -> None:
    component = LockComponent(LockType.EXCLUSIVE, "lake", "flights")
    txn_id = by_database.open_txn("me", "here")
    by_database.lock([component], "me", "here", txn_id=txn_id)
    # A statement of PostgreSQL that began before the lock existed leaves this state.
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database, database:
        database.execute("UPDATE metastore_txns SET state = 'c', closing_event_id = 4")
    assert by_database.show_locks() == []
    assert by_database.lock([component], "you", "here").state is LockState.ACQUIRED


@pytest.mark.parametrize("seed", range(6))
def test_a_group_does_what_its_requests_do_one_by_one(new_database: Path, tmp_path: Path, seed: int) -> None:
    metastores = []
    for name in ("grouped", "single"):
        shutil.copy(new_database, tmp_path / f"{name}.db")
        metastores.append(open_embedded_metastore(f"sqlite:///{tmp_path}/{name}.db"))
    check_groups(*metastores, random.Random(seed), 20)
    for metastore in metastores:
        metastore.close()


def test_all_that_threads_ask_for_is_one_group_after_the_other(by_database: Metastore) -> None:
    with ThreadPoolExecutor(8) as pool:
        opened = list(pool.map(lambda _: by_database.open_txn("me", "here"), range(64)))
        events = list(pool.map(by_database.commit_txn, opened))
    assert sorted(opened) == list(range(1, 65))
    assert sorted(events) == list(range(2 + 64 + 1, 2 + 128 + 1))
    for txn_id, event_id in zip(opened, events, strict=True):
        assert by_database.get_txn(txn_id).event_id == event_id
    assert by_database.sql._groups[TRANSACTIONS]._waiting == []
