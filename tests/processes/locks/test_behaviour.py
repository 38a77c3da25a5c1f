"""The promises of every lock provider, with processes that die, are paused, or lose their backend."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pytest

from airflow_provider.exceptions import LockLostError, LockTimeoutError, LockUnavailableError
from tests.processes.locks.conftest import BUSY, FAIR, PROVIDERS, SERVERS, Backend

LEASE = 1.5
SHORT_LEASE = 0.8  # of holders that shall not keep it

every_provider = pytest.mark.parametrize("backend", PROVIDERS, indirect=True)
every_server = pytest.mark.parametrize("backend", SERVERS, indirect=True)


@every_provider
def test_processes_exclude_each_other_and_their_tokens_grow(backend: Backend, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("")
    contenders = [backend.contender() for _ in range(4)]
    for contender in contenders:
        contender.tell("append_tokens", file, 15)
    for contender in contenders:
        contender.answer()
    tokens = [int(token) for token in file.read_text().split()]
    assert len(tokens) == 60
    assert tokens == sorted(set(tokens))


@every_provider
def test_who_waits_in_vain_learns_who_holds_the_lock(backend: Backend) -> None:
    holder = backend.contender(owner="ingest of flights", lease_seconds=3 * LEASE)
    token = holder.acquire()
    waiter = backend.lock()
    waiting = time.monotonic()
    with pytest.raises(LockTimeoutError, match="held by ingest of flights") as raised:
        waiter.acquire(timeout=3.5 * LEASE)  # the holder is alive, so its lease continues
    assert 3.5 * LEASE <= time.monotonic() - waiting < 3.5 * LEASE + BUSY
    assert raised.value.details["holder"] == "ingest of flights"
    assert holder.is_held()
    found = backend.lock().holder()
    assert found is not None
    assert (found.owner, found.fencing_token) == ("ingest of flights", token)
    holder.release()
    assert backend.lock().holder() is None


@every_provider
def test_the_lease_of_a_dead_holder_runs_out(backend: Backend) -> None:
    holder, heir = backend.contender(lease_seconds=SHORT_LEASE), backend.contender()
    token = holder.acquire()
    died = time.monotonic()
    holder.kill()
    assert heir.acquire(timeout=60) > token
    assert time.monotonic() - died < SHORT_LEASE + backend.slack + BUSY
    assert heir.is_held()


@every_provider
def test_those_who_wait_for_a_dead_holder_take_its_lock_one_after_the_other(
    backend: Backend, tmp_path: Path
) -> None:
    file = tmp_path / "tokens"
    file.write_text("")
    holder = backend.contender(lease_seconds=SHORT_LEASE)
    heirs = [backend.contender() for _ in range(4)]
    for heir in heirs:
        assert not heir.is_held()  # it is there
    token = holder.acquire()
    for heir in heirs:
        heir.tell("append_tokens", file, 2, 0.03)
    time.sleep(0.2)  # they wait
    holder.kill()
    for heir in heirs:
        heir.answer()
    tokens = [int(token) for token in file.read_text().split()]
    assert len(tokens) == 8
    assert [token, *tokens] == sorted({token, *tokens})


@every_provider
def test_a_paused_holder_wakes_up_without_the_lock(backend: Backend) -> None:
    sleeper, heir = backend.contender(lease_seconds=SHORT_LEASE), backend.contender(lease_seconds=60)
    token = sleeper.acquire()
    sleeper.pause()
    heirs = heir.acquire(timeout=60)
    assert heirs > token
    sleeper.go_on()
    assert not sleeper.is_held()
    with pytest.raises(LockLostError, match="had expired or was taken away"):
        sleeper.release()
    assert heir.is_held()
    heir.release()


@every_provider
def test_a_lease_that_nobody_took_over_is_lost_all_the_same(backend: Backend) -> None:
    sleeper = backend.contender(lease_seconds=SHORT_LEASE)
    sleeper.acquire()
    sleeper.pause()
    time.sleep(SHORT_LEASE + backend.slack)
    sleeper.go_on()
    assert not sleeper.is_held()
    with pytest.raises(LockLostError):
        sleeper.release()
    backend.lock().acquire(timeout=60)


@every_provider
def test_who_does_not_hold_the_lock_cannot_release_it(backend: Backend) -> None:
    holder, other = backend.contender(), backend.contender()
    holder.acquire()
    with pytest.raises(LockLostError, match="is not held"):
        other.release()
    assert holder.is_held()
    assert not other.is_held()
    holder.release()
    with pytest.raises(LockLostError):
        holder.release()
    assert other.acquire(timeout=60)


@pytest.mark.parametrize("backend", FAIR, indirect=True)
def test_first_come_first_served(backend: Backend) -> None:
    names = ["first", "second", "third", "fourth"]
    contenders = [backend.contender(owner=name) for name in names]
    tokens = [contenders[0].acquire()]
    observer = backend.lock()
    for number, contender in enumerate(contenders[1:], start=1):
        contender.tell("acquire", 300)
        while len(observer.waiters()) < number:
            time.sleep(0.01)
    assert observer.waiters() == names[1:]
    for current, following in pairwise(contenders):
        current.release()
        tokens.append(following.answer())
        assert following.is_held()
    assert tokens == sorted(tokens)
    assert observer.waiters() == []


@pytest.mark.parametrize("backend", FAIR, indirect=True)
def test_nobody_waits_for_long_behind_a_waiter_that_died(backend: Backend) -> None:
    holder, dead, patient = (backend.contender(lease_seconds=3) for _ in range(3))
    observer = backend.lock()
    holder.acquire()
    for number, contender in enumerate((dead, patient), start=1):
        contender.tell("acquire", 60)
        while len(observer.waiters()) < number:
            time.sleep(0.01)
    dead.kill()
    holder.release()
    patient.answer(timeout=3 + BUSY)
    assert patient.is_held()


@pytest.mark.parametrize("backend", FAIR, indirect=True)
def test_who_contends_all_the_time_does_not_starve_the_others(backend: Backend, tmp_path: Path) -> None:
    """When the first contender has had 30 turns, each other contender has had at least 10.

    The number is below 30, because the system may give a process no core during some turns of the others.
    """
    contenders = [backend.contender() for _ in range(4)]
    with backend.lock() as held:  # until all contenders are in the line
        for number, contender in enumerate(contenders):
            (tmp_path / str(number)).write_text("")
            contender.tell("append_tokens", tmp_path / str(number), 30)
        while len(held.waiters()) < len(contenders):
            time.sleep(0.01)
    for contender in contenders:
        contender.answer()
    tokens = [[int(t) for t in (tmp_path / str(number)).read_text().split()] for number in range(4)]
    first_done = min(of_one[-1] for of_one in tokens)
    for of_one in tokens:
        assert sum(token <= first_done for token in of_one) >= 10


@every_server
def test_holder_and_waiter_outlive_a_restart_of_the_backend(backend: Backend) -> None:
    options = {"lease_seconds": backend.longest_lease, "connection_timeout_seconds": 50}
    holder, waiter = backend.contender(**options), backend.contender(**options)
    holder.acquire()
    waiter.tell("acquire", 600)
    backend.stop()
    backend.start()
    assert holder.is_held()
    with pytest.raises(LockTimeoutError):
        backend.lock().acquire(timeout=0.5)
    holder.release()
    waiter.answer()
    assert waiter.is_held()
    assert not holder.is_held()


@every_server
def test_without_the_backend_nobody_waits_for_long_and_nobody_holds(backend: Backend) -> None:
    options = {"lease_seconds": 2, "connection_timeout_seconds": 1}
    holder, waiter = backend.contender(**options), backend.contender(**options)
    holder.acquire()
    waiter.tell("acquire", 60)
    backend.stop()
    away = time.monotonic()
    try:
        assert not holder.is_held()
        with pytest.raises(LockUnavailableError):
            waiter.answer()
        with pytest.raises(LockUnavailableError):
            holder.release()
        assert time.monotonic() - away < 5 + BUSY
    finally:
        backend.start()
    heir = backend.lock(connection_timeout_seconds=20)
    heir.acquire(timeout=60)
    assert heir.is_held()


@every_server
def test_a_timeout_holds_while_the_backend_is_away(backend: Backend) -> None:
    options = {"lease_seconds": 60, "connection_timeout_seconds": 50}
    holder, waiter = backend.contender(**options), backend.contender(**options)
    holder.acquire()
    waiter.tell("acquire", 5)
    time.sleep(0.5)
    waiting = time.monotonic()
    backend.stop()
    try:
        with pytest.raises(LockUnavailableError):
            waiter.answer()
        assert time.monotonic() - waiting < 5 + BUSY
    finally:
        backend.start()
