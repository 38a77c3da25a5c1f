"""What writes to a table in these tests: ingestions, table services and index builds.

A clustering here goes the real way, by a plan under the table lock and a writer that carries it out; only
what it plans is plain. Heartbeats and leases are short, so that the dead are found soon.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider.concurrency import (
    PRIORITIES,
    CommitLog,
    ConflictPolicy,
    ServicePlan,
    Writer,
    begin_planned,
    schedule,
)
from airflow_provider.exceptions import NoSuchInstantError, WriteConflictError
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.ingestion import IngestJob, ingest_arrow
from airflow_provider.ingestion.arrow import ArrowRows
from airflow_provider.ingestion.ingestion import write_rows
from airflow_provider.locks import LockProvider, open_lock
from airflow_provider.services import cleaning
from airflow_provider.services.clean_plan import Retention
from airflow_provider.table import HudiTable
from airflow_provider.table.base_file import BaseFileWriter, new_file_id, read_base_file
from airflow_provider.table.file_groups import FileGroupId, FileSystemView
from airflow_provider.table.instant import Action
from airflow_provider.table.metadata import WriteStat, encode
from airflow_provider.table.schema import META_COLUMNS

SCHEMA = pa.schema([("id", pa.string()), ("value", pa.int64()), ("part", pa.string())])
Rows = Mapping[str, tuple[int, str]]
"""Value and partition of each record key."""

LOCK: dict[str, Any] = {"lease_seconds": 0.5, "timeout_seconds": 30.0, "poll_interval_seconds": 0.05}
HEARTBEAT: dict[str, Any] = {"heartbeat_interval": 0.1, "tolerable_misses": 10}
SILENT_SECONDS = 1.2
"""After so long of silence a writer counts as dead, and its lease has run out."""

_GIVES_WAY = ConflictPolicy(on_higher_priority="fail")


def create(location: str) -> HudiTable:
    """A table with partitions that small commits fill."""
    return HudiTable.create(location, name="t", schema=SCHEMA, record_key=["id"], partition_by=["part"])


def arrow(rows: Rows) -> pa.Table:
    """Rows as they are ingested."""
    return pa.table([list(rows), *map(list, zip(*rows.values(), strict=True))], schema=SCHEMA)


def upsert(table: HudiTable | str, name: str, rows: Rows, **job: Any) -> dict[str, Any]:
    """Upsert; under its name the commit is found in the log."""
    table = HudiTable.open(table) if isinstance(table, str) else table
    settings = {**_job(name), "lock": open_lock(LOCK, table.storage), **job}
    return ingest_arrow(table, arrow(rows), **settings)


def append(table: HudiTable, rows: Rows, lock: LockProvider, **job: Any) -> dict[str, Any]:
    """Append rows in a file group of their own; heartbeats as long as usual."""
    return ingest_arrow(table, arrow(rows), "bulk_insert", lock=lock, **job)


def upsert_across(table: HudiTable, name: str, rows: Rows, other: Callable[[], object], **job: Any) -> Any:
    """Upsert; when it has begun, and planned nothing yet, something else happens."""
    described = IngestJob(table.location, lock=LOCK, **{**_job(name), **job})

    @contextmanager
    def around(_: object) -> Any:
        other()
        yield

    return write_rows(described, table, ArrowRows.of(described, table, arrow(rows)), around=around)


def _job(name: str) -> dict[str, Any]:
    # Not filled up: the same new key of two writers goes into two new file groups.
    plain = {"operation": "upsert", "small_file_limit": 0, "on_conflict": "rebase"}
    return {**plain, "operation_key": name, **HEARTBEAT}


# --- clustering -----------------------------------------------------------------------------


def cluster(table: HudiTable, partition: str) -> str | None:
    """Pack the file groups of a partition into one; None when there is nothing to pack."""

    def planner(view: FileSystemView, taken: frozenset[FileGroupId]) -> ServicePlan | None:
        free = [each for each in view.base_files(partition) if each.file_group not in taken]
        slices = [
            {"dataFilePath": each.path, "fileId": each.file_id, "partitionPath": partition} for each in free
        ]
        if len(free) < 2:
            return None
        plan = {"inputGroups": [{"slices": slices, "numOutputFileGroups": 1}], "preserveHoodieMetadata": True}
        content = encode(
            "HoodieRequestedReplaceMetadata", {"operationType": "CLUSTER", "clusteringPlan": plan}
        )
        return ServicePlan(frozenset(each.file_group for each in free), content)

    instant = _schedule(table, planner, Action.CLUSTERING, "CLUSTER", "table_service")
    if instant is not None:
        carry_out_clustering(table, instant)
    return instant


def carry_out_clustering(table: HudiTable, instant: str) -> None:
    """The rows of the plan's file groups, as they are, in one new file group."""
    plan = next(e for e in CommitLog(table.storage).backwards() if e.plans and e.instant == instant)
    [partition] = {group.partition_path for group in plan.written}
    with _begin(table, instant) as writer:
        old = [each for each in writer.view.base_files(partition) if each.file_group in plan.written]
        rows = pa.concat_tables(read_base_file(table.storage, each.path) for each in old)
        rows = rows.unify_dictionaries().take(pc.sort_indices(rows[META_COLUMNS[2]]))
        file_id = new_file_id()
        with BaseFileWriter(
            table.storage,
            partition_path=partition,
            file_id=file_id,
            write_token="0-0-0",
            instant=instant,
            schema=table.schema,
        ) as file:
            file.write_preserved(rows)
            written = file.close()
        stat = WriteStat(
            file_id,
            partition,
            written.path,
            num_writes=written.rows,
            total_write_bytes=written.size,
            file_size=written.size,
        )
        writer.commit([stat], replaced={partition: [each.file_id for each in old]})


# --- cleaning -------------------------------------------------------------------------------


EVERYTHING = Retention("KEEP_LATEST_FILE_VERSIONS", 1, reverted_after=0.0)


def clean(table: HudiTable) -> str | None:
    """Delete file slices that neither a snapshot from now on nor a write in flight needs."""
    results = cleaning.clean(table, EVERYTHING, lock=open_lock(LOCK, table.storage))
    return results[-1].instant if results else None


def carry_out_clean(table: HudiTable, instant: str) -> None:
    """Delete what the plan names."""
    cleaning.run_clean(table, instant, lock=open_lock(LOCK, table.storage))


# --- index build ----------------------------------------------------------------------------


INDEXES = ("files", "record_index")
"""What every table of these tests has; the victim builds another one."""


def build_index(table: HudiTable, *names: str) -> str | None:
    """Plan indexes and build them; ``column_stats`` where none is named."""
    instant = schedule_index(table, names or ["column_stats"], lock=open_lock(LOCK, table.storage))
    if instant is not None:
        carry_out_index_build(table, instant)
    return instant


def carry_out_index_build(table: HudiTable, instant: str) -> None:
    """Build what the plan names."""
    run_index(table, instant, lock=open_lock(LOCK, table.storage), **HEARTBEAT)


# --- plans that nobody carried out ------------------------------------------------------------

_CARRY_OUT = {
    Action.CLUSTERING: carry_out_clustering,
    Action.CLEAN: carry_out_clean,
    Action.INDEXING: carry_out_index_build,
}


def carry_out_plans(table: HudiTable) -> None:
    """Carry out what a scheduler planned that died before it began."""
    for pending in table.timeline().pending():
        if pending.action not in _CARRY_OUT:
            continue  # a writer's
        with suppress(NoSuchInstantError, WriteConflictError):
            _CARRY_OUT[pending.action](table, pending.requested_time)


def _schedule(table: HudiTable, planner: Any, action: Action, operation: str, priority: str) -> str | None:
    lock = open_lock(LOCK, table.storage)
    return schedule(
        table, planner, action=action, operation=operation, priority=PRIORITIES[priority], lock=lock
    )


def _begin(table: HudiTable, instant: str) -> Writer:
    lock = open_lock(LOCK, table.storage)
    return begin_planned(table, instant, lock=lock, policy=_GIVES_WAY, **HEARTBEAT)
