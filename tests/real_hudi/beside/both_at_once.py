"""Loops of both sides on one table, under one lock, and the check of the rows that they wrote.

Each side reports every write before it begins and when it ends. Of two rows of one key the later one in time
wins. So for any order of the commits, the acknowledged writes determine the rows that the table has to show.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa

from airflow_provider.concurrency.write import committing
from airflow_provider.exceptions import TableServiceError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.locks import open_lock
from airflow_provider.services.archival import archive
from airflow_provider.services.cleaning.clean_plan import Retention
from airflow_provider.services.cleaning.cleaning import clean
from airflow_provider.services.clustering.clustering import (
    cluster_in_process,
    pending_clusterings,
    schedule_clustering,
)
from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
from airflow_provider.services.compaction import compact
from airflow_provider.services.compaction_plan import CompactionSettings
from airflow_provider.table import HudiTable
from tests.real_hudi.in_turn.readers import Row
from tests.real_hudi.in_turn.shared_table import SCHEMA, SharedTable, row
from tests.real_hudi.jvm import HudiError, Jvm

ROWS_A_WRITE = 12
PATIENCE_SECONDS = 300.0
"""Seconds to wait for a write of the JVM on the same file groups; the product's limit suits an idle JVM."""
SERVICES_OF_THE_JVM = {
    "hoodie.clean.commits.retained": "3",
    "hoodie.keep.min.commits": "5",
    "hoodie.keep.max.commits": "7",
    "hoodie.clustering.inline": "true",
    "hoodie.clustering.inline.max.commits": "4",
}


@dataclass
class Side:
    """The writes of one side, and their outcomes.

    :param name: the side's name, for people.
    :param acknowledged: rows of acknowledged writes.
    :param unknown: rows of writes with an unknown outcome, because their writer was killed.
    :param lost: the errors of other writes, in the order of time.
    :param losses_in_a_row: number of errors since the last acknowledged write.
    """

    name: str
    acknowledged: list[list[Row]] = field(default_factory=list)
    unknown: list[list[Row]] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    losses_in_a_row: int = 0
    most_losses_in_a_row: int = 0

    def acknowledge(self, rows: list[Row]) -> None:
        self.acknowledged.append(rows)
        self.losses_in_a_row = 0

    def lose(self, why: str) -> None:
        self.lost.append(why)
        self.losses_in_a_row += 1
        self.most_losses_in_a_row = max(self.most_losses_in_a_row, self.losses_in_a_row)

    def __str__(self) -> str:
        told = f"{self.name}: {len(self.acknowledged)} acknowledged, {len(self.lost)} lost"
        return f"{told}, {len(self.unknown)} unknown, at most {self.most_losses_in_a_row} lost in a row"


_numbers = itertools.count()


def some_rows(keys: range) -> list[Row]:
    """Rows with keys from the range, with a later time than all earlier rows."""
    at, number = time.time_ns(), next(_numbers)
    chosen = [keys[(number * 7 + step * 5) % len(keys)] for step in range(ROWS_A_WRITE)]
    return [row(key, at % 10**12, at) for key in dict.fromkeys(chosen)]


def verdict(sides: Iterable[Side], shown: Iterable[Row]) -> list[str]:
    """The mistakes in the rows that a table shows; empty when no acknowledged row is lost.

    A key shows a row that was written, at least as late as the latest acknowledged one.
    """
    sides = list(sides)
    written: dict[str, dict[int, Row]] = {}
    latest: dict[str, Row] = {}
    for side in sides:
        for rows in (*side.acknowledged, *side.unknown):
            for each in rows:
                written.setdefault(each["id"], {})[each["ts"]] = each
        for rows in side.acknowledged:
            for each in rows:
                if each["id"] not in latest or latest[each["id"]]["ts"] < each["ts"]:
                    latest[each["id"]] = each
    wrong, seen = [], set()
    for each in shown:
        key = each["id"]
        if key in seen:
            wrong.append(f"{key} is there twice")
        seen.add(key)
        if written.get(key, {}).get(each["ts"]) != each:
            wrong.append(f"{key} shows what nobody has written: {each}")
        elif key in latest and each["ts"] < latest[key]["ts"]:
            wrong.append(f"{key} shows {each}, and {latest[key]} was acknowledged")
    wrong += [f"{key} was acknowledged, and is not there" for key in latest.keys() - seen]
    return wrong


class Theirs:
    """The JVM in a loop, in a process that can be paused and killed.

    :param shared: the table, with the options of the JVM's writes.
    :param keys: the keys that it writes.
    :param folder: the folder for its JVMs.
    """

    def __init__(self, shared: SharedTable, keys: range, folder: Path) -> None:
        self.side = Side("the JVM")
        self._shared, self._keys, self._folder = shared, keys, folder
        self._ends = threading.Event()
        self._jvm: Jvm | None = None
        self._started = 0
        self.start()

    def start(self) -> None:
        """Start a JVM, and its loop."""
        self._started += 1
        self._ends.clear()
        self._jvm = Jvm(self._folder / str(self._started))
        self._thread = threading.Thread(target=self._loop, args=(self._jvm,), daemon=True)
        self._thread.start()

    def signal(self, number: signal.Signals) -> None:
        assert self._jvm is not None
        self._jvm.signal(number)

    def kill(self) -> None:
        """SIGKILL, and another one."""
        assert self._jvm is not None
        self._jvm.kill()
        self._thread.join()
        self.start()

    def end(self) -> None:
        """When its write under way has ended."""
        self._ends.set()
        self._thread.join()
        assert self._jvm is not None
        self._jvm.kill()

    def _loop(self, jvm: Jvm) -> None:
        try:
            jvm.wait()
            table = SharedTable(jvm.session(), self._shared.location, self._shared.options)
            if self._started > 1:
                self._execute_pending_clusterings(table)
        except (EOFError, OSError, RuntimeError):
            return  # killed
        while not self._ends.is_set():
            rows = some_rows(self._keys)
            try:
                table.theirs(rows)
            except HudiError as error:
                # The write may have failed after its commit, in a table service that follows it.
                self.side.unknown.append(rows)
                self.side.lose(str(error))
            except (EOFError, OSError):
                self.side.unknown.append(rows)
                return  # killed
            else:
                self.side.acknowledge(rows)

    def _execute_pending_clusterings(self, table: SharedTable) -> None:
        """As a person does it: a JVM that was killed while it clustered rejects its own updates for good."""
        table.always(self._shared.options)
        try:
            table.sql("call run_clustering(table => '{t}', op => 'execute')")
        except HudiError as error:
            self.side.lose(str(error))


class Ours:
    """A process of this package in a loop: it writes, or it runs the table services.

    :param location: the table's location.
    :param lock: the lock's configuration, for :func:`open_lock`.
    :param beats: heartbeat settings of its writes.
    :param keys: the keys that it writes; None for the table services.
    """

    def __init__(
        self, location: str, lock: Mapping[str, Any], beats: Mapping[str, Any], keys: range | None
    ) -> None:
        self.side = Side("our services" if keys is None else "ours")
        self._given = (location, dict(lock), dict(beats), keys)
        self._ends = False
        self.start()

    def start(self) -> None:
        """Start a process, and its loop."""
        processes = multiprocessing.get_context("forkserver")
        processes.set_forkserver_preload([__name__])
        self._pipe, far = processes.Pipe()
        loop = _serve if self._given[3] is None else _write
        # A test run that is stopped has to end, and to end them: so processes and threads are daemons.
        self._process = processes.Process(target=loop, args=(far, *self._given), daemon=True)
        self._process.start()
        far.close()
        self._thread = threading.Thread(target=self._listen, args=(self._pipe,), daemon=True)
        self._thread.start()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self._process.pid or 0, number)

    def kill(self) -> None:
        """SIGKILL, and another one."""
        self._process.kill()
        self._process.join()
        self._thread.join()
        self.start()

    def end(self) -> None:
        """When its write under way has ended."""
        with suppress(OSError):
            self._pipe.send("end")
        self._thread.join()
        self._process.join()

    def _listen(self, pipe: Connection) -> None:
        rows: list[Row] = []
        while True:
            try:
                what, said = pipe.recv()
            except (EOFError, OSError):
                if rows:
                    self.side.unknown.append(rows)
                return
            if what == "begins":
                rows = said
                continue
            if what == "ends":
                self.side.acknowledge(rows)
            else:
                self.side.lose(said)
            rows = []


def _write(pipe: Connection, location: str, lock: dict[str, Any], beats: dict[str, Any], keys: range) -> None:
    # The duration of a JVM's write depends on the machine. Whether our write lets it finish must not.
    committing.SECONDS_FOR_ANOTHER_ENGINE = PATIENCE_SECONDS
    provider = open_lock(lock, HudiTable.open(location).storage)
    while not pipe.poll():
        rows = some_rows(keys)
        pipe.send(("begins", rows))
        try:
            table = pa.Table.from_pylist(rows, SCHEMA)
            waits = {"on_conflict": "rebase", "on_pending_clustering": "wait"}
            ingest_arrow(location, table, lock=provider, **waits, **beats)
        except TableServiceError as error:
            pipe.send(("fails", f"{type(error).__name__}: {error}"))
        else:
            pipe.send(("ends", None))


def _serve(pipe: Connection, location: str, lock: dict[str, Any], beats: dict[str, Any], _: None) -> None:
    provider = open_lock(lock, HudiTable.open(location).storage)

    def cluster_all() -> None:
        # The JVM does not write to planned file groups, so a pending plan is executed before anything else.
        schedule_clustering(HudiTable.open(location), ClusteringSettings(sort_by=("v",)), lock=provider)
        if pending_clusterings(HudiTable.open(location)):
            cluster_in_process(HudiTable.open(location), lock=lock, **beats)

    services = {
        "clean": lambda: clean(HudiTable.open(location), Retention("KEEP_LATEST_COMMITS", 3), lock=provider),
        "archive": lambda: archive(HudiTable.open(location), keep_min=5, keep_max=7, lock=provider),
        "compact": lambda: compact(HudiTable.open(location), CompactionSettings(4), lock=provider),
        "cluster": cluster_all,
    }
    for name in itertools.cycle(services):
        if pipe.poll(1.0):
            return
        pipe.send(("begins", []))
        try:
            services[name]()
        except TableServiceError as error:
            pipe.send(("fails", f"{name}: {type(error).__name__}: {error}"))
        else:
            pipe.send(("ends", None))
