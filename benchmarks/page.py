"""What the page costs Airflow's API server: the first load with many tables, later ones, and a long timeline.

It starts an API server on an empty Airflow and a lake of its own, asks as the page asks, and reads the
server's processor time and memory.

Usage: ``python -m benchmarks.page [--tables 50] [--instants 1000]``.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.report import Report, Side

PAUSE = 2.2  # seconds: longer than an answer is given again
TIMES = 5


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=50)
    parser.add_argument("--instants", type=int, default=1000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        # Airflow reads its environment when it is imported.
        os.environ["AIRFLOW_HOME"] = str(home)
        os.environ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] = f"sqlite:///{home}/airflow.db"
        from airflow.utils.db import initdb

        from tests.airflow.reports.page_lake import make_lake
        from tests.airflow.reports.page_server import ApiServer

        initdb()
        lake = make_lake(home / "lake", given.tables, given.instants)
        connection = {"conn_type": "table_metastore", "extra": {"url": lake.url}}
        server = ApiServer(home / "server", home / "airflow.db", AIRFLOW_CONN_LAKE=json.dumps(connection))
        try:
            server.wait()
            measure(server, given.tables)
        finally:
            server.stop()


def measure(server, tables: int) -> None:
    """Ask as the page does, and report each question."""
    flights = "metastore=lake&table=lake.flights"
    server.ask("GET", "/table-services/static/any/page.js")  # as a browser does first
    with Report("page", f"{tables} tables") as report:
        ask(report, server, tables, flights)


def ask(report: Report, server, tables: int, flights: str) -> None:
    """One question after the other."""
    for name, path, times in (
        (f"{tables} tables, first", "/table-services/api/tables", 1),
        (f"{tables} tables, later", "/table-services/api/tables", TIMES),
        ("timeline, first", f"/table-services/api/timeline?{flights}", 1),
        ("timeline, later", f"/table-services/api/timeline?{flights}", TIMES),
    ):
        spent, took, size = processor(server), [], 0
        for _ in range(times):
            time.sleep(PAUSE)
            began = time.perf_counter()
            size = len(server.ask("GET", path)[1])
            took.append(time.perf_counter() - began)
        time.sleep(1.0)  # what goes on after the answer counts as well
        spent = (processor(server) - spent) / times
        side = Side("ours", took, memory(server))
        report.add(f"page: {name}", side, processor=f"{spent:.3f} s", bytes=size)


def processor(server) -> float:
    """Processor seconds of the server's processes so far."""
    return sum(sum(each.cpu_times()[:2]) for each in processes(server))


def memory(server) -> int:
    """Bytes of the memory of the server's processes."""
    return sum(each.memory_info().rss for each in processes(server))


def processes(server) -> list[psutil.Process]:
    """The server and its children."""
    first = psutil.Process(server.process.pid)
    return [first, *first.children(recursive=True)]


if __name__ == "__main__":
    main()
