"""Looking at the processes behind a write."""

from __future__ import annotations

import os
import time
from pathlib import Path

from airflow_provider.concurrency import PendingInstant, pending_instants
from airflow_provider.table.hudi_table import HudiTable


def until(condition, *, seconds: float = 400, every: float = 0.05):
    """Wait until a condition returns a true value, and return the value."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(every)
    return found


def has_written(table: HudiTable) -> PendingInstant | None:
    """The pending write that has written its data files."""
    for pending in pending_instants(table):
        if any(pending.instant in file.name for file in Path(table.location).rglob("*.parquet")):
            return pending
    return None


def writer_pid(table: HudiTable) -> int | None:
    """The process of the pending write that has written its data files."""
    pending = has_written(table)
    return int(pending.owner.rpartition(":")[2]) if pending else None


def session_of_writer(table: HudiTable) -> int | None:
    """The session of the pending write that has written its data files."""
    pid = writer_pid(table)
    return os.getsid(pid) if pid else None


def processes_of(session: int) -> list[int]:
    """The living processes of a session in all its process groups (Spark's Python workers have their own)."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _parent, _group, session_id, *_ = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(session_id) == session and state != "Z":
            found.append(int(status.parent.name))
    return found
