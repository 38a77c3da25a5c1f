"""The metastore under real processes that work at the same time and die at any moment."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from multiprocessing.context import ForkServerProcess
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.exceptions import AlreadyExistsError
from airflow_provider.metastore import (
    Column,
    EventType,
    Metastore,
    NotificationEvent,
    PartitionSpec,
    TxnState,
    open_metastore,
    table_transaction,
)
from airflow_provider.metastore.transactions.transactions import open_txn
from tests.processes.forks import FORKS

PROCESSES = 4


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/metastore.db"


@pytest.fixture
def metastore(url: str) -> Iterator[Metastore]:
    opened = open_metastore(url)
    opened.create_database("lake")
    opened.create_table(
        "lake",
        "flights",
        location="/lake/flights",
        schema=[Column("id", "bigint")],
        partition_keys=[Column("writer", "string"), Column("number", "int")],
    )
    yield opened
    opened.close()


def start(target: Any, *arguments: Any) -> ForkServerProcess:
    process = FORKS.Process(target=target, args=arguments, daemon=True)
    process.start()
    return process


def end(processes: list[ForkServerProcess]) -> None:
    for process in processes:
        process.join(500)
    assert [process.exitcode for process in processes] == [0] * len(processes)


def check_log(metastore: Metastore) -> list[NotificationEvent]:
    """Check that the log agrees with the metastore's state, and return all its events."""
    events = metastore.next_events(0, 1_000_000)
    assert [event.event_id for event in events] == list(range(1, len(events) + 1))
    assert metastore.current_event_id() == len(events)
    opened: list[int] = []
    ended: dict[int, tuple[TxnState, int]] = {}
    write_ids: dict[int, int] = {}
    partitions: set[tuple[str, ...]] = set()
    for event in events:
        match event.event_type:
            case EventType.OPEN_TXN:
                opened += event.message["txnIds"]
            case EventType.COMMIT_TXN | EventType.ABORT_TXN:
                state = TxnState.COMMITTED if event.event_type == EventType.COMMIT_TXN else TxnState.ABORTED
                assert ended.setdefault(event.message["txnid"], (state, event.event_id))[1] == event.event_id
            case EventType.ALLOC_WRITE_ID:
                ((txn_id, write_id),) = zip(
                    event.message["txnIdList"], event.message["writeIdList"], strict=True
                )
                assert txn_id in opened
                assert txn_id not in ended
                assert write_id == len(write_ids) + 1
                write_ids[txn_id] = write_id
            case EventType.ADD_PARTITION:
                added = {tuple(one.values()) for one in event.message["partitions"]}
                assert not added & partitions
                partitions |= added
    assert opened == list(range(1, len(opened) + 1))
    for txn_id in opened:
        info = metastore.get_txn(txn_id)
        assert (info.state, info.event_id) == ended.get(txn_id, (TxnState.OPEN, None))
        written = [write.write_id for write in metastore.writes_of(txn_id)]
        assert written == ([write_ids[txn_id]] if txn_id in write_ids else [])
    assert {one.values for one in metastore.get_partitions("lake", "flights")} == partitions
    seen = metastore.valid_write_id_list("lake", "flights")
    for txn_id, write_id in write_ids.items():
        assert seen.is_valid(write_id) == (ended.get(txn_id, (None,))[0] == TxnState.COMMITTED)
    return events


def _open_new(url: str, name: str, at_once: Barrier) -> None:
    at_once.wait(300)
    metastore = open_metastore(url)
    metastore.create_database(name)
    metastore.create_database("shared", if_not_exists=True)


def test_many_processes_open_one_new_database(url: str) -> None:
    at_once = FORKS.Barrier(PROCESSES)
    end([start(_open_new, url, f"d{number}", at_once) for number in range(PROCESSES)])
    metastore = open_metastore(url)
    assert metastore.list_databases() == ["d0", "d1", "d2", "d3", "default", "shared"]
    assert [event.event_type for event in metastore.next_events(0)] == [EventType.CREATE_DATABASE] * 5


def _write(url: str, name: str, rounds: int, at_once: Barrier) -> None:
    metastore = open_metastore(url)
    at_once.wait(300)
    for number in range(rounds):
        transaction = table_transaction(metastore, "lake", "flights", user=name)
        try:
            with transaction:
                transaction.add_partitions([PartitionSpec((name, str(number)), "/p")])
                if number % 5 == 4:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            pass
        assert metastore.commit_txn(metastore.open_txn(name, "here")) > 0


def test_ids_have_no_gap_among_processes_that_write_at_once(metastore: Metastore, url: str) -> None:
    rounds = 40
    at_once = FORKS.Barrier(PROCESSES + 1)
    writers = [start(_write, url, f"w{number}", rounds, at_once) for number in range(PROCESSES)]
    at_once.wait(300)
    # A reader of the growing log never skips an event that appears later.
    position, read = 0, []
    while any(writer.is_alive() for writer in writers):
        batch = metastore.next_events(position)
        read += [event.event_id for event in batch]
        position = read[-1] if read else 0
    end(writers)
    events = check_log(metastore)
    read += [event.event_id for event in metastore.next_events(position, 100_000)]
    assert read == [event.event_id for event in events]
    kinds = [event.event_type for event in events]
    assert kinds.count(EventType.OPEN_TXN) == 2 * rounds * PROCESSES
    assert kinds.count(EventType.ALLOC_WRITE_ID) == rounds * PROCESSES
    assert kinds.count(EventType.ABORT_TXN) == rounds * PROCESSES // 5
    assert kinds.count(EventType.ADD_PARTITION) == rounds * PROCESSES * 4 // 5


def _create_same(url: str, at_once: Barrier, outcomes: Queue[str]) -> None:
    metastore = open_metastore(url)
    at_once.wait(300)
    for number in range(10):
        try:
            metastore.create_table("lake", f"t{number}", location="/t", schema=[Column("id", "int")])
        except AlreadyExistsError:
            outcomes.put("exists")
        else:
            outcomes.put("made")


def test_of_many_that_create_a_table_one_succeeds(metastore: Metastore, url: str) -> None:
    at_once = FORKS.Barrier(PROCESSES)
    outcomes: Queue[str] = FORKS.Queue()
    creators = [start(_create_same, url, at_once, outcomes) for _ in range(PROCESSES)]
    told = sorted(outcomes.get(timeout=300) for _ in range(10 * PROCESSES))
    end(creators)
    assert told == ["exists"] * (10 * PROCESSES - 10) + ["made"] * 10
    assert len(metastore.list_tables("lake")) == 11
    assert len(check_log(metastore)) == 12


def _stop_in_the_middle(url: str, there: Event) -> None:
    metastore = open_metastore(url)

    def write(connection: Any) -> None:
        open_txn(connection, "me", "here", agent=None, commit_on_recovery=True)
        there.set()
        time.sleep(600)

    metastore._sql.write(write)


def test_a_process_killed_inside_a_change_leaves_nothing_of_it(metastore: Metastore, url: str) -> None:
    there = FORKS.Event()
    process = start(_stop_in_the_middle, url, there)
    assert there.wait(300)
    assert metastore.current_event_id() == 2
    process.kill()
    process.join()
    assert metastore.open_txn("me", "here") == 1
    assert [event.event_type for event in check_log(metastore)][2:] == [EventType.OPEN_TXN]


def _write_for_ever(url: str, name: str, begun: Event) -> None:
    metastore = open_metastore(url)
    number = 0
    while True:
        with table_transaction(metastore, "lake", "flights", user=name) as transaction:
            transaction.add_partitions([PartitionSpec((name, str(number)), "/p")])
        number += 1
        begun.set()


def test_processes_killed_at_any_moment_leave_nothing_half(metastore: Metastore, url: str) -> None:
    chance = random.Random(7)
    for round_number in range(4):
        begun = [FORKS.Event() for _ in range(2)]
        writers = [
            start(_write_for_ever, url, f"w{round_number}.{number}", event)
            for number, event in enumerate(begun)
        ]
        assert all(event.wait(300) for event in begun)
        for writer in writers:
            time.sleep(chance.random() / 20)
            os.kill(writer.pid or 0, signal.SIGKILL)
            writer.join()
        check_log(metastore)
    # Each killed writer had at most one transaction open; the timeout ends it.
    time.sleep(0.01)
    assert len(metastore.recover_timed_out(0.001, lambda write: False)) <= 8
    assert check_log(metastore)[-1].event_id == metastore.current_event_id()
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
