"""Put-if-absent by real processes at the same time."""

from __future__ import annotations

import os
import signal
import time
from multiprocessing.queues import Queue
from pathlib import Path

from airflow_provider.table.storage.storage import Storage
from tests.processes.forks import FORKS


def _contend(root: str, name: str, start: float, results: Queue) -> None:
    storage = Storage(root)
    time.sleep(max(0.0, start - time.time()))
    results.put([path for path in map(str, range(300)) if storage.put_if_absent(path, name.encode() * 1000)])


def test_of_many_processes_exactly_one_creates_each_file(tmp_path: Path) -> None:
    results: Queue = FORKS.Queue()
    start = time.time() + 1.5
    processes = [
        FORKS.Process(target=_contend, args=(str(tmp_path), name, start, results)) for name in "abcd"
    ]
    for process in processes:
        process.start()
    won = [path for _ in processes for path in results.get(timeout=300)]
    for process in processes:
        process.join()
    assert sorted(won, key=int) == list(map(str, range(300)))
    storage = Storage(str(tmp_path))
    assert all(len(storage.read(str(path))) == 1000 for path in range(300))
    assert len(list(tmp_path.iterdir())) == 300, "staging files are left"


def _write_for_ever(root: str) -> None:
    storage = Storage(root)
    number = 0
    while True:
        storage.put_if_absent(f"f{number}", b"x" * 100_000)
        number += 1


def test_a_killed_process_leaves_no_partial_file(tmp_path: Path) -> None:
    process = FORKS.Process(target=_write_for_ever, args=(str(tmp_path),))
    process.start()
    while not (tmp_path / "f50").exists():
        time.sleep(0.01)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    storage = Storage(str(tmp_path))
    files = storage.list("")
    assert len(files) > 50
    assert {status.size for status in files} == {100_000}
