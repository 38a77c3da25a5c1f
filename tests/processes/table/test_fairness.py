"""Many writers of different partitions: none fails, none starves, no row is lost."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing.context import ForkServerContext
from multiprocessing.queues import Queue
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from airflow_provider.locks import open_lock
from airflow_provider.table import HudiTable
from tests.processes.table import services
from tests.processes.table.agreement import agree

COMMITS = 320
"""Commits of all writers together; they take about ten CPU seconds."""
WRITERS = 8


def _append(
    location: str,
    writer: int,
    barrier: Barrier,
    committed: Synchronized[int],
    results: Queue[tuple[int, int, list[str]]],
) -> None:
    """Append commit after commit into one partition, until all writers together have made enough commits."""
    table = HudiTable.open(location)
    lock = open_lock({}, table.storage)
    commits, failures = 0, []
    barrier.wait(400)
    while committed.value < COMMITS and len(failures) < COMMITS:
        rows = {f"{writer}-{commits}": (commits, f"p{writer}")}
        try:
            services.append(table, rows, lock)
        except Exception as error:
            failures.append(repr(error))
        else:
            commits += 1
            with committed.get_lock():
                committed.value += 1
    results.put((writer, commits, failures))


@pytest.fixture
def results(processes: ForkServerContext, tmp_path: Path) -> Iterator[dict[int, tuple[int, list[str]]]]:
    """Commits and failures of each writer, on a table ``t``."""
    location = services.create(str(tmp_path / "t")).location
    barrier, told = processes.Barrier(WRITERS), processes.Queue()
    arguments = (barrier, processes.Value("i", 0), told)
    writers = [
        processes.Process(target=_append, args=(location, number, *arguments)) for number in range(WRITERS)
    ]
    for each in writers:
        each.start()
    found = [told.get(timeout=400) for _ in writers]
    yield {writer: (commits, failures) for writer, commits, failures in found}
    for each in writers:
        each.join()


def test_eight_writers_of_eight_partitions(results: dict[int, tuple[int, list[str]]], tmp_path: Path) -> None:
    assert [failures for _, failures in results.values() if failures] == []
    commits = {writer: commits for writer, (commits, _) in results.items()}
    assert sum(commits.values()) >= COMMITS
    assert min(commits.values()) * 4 >= max(commits.values()), commits
    table = HudiTable.open(str(tmp_path / "t"))
    expected = {f"{w}-{n}": (n, f"p{w}") for w, count in commits.items() for n in range(count)}
    agree(table, expected)
    assert table.timeline().pending() == ()
