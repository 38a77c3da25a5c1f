"""Replicators in processes that are killed by SIGKILL, between two PostgreSQLs with a warehouse each.

``SOAK=1`` goes on for an hour (``SOAK_SECONDS``), with writers, services and databases that crash meanwhile.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from airflow_provider.concurrency.transactions.recovery import recover_transactions
from airflow_provider.exceptions import CommitError, ReplicationTargetError, TableServiceError
from airflow_provider.indexing import run_index, schedule_index
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.archival import archive
from airflow_provider.services.cleaning import Retention, clean
from airflow_provider.services.table_compaction import TableCompactionSettings, compact_table
from airflow_provider.table import HudiTable
from tests.processes.servers import Postgres, postgresql
from tests.unit.concurrency.transactions.transactional_lake import data_of
from tests.unit.replication.pair import KINDS, Pair
from tests.unit.replication.tables.test_table_services import cluster
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild

SOURCE_ACTIONS = 60
IS_SOAK = "SOAK" in os.environ
SOAK_SECONDS = float(os.environ.get("SOAK_SECONDS", "3600")) if IS_SOAK else 0.0
REPLICATE = [
    sys.executable,
    "-c",
    "from airflow_provider.cli import main; main()",
    "replicate",
    "--policy=dr",
]
FOLLOW = [sys.executable, "-m", "tests.processes.replicas.replicator"]


@pytest.fixture
def databases() -> Iterator[dict[str, Postgres]]:
    with postgresql() as source, postgresql() as target:
        yield {"source": source, "target": target}


class Work:
    """A thread that writes into the source's tables, with and without transactions, and runs services."""

    def __init__(self, pair: Pair, chance: random.Random) -> None:
        self.pair, self.chance, self.opened = pair, chance, list[int]()
        self.done = 0
        self.failure: BaseException | None = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def has_ended(self) -> bool:
        return not self.thread.is_alive()

    def join(self) -> None:
        """Wait for the thread's end; recovery ends the transactions that the thread has left open."""
        self.thread.join()
        if self.failure is not None:
            raise self.failure
        recover_transactions(self.pair.source, timeout_seconds=0.0)

    def _run(self) -> None:
        try:
            for number in range(SOURCE_ACTIONS):
                # The open transaction refuses the write, or the database is away.
                with suppress(TableServiceError):
                    self._do(number)
                self.done = number
        except BaseException as failure:
            self.failure = failure
            raise

    def _do(self, number: int) -> None:
        lake, chance = self.pair.lake, self.chance
        name = chance.choice(sorted(lake.tables))
        first = chance.choice([0, 100])
        rows = {first + chance.randrange(8): number for _ in range(3)}
        if number % 10 == 3:
            self.opened.append(lake.begin())
        elif number % 10 == 8 and self.opened:
            self._end(self.opened.pop())
        elif number % 15 == 7:
            self._serve(lake.tables[name])
        else:
            if self.opened and chance.random() < 0.3:
                lake.write(name, rows, self.opened[-1])
            else:
                ingest_arrow(f"lake.{name}", data_of(rows), "upsert", metastore=self.pair.source)

    def _end(self, txn: int) -> None:
        if self.chance.random() < 0.5:
            with suppress(CommitError):  # one of its writes was refused
                self.pair.lake.commit(txn)
                return
        self.pair.lake.abort(txn)

    def _serve(self, table: HudiTable) -> None:
        if table.is_merge_on_read:
            compact_table(table, TableCompactionSettings(delta_commits=1))
        else:
            cluster(table)
        if IS_SOAK:
            clean(table, Retention(retained=3))
            archive(table, keep_min=5, keep_max=10)


def crash_now_and_then(server: Postgres, chance: random.Random, work: Work) -> None:
    """Crash a database after some actions of the source, and start it again a moment later."""
    while not work.has_ended():
        crashes_at = work.done + chance.randint(10, 25)
        while work.done < crashes_at and not work.has_ended():
            time.sleep(0.05)
        server.crash()
        time.sleep(chance.uniform(0.0, 2.0))
        server.start()


def test_killed_replicators_lose_nothing_and_double_nothing(
    tmp_path: Path, databases: dict[str, Postgres]
) -> None:
    urls = {side: server.url for side, server in databases.items()}
    pair, seed = Pair(tmp_path, urls["source"], urls["target"]), random.randrange(2**32) if IS_SOAK else 7
    print(f"seed {seed}")
    chance = random.Random(seed)
    pair.lake.options = KINDS["merge-on-read"]
    pair.lake.create("stops")
    schedule_index(pair.lake.tables["trips"], ["files", "record_index"])
    run_index(pair.lake.tables["trips"])
    once = [*REPLICATE, *(f"--{side}={url}" for side, url in urls.items())]
    once += [f"--location={tmp_path}/source={tmp_path}/target", "--database=lake=lake_copy"]
    follow = [*FOLLOW, urls["source"], urls["target"], str(tmp_path), "20"]
    ends, rounds = time.monotonic() + SOAK_SECONDS, 0
    while rounds == 0 or time.monotonic() < ends:
        rounds += 1
        work = Work(pair, random.Random(chance.random()))
        crashing = [
            threading.Thread(
                target=crash_now_and_then,
                args=(server, random.Random(chance.random()), work),
            )
            for server in (databases.values() if IS_SOAK else ())
        ]
        for each in crashing:
            each.start()
        kill_replicators(follow, chance, work.has_ended)
        for each in crashing:
            each.join()
        work.join()
        subprocess.run(once, check=True, stdout=subprocess.DEVNULL)
        pair.check_equal()
        assert pair.mapped() == {}
        assert pair.replicator().status().last_error is None
        for name in pair.lake.tables if IS_SOAK else ():
            clean(pair.copy_of(name), Retention(retained=2))
            archive(pair.copy_of(name), keep_min=4, keep_max=8)
        assert_indexes_equal_a_rebuild(pair.copy_of("trips"))
        print(f"round {rounds}: event {pair.replicator().status().event_id}", flush=True)
    # PostgreSQL allocates write ids, and commits, by statements of its own.
    txn = pair.target.open_txn("somebody", "here")
    with pytest.raises(ReplicationTargetError, match=r"repl\.target\.for"):
        pair.target.allocate_table_write_id(txn, "lake_copy", "trips")
    mapped_to = pair.lake.begin()
    pair.replicate()
    with pytest.raises(ReplicationTargetError, match="'dr'"):
        pair.target.commit_txn(pair.mapped()[mapped_to])
    pair.source.close()
    pair.target.close()


def kill_replicators(command: list[str], chance: random.Random, is_over: Callable[[], bool]) -> None:
    """Start replicators, and kill each a moment after its first step, until the source's work is over.

    At least six die, if the source has enough work for them.
    """
    deaths, is_caught_up = 0, False
    while not is_over() or (deaths < 6 and not is_caught_up):
        # Sometimes a replicator is still running when the next one starts.
        ones = [
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            for _ in range(chance.choice([1, 1, 2]))
        ]
        for one in ones:
            assert one.stdout is not None
            is_caught_up = not one.stdout.readline()  # the replicator has ended without a step
            with suppress(subprocess.TimeoutExpired):
                one.wait(chance.uniform(0.0, 4.0))
            one.kill()
            deaths += one.wait() == -signal.SIGKILL
            one.stdout.close()
