"""Commits of several processes while the backend of the table lock fails.

Only retryable errors reach the writers; no acknowledged commit is lost, and the other writers go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.context import ForkServerContext
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from airflow_provider.exceptions import LockTimeoutError, LockUnavailableError, to_dict
from airflow_provider.locks import open_lock
from airflow_provider.table import HudiTable
from tests.processes.servers import TcpProxy, ZookeeperServer, postgresql, zookeeper_ensemble
from tests.processes.table import services
from tests.processes.table.agreement import check, recover
from tests.processes.table.services import Rows

WRITERS = 3
LEASE_SECONDS = 2.0
RETRYABLE = (LockUnavailableError, LockTimeoutError)

Told = tuple[str, Rows, dict[str, Any] | None]
FIRST: Rows = {f"k{n}": (0, "p") for n in range(4)}


def _write(
    location: str, writer: int, config: Mapping[str, Any], stopped: Event, told: Queue[Told | int]
) -> None:
    """Commit again and again into the same file groups, until the test stops the process."""
    table = HudiTable.open(location)
    lock = open_lock(config, table.storage)
    number = 0
    while not stopped.is_set():
        name = f"{writer}-{number}"
        rows: Rows = {f"k{number % 4}": (1000 * writer + number, "p"), name: (number, f"w{writer}")}
        try:
            services.upsert(table, name, rows, lock=lock, heartbeat_interval=1.0, max_rebases=100)
        except RETRYABLE as error:
            told.put((name, rows, to_dict(error)))
        else:
            told.put((name, rows, None))
        number += 1
    told.put(writer)


class Writers:
    """Several such processes on one table."""

    def __init__(self, table: HudiTable, told: Queue[Told | int]) -> None:
        self._table = table
        self._told = told
        self.outcomes: list[Told] = []

    def committed(self, writer: int) -> int:
        """The number of commits that a writer reports."""
        return sum(name.startswith(f"{writer}-") for name, _, error in self.outcomes if error is None)

    def go_on(self, writers: set[int], commits: int = 3) -> None:
        """Wait until each of these writers has made this many more commits."""
        goal = {writer: self.committed(writer) + commits for writer in writers}
        self._until(lambda: all(self.committed(writer) >= goal[writer] for writer in writers))

    def fail(self, writer: int) -> None:
        """Wait until a writer has got a retryable error."""
        before = self.failed(writer)
        self._until(lambda: self.failed(writer) > before)

    def failed(self, writer: int) -> int:
        """The number of retryable errors of a writer."""
        return sum(name.startswith(f"{writer}-") for name, _, error in self.outcomes if error is not None)

    def check(self) -> None:
        """Check that the table holds exactly the commits that the stopped writers report."""
        writes = {name: rows for name, rows, _ in self.outcomes} | {"first": FIRST}
        acknowledged = {name for name, _, error in self.outcomes if error is None}
        print(f"{len(acknowledged)} acknowledged, {len(self.outcomes) - len(acknowledged)} to be tried again")
        recover(self._table)
        check(self._table, writes, acknowledged | {"first"})

    def take(self, timeout: float = 300.0) -> bool:
        """Read the next report of a writer; return False when it reports that it has stopped."""
        told = self._told.get(timeout=timeout)
        if isinstance(told, int):
            return False
        self.outcomes.append(told)
        return True

    def _until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 300
        while not condition():
            assert time.monotonic() < deadline, "the writers do not go on"
            assert self.take()


@contextmanager
def writing(
    processes: ForkServerContext, folder: Path, configs: list[Mapping[str, Any]]
) -> Iterator[Writers]:
    """Writers, one for each configuration of the lock; checked at the end."""
    table = services.create(str(folder / "t"))
    services.upsert(table, "first", FIRST)
    stopped, told = processes.Event(), processes.Queue()
    started = [
        processes.Process(target=_write, args=(table.location, number, config, stopped, told))
        for number, config in enumerate(configs)
    ]
    for each in started:
        each.start()
    try:
        writers = Writers(table, told)
        writers.go_on(set(range(len(configs))))
        yield writers
        stopped.set()
        running = len(started)
        while running:
            running -= not writers.take()
        for each in started:
            each.join(60)
            assert each.exitcode == 0
        writers.check()
    finally:
        for each in started:
            each.kill()


def _zookeeper_lock(hosts: str) -> dict[str, Any]:
    return {
        "provider": "zookeeper",
        "hosts": hosts,
        "lease_seconds": LEASE_SECONDS,
        "connection_timeout_seconds": 5.0,
        "timeout_seconds": 20.0,
    }


def test_the_leader_of_an_ensemble_is_killed_and_comes_back(
    processes: ForkServerContext, tmp_path: Path
) -> None:
    with zookeeper_ensemble(tmp_path / "ensemble") as servers:
        config = _zookeeper_lock(",".join(server.hosts for server in servers))
        with writing(processes, tmp_path, [config] * WRITERS) as writers:
            for _ in range(2):
                leader = _leader(servers)
                leader.kill()
                writers.go_on({0, 1, 2})
                leader.start()
                leader.wait()
                writers.go_on({0, 1, 2})


def _leader(servers: list[ZookeeperServer]) -> ZookeeperServer:
    [leader] = [server for server in servers if server.wait() == "leader"]
    return leader


def test_a_client_is_cut_off_for_longer_than_its_session(
    processes: ForkServerContext, tmp_path: Path
) -> None:
    with zookeeper_ensemble(tmp_path / "ensemble") as servers:
        proxies = [TcpProxy(server.port) for server in servers]
        far = _zookeeper_lock(",".join(f"127.0.0.1:{proxy.port}" for proxy in proxies))
        near = _zookeeper_lock(",".join(server.hosts for server in servers))
        with writing(processes, tmp_path, [far, near, near]) as writers:
            for cut_off in (TcpProxy.cut, TcpProxy.hold_up):
                for proxy in proxies:
                    cut_off(proxy)
                away = time.monotonic()
                writers.go_on({1, 2}, 10)
                writers.fail(0)
                time.sleep(max(0.0, away + 2 * LEASE_SECONDS - time.monotonic()))
                for proxy in proxies:
                    proxy.mend()
                writers.go_on({0, 1, 2})
        for proxy in proxies:
            proxy.close()


def test_postgresql_is_restarted_while_the_lock_is_held(processes: ForkServerContext, tmp_path: Path) -> None:
    with postgresql() as server:
        config = {
            "provider": "database",
            "url": server.url,
            "lease_seconds": LEASE_SECONDS,
            "connection_timeout_seconds": 10.0,
            "timeout_seconds": 20.0,
        }
        with writing(processes, tmp_path, [config] * WRITERS) as writers:
            for _ in range(3):
                observer = open_lock(config, HudiTable.open(str(tmp_path / "t")).storage)
                while observer.holder() is None:
                    time.sleep(0.001)
                server.stop()
                server.start()
                writers.go_on({0, 1, 2})
