"""No service changes what a query returns: on any table, with any history, beside any writer.

No actor has a lock. Rows that no writer touched keep every byte of Hudi's own columns, so that an incremental
reader sees no row twice; hudi-rs reads the same rows.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
from hypothesis import event, given

from airflow_provider.concurrency import begin_write
from airflow_provider.concurrency.heartbeats.heartbeat import heartbeat_path
from airflow_provider.exceptions import CommitError, SnapshotUnavailableError
from airflow_provider.indexing.run import pending_indexings, run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.services.archival import archive
from airflow_provider.services.cleaning.clean_plan import CleaningPolicy, Retention
from airflow_provider.services.cleaning.cleaning import clean
from airflow_provider.services.clustering.clustering import run_clustering, schedule_clustering
from airflow_provider.services.clustering.clustering_job import ClusteringJob
from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
from airflow_provider.services.clustering.row_order import LAYOUTS, can_order
from airflow_provider.services.compaction import compact
from airflow_provider.services.compaction_plan import CompactionSettings
from airflow_provider.services.failed_writes import rollback_failed_writes
from airflow_provider.services.savepoint import create_savepoint, delete_savepoint
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.metadata_table.partitions import MetadataPartition
from airflow_provider.table.schema.arrow_avro import META_COLUMNS
from tests.ingestion_contract.lake import Lake, LakeTable, in_order
from tests.processes.table.faults import with_faults
from tests.unit.concurrency.simulation.scheduler import NoLock
from tests.unit.services.clustering.test_clustering import one_by_one
from tests.unit.table import arrow_data
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild

Row = dict[str, Any]
Rows = Mapping[str, Row]  # by key
Service = Callable[[HudiTable], object]

# hudi-rs 0.5.0 panics on timestamps without a time zone.
KINDS = arrow_data.types.filter(lambda kind: not {"timestamp[us]", "timestamp[ms]"} & set(_words(kind)))
OPERATIONS = ("upsert", "upsert", "delete", "insert_overwrite")


def _words(kind: pa.DataType) -> list[str]:
    return str(kind).replace("<", " ").replace(">", " ").replace(",", " ,").split()


@st.composite
def schemas(draw: st.DrawFn) -> pa.Schema:
    """A key, a partition, and columns of any type."""
    drawn = draw(arrow_data.schemas(KINDS))
    columns = [field.with_name(f"c_{field.name}") for field in drawn]
    return pa.schema([pa.field("id", pa.string()), pa.field("part", pa.string()), *columns])


def batches(schema: pa.Schema) -> st.SearchStrategy[Rows]:
    """Rows of some keys, each of which is in one partition."""
    columns = st.fixed_dictionaries({field.name: arrow_data._optional(field) for field in schema})
    keys = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=4, unique=True)
    return keys.flatmap(
        lambda found: st.tuples(*(columns for _ in found)).map(
            lambda rows: {
                key: row | {"id": key, "part": "xy"[key > "d"]} for key, row in zip(found, rows, strict=True)
            }
        )
    )


@st.composite
def services(draw: st.DrawFn, schema: pa.Schema) -> Service:
    lock = NoLock()
    sortable = [field.name for field in schema if can_order(field.type)]
    columns = draw(st.lists(st.sampled_from(sortable), unique=True, max_size=3))
    settings = ClusteringSettings(
        tuple(columns), draw(st.sampled_from(list(LAYOUTS))), target_file_size=draw(st.integers(1000, 10**6))
    )
    retention = Retention(
        draw(st.sampled_from([CleaningPolicy.KEEP_LATEST_COMMITS, CleaningPolicy.KEEP_LATEST_FILE_VERSIONS])),
        draw(st.integers(1, 2)),
        reverted_after=0.0,
    )
    needed = {MetadataPartition.FILES, MetadataPartition.COLUMN_STATS}
    indexes = sorted(needed | draw(st.sets(st.sampled_from(list(MetadataPartition)))))

    def cluster(table: HudiTable) -> None:
        if instant := schedule_clustering(table, settings, lock=lock, max_failures=None):
            run_clustering(ClusteringJob(table.location, instant), table, one_by_one, lock=lock)

    def index(table: HudiTable) -> None:
        schedule_index(table, indexes, lock=lock)
        for instant in pending_indexings(table):
            run_index(table, instant, lock=lock)

    def save(table: HudiTable) -> None:
        instant = table.timeline().commits()[-1].requested_time
        create_savepoint(table, instant, lock=lock)
        delete_savepoint(table, instant)

    return draw(
        st.sampled_from(
            [
                cluster,
                lambda table: clean(table, retention, lock=lock, max_failures=None),
                lambda table: archive(
                    table, keep_min=1, keep_max=2, dead_writer_seconds=0.0, lock=lock, max_failures=None
                ),
                index,
                lambda table: compact(table, CompactionSettings(1), lock=lock, max_failures=None),
                lambda table: rollback_failed_writes(table),
                save,
            ]
        )
    )


class History:
    """A table, and a model of its rows."""

    def __init__(self, made: LakeTable, schema: pa.Schema) -> None:
        self.made = made
        self._schema = schema
        self.rows: Rows = {}
        self.commits: list[tuple[str, Rows]] = []

    def write(self, operation: str, batch: Rows) -> None:
        rows = pa.Table.from_pylist(list(batch.values()), self._schema)
        self.made.write(operation, rows, lock=NoLock(), small_file_limit=0)
        kept = dict(self.rows)
        if operation == "delete":
            kept = {key: row for key, row in kept.items() if key not in batch}
        if operation == "insert_overwrite":
            over = {row["part"] for row in batch.values()}
            kept = {key: row for key, row in kept.items() if row["part"] not in over}
        self.rows = kept if operation == "delete" else kept | _stored(rows)
        newest = max(self.made.table.timeline().commits(), key=lambda each: each.completion_time or "")
        self.commits.append((newest.requested_time, self.rows))

    def dies(self) -> None:
        """A writer begins, and dies."""
        writer = begin_write(self.made.table, operation="UPSERT", lock=NoLock())
        writer.plan((), ["part=x"])
        writer.heartbeat.stop()
        os.utime(f"{self.made.location}/{heartbeat_path(writer.instant)}", (0, 0))

    def check(self) -> None:
        """Check that all readers see the present rows, and the earlier rows whose files were kept."""
        assert self.made.rows() == self.made._theirs() == in_order(self.rows.values())
        active = {instant.requested_time for instant in self.made.table.timeline().commits()}
        for instant, rows in self.commits:
            if instant in active:
                with suppress(SnapshotUnavailableError):
                    assert self.made.rows(instant) == in_order(rows.values())

    def records(self) -> dict[str, Row]:
        """The rows with Hudi's own columns, except the file's name."""
        rows = snapshot(self.made.table, meta_columns=True).to_table().drop_columns([META_COLUMNS[-1]])
        return {row["id"]: row for row in rows.to_pylist()}


def _stored(rows: pa.Table) -> Rows:
    return {row["id"]: row for row in rows.to_pylist()}


@given(data=st.data())
def test_no_service_changes_what_a_query_returns(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    with tempfile.TemporaryDirectory() as folder:
        partitions = data.draw(st.sampled_from([[], ["part"]]))
        history = History(Lake(Path(folder)).create(schema, partition_by=partitions), schema)
        history.write("upsert", data.draw(batches(schema)))
        for _ in range(data.draw(st.integers(1, 4))):
            if not partitions and history.rows:
                history.write("upsert", data.draw(batches(schema)))
            else:
                history.write(data.draw(st.sampled_from(OPERATIONS)), data.draw(batches(schema)))
        if data.draw(st.booleans()):
            history.dies()
        for _ in range(data.draw(st.integers(1, 4))):
            _serve(history, data, schema)
        assert_indexes_equal_a_rebuild(history.made.table)


def _serve(history: History, data: st.DataObject, schema: pa.Schema) -> None:
    """Run one service; at one of its storage operations a writer may commit."""
    service = data.draw(services(schema))
    batch = data.draw(st.none() | batches(schema))
    left = data.draw(st.integers(0, 40))
    touched: set[str] = set()

    def writes(operation: str, path: str) -> None:
        nonlocal left
        left -= 1
        if left == -1 and batch is not None:
            touched.update(batch)
            history.write("upsert", batch)

    before = history.records()
    with suppress(CommitError):  # the service yields
        service(with_faults(history.made.location, writes))
    event(f"somebody wrote: {bool(touched)}")
    history.check()
    after = history.records()
    assert {key: row for key, row in before.items() if key not in touched} == {
        key: row for key, row in after.items() if key not in touched
    }
