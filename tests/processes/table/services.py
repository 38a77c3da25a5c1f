"""The writers of these tests: ingestions, table services and index builds.

Heartbeats and leases are short, so that other writers find dead ones soon. No service stops itself, however
often its storage fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa

from airflow_provider.concurrency import HeartbeatSettings
from airflow_provider.exceptions import NoSuchInstantError, WriteConflictError
from airflow_provider.indexing.drop import drop_index
from airflow_provider.indexing.run import IndexRunSettings, run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.ingestion import IngestJob, ingest_arrow
from airflow_provider.ingestion.arrow import ArrowRows
from airflow_provider.ingestion.write_rows import write_rows
from airflow_provider.locks import LockProvider, open_lock
from airflow_provider.locks.filesystem import FilesystemLockProvider
from airflow_provider.services.archival import archive
from airflow_provider.services.cleaning import cleaning
from airflow_provider.services.cleaning.clean_plan import Retention
from airflow_provider.services.clustering.clustering import cluster_in_process, schedule_clustering
from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
from airflow_provider.services.compaction import compact
from airflow_provider.services.compaction_plan import CompactionSettings
from airflow_provider.services.restore import restore
from airflow_provider.services.savepoint import create_savepoint
from airflow_provider.table import HudiTable
from airflow_provider.table.timeline.instant import Action

SCHEMA = pa.schema([("id", pa.string()), ("value", pa.int64()), ("part", pa.string())])
Rows = Mapping[str, tuple[int, str]]
"""Value and partition of each record key."""

LOCK: dict[str, Any] = {"lease_seconds": 0.5, "timeout_seconds": 30.0, "poll_interval_seconds": 0.05}
HEARTBEAT: dict[str, Any] = {"heartbeat_interval": 0.1, "tolerable_misses": 40}
PATIENT: dict[str, Any] = {"heartbeat_interval": 10.0, "tolerable_misses": 6}
"""The default heartbeat, for live writers: even on a busy machine none of them counts as dead."""
SILENT_SECONDS = 4.2
"""Longer than a heartbeat may be missing."""
UNLOCKED_SECONDS = 0.7
"""Longer than a lease of the lock lasts."""
"""After so long of silence a writer counts as dead, and its lease has run out."""


class SharedLock(FilesystemLockProvider):
    """A lock that other Hudi writers share: a writer always acquires it, even without any contender."""

    excludes_hudi = True


def create(location: str) -> HudiTable:
    """Create a table with partitions that small commits fill."""
    return HudiTable.create(location, name="t", schema=SCHEMA, record_key=["id"], partition_by=["part"])


def arrow(rows: Rows) -> pa.Table:
    """The rows as an Arrow table."""
    return pa.table([list(rows), *map(list, zip(*rows.values(), strict=True))], schema=SCHEMA)


def upsert(table: HudiTable | str, name: str, rows: Rows, **job: Any) -> dict[str, Any]:
    """Upsert rows; the name is the operation key, by which the log finds the commit."""
    table = HudiTable.open(table) if isinstance(table, str) else table
    settings = {**_job(name), "lock": open_lock(LOCK, table.storage), **job}
    return ingest_arrow(table, arrow(rows), **settings)


def append(table: HudiTable, rows: Rows, lock: LockProvider, **job: Any) -> dict[str, Any]:
    """Append rows in a file group of their own, with default heartbeats."""
    return ingest_arrow(table, arrow(rows), "bulk_insert", lock=lock, **job)


def upsert_across(table: HudiTable, name: str, rows: Rows, other: Callable[[], object], **job: Any) -> Any:
    """Upsert rows; call a function when the write has begun, and has planned nothing yet."""
    described = IngestJob.of(table.location, lock=LOCK, **{**_job(name), **job})

    @contextmanager
    def around(_: object) -> Any:
        other()
        yield

    return write_rows(described, table, ArrowRows.of(described, table, arrow(rows)), around=around)


def _job(name: str) -> dict[str, Any]:
    # No load fills a small file up: the same new key of two writers goes into two new file groups.
    plain = {"operation": "upsert", "small_file_limit": 0, "on_conflict": "rebase"}
    return {**plain, "operation_key": name, **HEARTBEAT}


# --- clustering -----------------------------------------------------------------------------


def cluster(table: HudiTable, partition: str) -> str | None:
    """Pack the file groups of a partition into one; None when there is nothing to pack."""
    instant = plan_clustering(table, partition)
    if instant is not None:
        carry_out_clustering(table, instant)
    return instant


def plan_clustering(table: HudiTable, partition: str) -> str | None:
    """Plan the clustering, the first half of :func:`cluster`."""
    packed = ClusteringSettings(partitions=(partition,))
    return schedule_clustering(table, packed, lock=open_lock(LOCK, table.storage), max_failures=None)


def carry_out_clustering(table: HudiTable, instant: str) -> None:
    """Copy the rows of the plan's file groups unchanged into one new file group."""
    cluster_in_process(table, instant, lock=LOCK, **HEARTBEAT)


# --- cleaning -------------------------------------------------------------------------------


EVERYTHING = Retention("KEEP_LATEST_FILE_VERSIONS", 1, reverted_after=0.0)


def clean(table: HudiTable) -> str | None:
    """Delete file slices that neither a snapshot from now on nor a write in flight needs."""
    results = cleaning.clean(table, EVERYTHING, lock=open_lock(LOCK, table.storage), max_failures=None)
    return results[-1].instant if results else None


def carry_out_clean(table: HudiTable, instant: str) -> None:
    """Delete the files that the plan names."""
    cleaning.run_clean(table, instant, lock=open_lock(LOCK, table.storage))


# --- archival, compaction, savepoint, restore ------------------------------------------------


def archive_most(table: HudiTable) -> None:
    """Archive all but two commits."""
    archive(table, keep_min=1, keep_max=2, lock=open_lock(LOCK, table.storage))


def compact_all(table: HudiTable) -> None:
    """Compact every file group of the metadata table that has a log file."""
    compact(table, CompactionSettings(max_delta_commits=1), lock=open_lock(LOCK, table.storage))


def keep_newest(table: HudiTable) -> None:
    """Make a savepoint of the newest commit."""
    create_savepoint(table, lock=open_lock(LOCK, table.storage))


def go_back(table: HudiTable) -> None:
    """Undo the newest commit."""
    restore(table, table.timeline().commits()[-2].requested_time, lock=open_lock(LOCK, table.storage))


# --- index build ----------------------------------------------------------------------------


INDEXES = ("files", "record_index")
"""The indexes of every table in these tests; the victim builds another one."""


def build_index(table: HudiTable, *names: str) -> str | None:
    """Plan indexes and build them; by default ``column_stats``."""
    instant = schedule_index(table, names or ["column_stats"], lock=open_lock(LOCK, table.storage))
    if instant is not None:
        carry_out_index_build(table, instant)
    return instant


def drop(table: HudiTable) -> None:
    """Drop the record index."""
    drop_index(table, ["record_index"], lock=open_lock(LOCK, table.storage))


def carry_out_index_build(table: HudiTable, instant: str) -> None:
    """Build the indexes of the plan."""
    run_index(
        table,
        instant,
        lock=open_lock(LOCK, table.storage),
        settings=IndexRunSettings(heartbeat=HeartbeatSettings(**HEARTBEAT), max_failures=None),
    )


# --- plans that nobody carried out ------------------------------------------------------------

_CARRY_OUT = {
    Action.CLUSTERING: carry_out_clustering,
    Action.CLEAN: carry_out_clean,
    Action.INDEXING: carry_out_index_build,
}


def carry_out_plans(table: HudiTable) -> None:
    """Execute plans of a process that died before it began to execute them."""
    for pending in table.timeline().pending():
        if pending.action not in _CARRY_OUT:
            continue  # the instant of a writer
        with suppress(NoSuchInstantError, WriteConflictError):
            _CARRY_OUT[pending.action](table, pending.requested_time)
