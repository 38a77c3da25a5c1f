"""A job is killed, or paused, after each file operation of its commit."""

from __future__ import annotations

import operator
import os
import shutil
import signal
import uuid
from contextlib import nullcontext
from multiprocessing.context import ForkServerContext
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import psutil
import pytest
import tenacity

from airflow_provider.exceptions import CommitError
from airflow_provider.locks.filesystem import FilesystemLockProvider
from airflow_provider.table import HudiTable
from airflow_provider.table.file_names import parse_base_file_name
from tests.processes.table.agreement import read_ours, read_theirs, silence
from tests.processes.table.ingestion import (
    after_each_operation,
    create,
    session,
    upsert,
    upsert_and_die,
)

BEFORE = {f"k{n}": (0, "p" if n % 2 else "q") for n in range(6)}
CHANGE = {"k1": (1, "p"), "k2": (1, "q"), "new": (1, "p")}
NEXT = {"k3": (2, "p"), "next": (2, "q")}
SESSION = str(uuid.uuid4())
"""The server's session, which the victims use one after the other, so that its workers stay warm."""

_patiently = tenacity.Retrying(
    retry=tenacity.retry_if_result(operator.not_),
    wait=tenacity.wait_fixed(0.01),
    stop=tenacity.stop_after_delay(300),
)


def _count_operations(remote: str, location: str, names: Queue[list[str]]) -> None:
    spark = session(remote)
    done: list[str] = []
    after_each_operation(lambda number, description: done.append(description))
    upsert(spark, location, CHANGE)
    names.put(done)


def test_killed_after_each_file_operation(
    processes: ForkServerContext, spark_remote: str, tmp_path: Path
) -> None:
    spark = session(spark_remote)
    start = create(tmp_path / "start")
    upsert(spark, start.location, BEFORE)
    probe = Path(shutil.copytree(start.location, tmp_path / "probe"))
    remote = f"{spark_remote}/;session_id={SESSION}"
    names = processes.Queue()
    counter = processes.Process(target=_count_operations, args=(remote, str(probe), names))
    counter.start()
    operations = names.get(timeout=400)
    counter.join()
    assert any("commit_log/0000" in name for name in operations)
    tables = []
    for at, operation in enumerate(operations, 1):
        table = HudiTable.open(str(shutil.copytree(start.location, tmp_path / f"t{at}")))
        victim = processes.Process(
            target=upsert_and_die, args=(remote, table.location, CHANGE, at, signal.SIGKILL)
        )
        victim.start()
        victim.join(400)
        assert victim.exitcode == -signal.SIGKILL, f"operation {at} of {len(operations)}: {operation}"
        for read in (read_ours, read_theirs):
            assert read(table.location) in (BEFORE, BEFORE | CHANGE), f"a part is seen after {operation}"
        tables.append(table)
    # Most of their leases have run out meanwhile.
    committed = 0
    for table, operation in zip(tables, operations, strict=True):
        silence(table)
        upsert(spark, table.location, NEXT)
        with_change, without = BEFORE | CHANGE | NEXT, BEFORE | NEXT
        ours = read_ours(table.location)
        assert ours in (with_change, without), f"after {operation}"
        assert read_theirs(table.location) == ours
        committed += ours == with_change
        _nothing_is_left(table)
    assert 0 < committed < len(operations)


def _nothing_is_left(table: HudiTable) -> None:
    timeline = table.timeline()
    assert timeline.pending() == ()
    instants = {instant.requested_time for instant in timeline.commits()}
    for status in table.storage.list("", recursive=True):
        parsed = parse_base_file_name(status.name)
        assert parsed is None or parsed[2] in instants, f"{status.path} is of a dead instant"
    assert table.storage.list(".hoodie/.heartbeat") == []


def _upsert_and_tell(
    remote: str, location: str, at: str, occurrence: int, stopped: Any, outcome: Queue[str]
) -> None:
    spark = session(remote)
    seen = 0

    def act(number: int, description: str) -> None:
        nonlocal seen
        seen += at in description
        if at in description and seen == occurrence:
            stopped.set()
            os.kill(os.getpid(), signal.SIGSTOP)

    after_each_operation(act)
    try:
        upsert(spark, location, CHANGE)
    except CommitError as error:
        outcome.put(type(error).__name__)
    else:
        outcome.put("committed")


@pytest.mark.parametrize(
    ("at", "fate"),
    [
        # Its base is read after its heartbeat is there: it takes another instant, on what is there now.
        ("put_if_absent .hoodie/.heartbeat/", "commits afterwards"),
        (".commit.requested", "loses"),
        (".inflight", "loses"),
        ("put .hoodie/commit_log/staged/", "loses"),
        ("put_if_absent .hoodie/locks/lock", "loses"),
        ("put_if_absent .hoodie/commit_log/0000", "has committed"),
    ],
)
def test_a_job_that_stood_still_loses_cleanly(
    processes: ForkServerContext, spark_remote: str, tmp_path: Path, at: str, fate: str
) -> None:
    spark = session(spark_remote)
    table = create(tmp_path / "t")
    upsert(spark, table.location, BEFORE)
    stopped, outcome = processes.Event(), processes.Queue()
    remote = f"{spark_remote}/;session_id={SESSION}"
    paused = processes.Process(
        target=_upsert_and_tell, args=(remote, table.location, at, 1, stopped, outcome)
    )
    lock = FilesystemLockProvider(table.storage)
    with lock if "locks" in at else nullcontext():  # alone it would take none
        paused.start()
        if "locks" in at:
            _patiently(lock.waiters)
    assert stopped.wait(300), f"never came to {at}"
    _patiently(lambda: psutil.Process(paused.pid).status() == psutil.STATUS_STOPPED)
    silence(table)
    tenacity.retry(retry=tenacity.retry_if_exception_type(CommitError), stop=tenacity.stop_after_attempt(3))(
        upsert
    )(spark, table.location, NEXT)
    os.kill(paused.pid or 0, signal.SIGCONT)
    told = outcome.get(timeout=300)
    paused.join()
    expected = {
        "loses": BEFORE | NEXT,
        "has committed": BEFORE | CHANGE | NEXT,
        "commits afterwards": BEFORE | NEXT | CHANGE,
    }[fate]
    assert (told == "committed") == (fate != "loses")
    assert read_ours(table.location) == expected
    assert read_theirs(table.location) == expected
