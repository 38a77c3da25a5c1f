"""The filesystem lock among real processes that die and stand still."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from airflow_provider.exceptions import LockLostError, LockTimeoutError
from airflow_provider.locks import open_lock
from airflow_provider.table.storage import Storage


def _hold(root: str, lease: float, acquired: Event) -> None:
    open_lock({"lease_seconds": lease, "owner": "holder"}, Storage(root)).acquire()
    acquired.set()
    time.sleep(600)


def _holder(root: Path, lease: float) -> multiprocessing.Process:
    context = multiprocessing.get_context("spawn")
    acquired = context.Event()
    process = context.Process(target=_hold, args=(str(root), lease, acquired))
    process.start()
    assert acquired.wait(30)
    return process


def test_a_live_holder_keeps_its_lease(tmp_path: Path) -> None:
    holder = _holder(tmp_path, lease=0.5)
    try:
        with pytest.raises(LockTimeoutError, match="held by holder"):
            open_lock({"lease_seconds": 0.5}, Storage(str(tmp_path))).acquire(timeout=1.5)
    finally:
        holder.kill()
        holder.join()


def test_the_lease_of_a_dead_holder_runs_out(tmp_path: Path) -> None:
    holder = _holder(tmp_path, lease=0.5)
    holder.kill()
    holder.join()
    lock = open_lock({"lease_seconds": 0.5}, Storage(str(tmp_path)))
    lock.acquire(timeout=5)
    assert lock.is_held()
    assert lock.fencing_token == 2
    lock.release()


def _acquire_then_report(root: str, acquired: Event, go_on: Event, held: multiprocessing.Queue) -> None:
    lock = open_lock({"lease_seconds": 0.5}, Storage(root))
    lock.acquire()
    acquired.set()
    go_on.wait(60)
    try:
        still = lock.is_held()
        lock.release()
    except LockLostError:
        held.put((still, "lost"))
    else:
        held.put((still, "released"))


def test_a_paused_holder_wakes_up_without_the_lock(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    acquired, go_on, held = context.Event(), context.Event(), context.Queue()
    process = context.Process(target=_acquire_then_report, args=(str(tmp_path), acquired, go_on, held))
    process.start()
    assert acquired.wait(30)
    os.kill(process.pid or 0, signal.SIGSTOP)
    lock = open_lock({"lease_seconds": 30}, Storage(str(tmp_path)))
    lock.acquire(timeout=10)
    os.kill(process.pid or 0, signal.SIGCONT)
    go_on.set()
    assert held.get(timeout=30) == (False, "lost")
    process.join()
    assert lock.is_held()
    lock.release()


def _count(root: str, times: int) -> None:
    storage = Storage(root)
    for _ in range(times):
        with open_lock({"poll_interval_seconds": 0.01}, storage):
            count = int(storage.read("count"))
            storage.put("count", str(count + 1).encode())


def test_processes_exclude_each_other(tmp_path: Path) -> None:
    Storage(str(tmp_path)).put("count", b"0")
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_count, args=(str(tmp_path), 100)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert Storage(str(tmp_path)).read("count") == b"300"
