"""Replicators that are processes, killed by SIGKILL, between two databases of a PostgreSQL."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

from airflow_provider.exceptions import CommitError, ReplicationTargetError, TableServiceError
from airflow_provider.indexing import run_index, schedule_index
from tests.processes.servers import postgresql
from tests.unit.replication.pair import Pair
from tests.unit.replication.test_table_services import cluster
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild

SOURCE_ACTIONS = 60
REPLICATE = [
    sys.executable,
    "-c",
    "from airflow_provider.cli import main; main()",
    "replicate",
    "--policy=dr",
]


@pytest.fixture
def urls() -> Iterator[dict[str, str]]:
    with postgresql() as server:
        engine = create_engine(server.url, isolation_level="AUTOCOMMIT")
        found = {}
        for side in ("source", "target"):
            with engine.connect() as connection:
                connection.execute(text(f"CREATE DATABASE {side}"))
            made = make_url(server.url).set(database=side)
            found[side] = made.render_as_string(hide_password=False)
        engine.dispose()
        yield found


def test_killed_replicators_lose_nothing_and_double_nothing(tmp_path: Path, urls: dict[str, str]) -> None:
    pair, chance = Pair(tmp_path, urls["source"], urls["target"]), random.Random(7)
    schedule_index(pair.lake.tables["trips"], ["files", "record_index"])
    run_index(pair.lake.tables["trips"])
    has_ended = threading.Event()

    def work() -> None:
        opened: list[int] = []
        for number in range(SOURCE_ACTIONS):
            with suppress(TableServiceError):  # refused by the open transaction
                table = chance.choice(["trips", "riders"])
                first = chance.choice([0, 100])
                rows = {first + chance.randrange(8): number for _ in range(3)}
                if number % 10 == 3:
                    opened.append(pair.lake.begin())
                elif number % 10 == 8:
                    txn = opened.pop()
                    if chance.random() < 0.5:
                        pair.lake.abort(txn)
                        continue
                    try:
                        pair.lake.commit(txn)
                    except CommitError:  # one of its writes was refused
                        pair.lake.abort(txn)
                elif number % 15 == 7:
                    cluster(pair.lake.tables[table])
                else:
                    pair.lake.write(table, rows, opened[-1] if opened and chance.random() < 0.3 else None)
        for txn in opened:
            pair.lake.abort(txn)
        has_ended.set()

    worker = threading.Thread(target=work)
    worker.start()
    arguments = [f"--{side}={url}" for side, url in urls.items()]
    arguments += [f"--location={tmp_path}/source={tmp_path}/target", "--database=lake=lake_copy"]
    deaths = 0
    while deaths < 6 or not has_ended.is_set():
        # Sometimes one is still at it when the next one comes.
        ones = [
            subprocess.Popen(
                [*REPLICATE, *arguments, "--follow=60", "--poll=0.05", "--lease=0.2"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for _ in range(chance.choice([1, 1, 2]))
        ]
        for one in ones:
            with suppress(subprocess.TimeoutExpired):
                one.wait(chance.uniform(1.0, 6.0))
            one.send_signal(signal.SIGKILL)
            deaths += one.wait() == -signal.SIGKILL
    worker.join()
    subprocess.run([*REPLICATE, *arguments], check=True, stdout=subprocess.DEVNULL)
    pair.check_equal()
    assert pair.mapped() == {}
    assert_indexes_equal_a_rebuild(pair.copy_of("trips"))
    assert pair.replicator().status().last_error is None
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
