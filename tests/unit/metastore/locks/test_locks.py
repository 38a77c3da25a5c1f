"""Hive's lock manager: the locks that wait for each other, their order, and their ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import product

import pytest

from airflow_provider.exceptions import (
    InvalidInputError,
    NoSuchLockError,
    NoSuchTransactionError,
    TransactionAbortedError,
    TransactionOpenError,
)
from airflow_provider.metastore import AnyMetastore, LockComponent, LockState, LockType
from tests.unit.metastore.conftest import only_database
from tests.unit.metastore.database.database_rows import change_rows

READ, WRITE, EXCL_WRITE, EXCLUSIVE = (
    LockType.SHARED_READ,
    LockType.SHARED_WRITE,
    LockType.EXCL_WRITE,
    LockType.EXCLUSIVE,
)
HELD = [READ, WRITE, EXCL_WRITE, EXCLUSIVE]
# Requested: for each of HELD, whether the request waits for it (Hive: CheckLockFunction).
WAITS = {
    READ: [False, False, False, True],
    WRITE: [False, False, True, True],
    EXCL_WRITE: [False, True, True, True],
    EXCLUSIVE: [True, True, True, True],
}
MATRIX = [(one, held, waits) for one in HELD for held, waits in zip(HELD, WAITS[one], strict=True)]

DATABASE = ("lake",)
TABLE = ("lake", "flights")
PARTITION = ("lake", "flights", "month=1")
PLACES = [DATABASE, TABLE, PARTITION]

Timeout = Callable[[int, float], None]


@pytest.fixture
def silence_lock(url: str) -> Timeout:
    """A function that moves a lock's last heartbeat into the past: ``silence_lock(lock_id, seconds)``."""

    def silence(lock_id: int, seconds: float) -> None:
        moved = change_rows(
            url,
            "UPDATE metastore_locks SET heartbeat_at = heartbeat_at - :millis WHERE id = :id",
            millis=int(seconds * 1000),
            id=lock_id,
        )
        assert moved == 1

    return silence


def lock(
    metastore: AnyMetastore, *components: tuple[LockType, tuple[str, ...]], txn_id: int | None = None
) -> tuple[int, LockState]:
    asked = [LockComponent(type_, *place) for type_, place in components]
    response = metastore.lock(asked, "me", "here", txn_id=txn_id)
    return response.lock_id, response.state


@pytest.mark.parametrize(("requested", "held", "waits"), MATRIX)
def test_the_compatibility_matrix_on_one_table(
    metastore: AnyMetastore, requested: LockType, held: LockType, waits: bool
) -> None:
    first, state = lock(metastore, (held, TABLE))
    assert state is LockState.ACQUIRED
    second, state = lock(metastore, (requested, TABLE))
    assert (state is LockState.WAITING) == waits
    assert metastore.check_lock(second) is state
    metastore.unlock(first)
    assert metastore.check_lock(second) is LockState.ACQUIRED


@pytest.mark.parametrize(("requested_on", "held_on"), list(product(PLACES, PLACES)))
def test_the_matrix_on_a_database_its_tables_and_their_partitions(
    metastore: AnyMetastore, requested_on: tuple[str, ...], held_on: tuple[str, ...]
) -> None:
    for requested, held, waits in MATRIX:
        if (requested, held) == (READ, EXCLUSIVE) and requested_on == DATABASE != held_on:
            waits = False  # a reader of a database does not block the drop of one of its tables
        if (requested, held) == (EXCLUSIVE, READ) and held_on == DATABASE != requested_on:
            waits = False
        first, _ = lock(metastore, (held, held_on))
        second, state = lock(metastore, (requested, requested_on))
        assert (state is LockState.WAITING) == waits, (requested, held)
        metastore.unlock(first)
        metastore.unlock(second)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (DATABASE, ("lake2",)),
        (TABLE, ("lake", "trains")),
        (TABLE, ("lake2", "flights")),
        (PARTITION, ("lake", "flights", "month=2")),
        (PARTITION, ("lake", "trains", "month=1")),
    ],
)
def test_other_places_are_not_locked(
    metastore: AnyMetastore, one: tuple[str, ...], other: tuple[str, ...]
) -> None:
    lock(metastore, (EXCLUSIVE, one))
    assert lock(metastore, (EXCLUSIVE, other))[1] is LockState.ACQUIRED


def test_the_case_of_names_does_not_matter(metastore: AnyMetastore) -> None:
    lock(metastore, (EXCLUSIVE, ("Lake", "FLIGHTS")))
    assert lock(metastore, (READ, TABLE))[1] is LockState.WAITING
    assert len(metastore.show_locks("LAKE", "Flights")) == 2


def test_first_come_first_served_also_behind_one_that_waits(metastore: AnyMetastore) -> None:
    reader, _ = lock(metastore, (READ, TABLE))
    writer, state = lock(metastore, (EXCLUSIVE, TABLE))
    assert state is LockState.WAITING
    # The lock is compatible with the first one; but the second one would starve.
    late_reader, state = lock(metastore, (READ, TABLE))
    assert state is LockState.WAITING
    metastore.unlock(reader)
    assert metastore.check_lock(late_reader) is LockState.WAITING
    assert metastore.check_lock(writer) is LockState.ACQUIRED
    assert metastore.check_lock(late_reader) is LockState.WAITING
    metastore.unlock(writer)
    assert metastore.check_lock(late_reader) is LockState.ACQUIRED


def test_a_lock_that_gives_up_waiting_lets_the_others_pass(metastore: AnyMetastore) -> None:
    lock(metastore, (READ, TABLE))
    writer, _ = lock(metastore, (EXCLUSIVE, TABLE))
    late_reader, _ = lock(metastore, (READ, TABLE))
    metastore.unlock(writer)
    assert metastore.check_lock(late_reader) is LockState.ACQUIRED
    with pytest.raises(NoSuchLockError, match=f"lock {writer} does not exist"):
        metastore.check_lock(writer)


def test_all_components_or_none(metastore: AnyMetastore) -> None:
    trains = ("lake", "trains")
    blocking, _ = lock(metastore, (EXCLUSIVE, trains))
    both, state = lock(metastore, (EXCLUSIVE, TABLE), (EXCLUSIVE, trains))
    assert state is LockState.WAITING
    assert lock(metastore, (READ, TABLE))[1] is LockState.WAITING  # behind the waiting lock
    metastore.unlock(blocking)
    assert metastore.check_lock(both) is LockState.ACQUIRED
    shown = [info for info in metastore.show_locks() if info.lock_id == both]
    assert [info.component.table for info in shown] == ["flights", "trains"]
    assert {info.state for info in shown} == {LockState.ACQUIRED}


def test_ids_grow_over_all_tables(metastore: AnyMetastore) -> None:
    ids = [lock(metastore, (READ, place))[0] for place in (*PLACES, ("other", "t"))]
    assert ids == [1, 2, 3, 4]
    for lock_id in ids:
        metastore.unlock(lock_id)
    assert lock(metastore, (READ, TABLE))[0] == 5


def test_a_lock_that_does_not_wait_leaves_nothing_behind(metastore: AnyMetastore) -> None:
    held, _ = lock(metastore, (EXCLUSIVE, TABLE))
    exclusive = [LockComponent(EXCLUSIVE, *TABLE)]
    refused = metastore.lock(exclusive, "me", "here", wait=False)
    assert refused.state is LockState.NOT_ACQUIRED
    assert [info.lock_id for info in metastore.show_locks()] == [held]
    with pytest.raises(NoSuchLockError):
        metastore.check_lock(refused.lock_id)
    metastore.unlock(held)
    assert metastore.lock(exclusive, "me", "here", wait=False).state is LockState.ACQUIRED


def test_unlock_of_a_missing_lock_is_silent(metastore: AnyMetastore) -> None:
    metastore.unlock(99)
    held, _ = lock(metastore, (EXCLUSIVE, TABLE))
    metastore.unlock(held)
    metastore.unlock(held)
    for ask in (metastore.check_lock, metastore.heartbeat_lock):
        with pytest.raises(NoSuchLockError):
            ask(held)


def test_a_component_names_what_it_is_on() -> None:
    with pytest.raises(InvalidInputError, match="a lock is on a database"):
        LockComponent(READ, "lake", None, "month=1")
    with pytest.raises(InvalidInputError):
        LockComponent(READ, "")


def test_a_lock_needs_a_component(metastore: AnyMetastore) -> None:
    with pytest.raises(InvalidInputError, match="without any component"):
        metastore.lock([], "me", "here")


class TestTimeouts:
    """Hive's default is 300 s without a heartbeat."""

    def test_a_silent_holder_makes_way(self, metastore: AnyMetastore, silence_lock: Timeout) -> None:
        dead, _ = lock(metastore, (EXCLUSIVE, TABLE))
        heir, _ = lock(metastore, (EXCLUSIVE, TABLE))
        silence_lock(dead, 200)
        assert metastore.check_lock(heir) is LockState.WAITING
        silence_lock(dead, 101)
        assert metastore.check_lock(heir) is LockState.ACQUIRED
        with pytest.raises(NoSuchLockError):
            metastore.heartbeat_lock(dead)

    def test_a_silent_waiter_makes_way(self, metastore: AnyMetastore, silence_lock: Timeout) -> None:
        lock(metastore, (READ, TABLE))
        dead, _ = lock(metastore, (EXCLUSIVE, TABLE))
        silence_lock(dead, 301)
        assert lock(metastore, (READ, TABLE))[1] is LockState.ACQUIRED

    def test_all_that_are_silent_make_way_at_once(
        self, metastore: AnyMetastore, silence_lock: Timeout
    ) -> None:
        dead = [lock(metastore, (EXCLUSIVE, TABLE))[0] for _ in range(3)]
        for lock_id in dead:
            silence_lock(lock_id, 301)
        assert lock(metastore, (EXCLUSIVE, TABLE))[1] is LockState.ACQUIRED

    @pytest.mark.parametrize("ask", ["heartbeat_lock", "check_lock"])
    def test_a_late_heartbeat_loses_the_lock_although_no_other_lock_took_over(
        self, metastore: AnyMetastore, silence_lock: Timeout, ask: str
    ) -> None:
        held, _ = lock(metastore, (EXCLUSIVE, TABLE))
        silence_lock(held, 301)
        assert metastore.show_locks() == []
        with pytest.raises(NoSuchLockError):
            getattr(metastore, ask)(held)

    @pytest.mark.parametrize("ask", ["heartbeat_lock", "check_lock"])
    def test_a_heartbeat_keeps_it(self, metastore: AnyMetastore, silence_lock: Timeout, ask: str) -> None:
        held, _ = lock(metastore, (EXCLUSIVE, TABLE))
        for _ in range(3):
            silence_lock(held, 200)
            getattr(metastore, ask)(held)
        assert metastore.check_lock(held) is LockState.ACQUIRED

    @only_database
    def test_each_lock_has_its_own_timeout(self, metastore: AnyMetastore, silence_lock: Timeout) -> None:
        components = [LockComponent(EXCLUSIVE, *TABLE)]
        short = metastore.lock(components, "me", "here", timeout_seconds=2.5)
        heir, _ = lock(metastore, (EXCLUSIVE, TABLE))
        silence_lock(short.lock_id, 2)
        assert metastore.check_lock(heir) is LockState.WAITING
        silence_lock(short.lock_id, 1)
        assert metastore.check_lock(heir) is LockState.ACQUIRED

    @only_database
    def test_the_reaper_removes_locks_that_block_no_other(
        self, metastore: AnyMetastore, silence_lock: Timeout
    ) -> None:
        dead = [lock(metastore, (READ, TABLE))[0] for _ in range(2)]
        alive, _ = lock(metastore, (READ, TABLE))
        of_txn, _ = lock(metastore, (READ, TABLE), txn_id=metastore.open_txn("me", "here"))
        for lock_id in (*dead, of_txn):
            silence_lock(lock_id, 301)
        assert metastore.remove_timed_out_locks() == dead
        assert [info.lock_id for info in metastore.show_locks()] == [alive, of_txn]
        assert metastore.remove_timed_out_locks() == []


class TestTransactions:
    """Locks that belong to a transaction."""

    def test_locks_of_one_transaction_are_not_in_each_others_way(self, metastore: AnyMetastore) -> None:
        mine, other = metastore.open_txn("me", "here"), metastore.open_txn("you", "there")
        lock(metastore, (EXCLUSIVE, TABLE), txn_id=mine)
        assert lock(metastore, (EXCLUSIVE, TABLE), txn_id=mine)[1] is LockState.ACQUIRED
        assert lock(metastore, (EXCLUSIVE, TABLE), txn_id=other)[1] is LockState.WAITING
        assert lock(metastore, (EXCLUSIVE, TABLE))[1] is LockState.WAITING
        assert [info.lock_id for info in metastore.show_locks(txn_id=mine)] == [1, 2]

    @pytest.mark.parametrize("end", ["commit_txn", "abort_txn"])
    def test_they_end_with_it(self, metastore: AnyMetastore, end: str) -> None:
        txn_id = metastore.open_txn("me", "here")
        held, _ = lock(metastore, (EXCLUSIVE, TABLE), txn_id=txn_id)
        heir, _ = lock(metastore, (EXCLUSIVE, TABLE))
        getattr(metastore, end)(txn_id)
        assert metastore.check_lock(heir) is LockState.ACQUIRED
        for ask in (metastore.check_lock, metastore.heartbeat_lock):
            with pytest.raises(NoSuchLockError):
                ask(held)
        metastore.unlock(held)

    def test_only_a_waiting_one_can_be_given_up(self, metastore: AnyMetastore) -> None:
        blocking, _ = lock(metastore, (EXCLUSIVE, TABLE))
        txn_id = metastore.open_txn("me", "here")
        first, _ = lock(metastore, (READ, TABLE), txn_id=txn_id)
        second, _ = lock(metastore, (READ, TABLE), txn_id=txn_id)
        metastore.unlock(first)
        metastore.unlock(blocking)
        assert metastore.check_lock(second) is LockState.ACQUIRED
        with pytest.raises(TransactionOpenError, match=f"belongs to transaction {txn_id}, which is open"):
            metastore.unlock(second)
        assert metastore.check_lock(second) is LockState.ACQUIRED

    @pytest.mark.parametrize("ask", ["heartbeat_lock", "check_lock"])
    def test_their_heartbeat_is_the_transactions(
        self,
        metastore: AnyMetastore,
        silence: Timeout,
        silence_lock: Timeout,
        ask: str,
    ) -> None:
        txn_id = metastore.open_txn("me", "here")
        held, _ = lock(metastore, (EXCLUSIVE, TABLE), txn_id=txn_id)
        silence(txn_id, 1000)
        silence_lock(held, 1000)
        getattr(metastore, ask)(held)
        assert metastore.abort_timed_out(300) == []
        silence(txn_id, 1000)
        assert metastore.abort_timed_out(300) == [txn_id]
        with pytest.raises(NoSuchLockError):
            getattr(metastore, ask)(held)

    def test_only_an_open_one_gets_locks(self, metastore: AnyMetastore) -> None:
        aborted, committed = metastore.open_txn("me", "here"), metastore.open_txn("me", "here")
        metastore.abort_txn(aborted)
        metastore.commit_txn(committed)
        with pytest.raises(TransactionAbortedError):
            lock(metastore, (READ, TABLE), txn_id=aborted)
        for txn_id in (committed, 99):
            with pytest.raises(NoSuchTransactionError):
                lock(metastore, (READ, TABLE), txn_id=txn_id)
        assert metastore.show_locks() == []


def test_a_lock_goes_on_when_its_table_is_renamed(metastore: AnyMetastore) -> None:
    held, _ = lock(metastore, (EXCLUSIVE, PARTITION))
    metastore.rename_table("lake", "flights", "lake", "trips")
    assert lock(metastore, (READ, ("lake", "trips")))[1] is LockState.WAITING
    assert lock(metastore, (READ, TABLE))[1] is LockState.ACQUIRED
    assert metastore.check_lock(held) is LockState.ACQUIRED


def test_show_locks_lists_each_component(metastore: AnyMetastore) -> None:
    txn_id = metastore.open_txn("me", "here")
    metastore.lock([LockComponent(EXCLUSIVE, *PARTITION)], "me", "here", agent="dag.task", txn_id=txn_id)
    lock(metastore, (WRITE, TABLE))
    lock(metastore, (READ, ("other", "t")))
    held, waiting = metastore.show_locks("lake")
    assert held.component == LockComponent(EXCLUSIVE, *PARTITION)
    assert (held.user, held.host, held.agent, held.txn_id) == ("me", "here", "dag.task", txn_id)
    assert held.state is LockState.ACQUIRED
    assert held.acquired_at is not None
    assert abs(held.acquired_at - time.time()) < 300
    assert abs(waiting.heartbeat_at - time.time()) < 300
    assert (waiting.state, waiting.acquired_at, waiting.agent) == (LockState.WAITING, None, None)
    assert [info.lock_id for info in metastore.show_locks(partition="month=1")] == [held.lock_id]
    assert len(metastore.show_locks(table="flights")) == 2
    assert len(metastore.show_locks()) == 3
