"""After any history with archivals anywhere, the table has the rows of a dictionary."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, ClassVar

import hypothesis.strategies as st
import pyarrow as pa
from hudi import HudiTableBuilder
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from airflow_provider.concurrency import (
    CommitResult,
    HeartbeatSettings,
    Writer,
    WriteSettings,
    begin_write,
    find_operation,
    rollback,
)
from airflow_provider.exceptions import CheckpointExpiredError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.archival import archive
from airflow_provider.services.table_compaction.log_compaction import LogCompactionSettings, compact_logs
from airflow_provider.services.table_compaction.table_compaction import compact_table
from airflow_provider.services.table_compaction.table_compaction_plan import TableCompactionSettings
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.reading.incremental import Increment, increment
from airflow_provider.table.reading.slices import file_slices
from airflow_provider.table.timeline.active import TIMELINE_FOLDER
from airflow_provider.table.timeline.archived_timeline import archived_instants
from tests.ingestion_contract.merge_on_read import BUCKETS

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("fare", pa.int64())])
ids = st.sets(st.integers(0, 5), min_size=1, max_size=3)
cities = st.sampled_from(["la", "sf"])


class Archived(RuleBasedStateMachine):
    """Writes of every kind, dead writers that wake up late, cleaning, and archival in between."""

    options: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.table = HudiTable.create(
            str(Path(self._folder.name) / "t"),
            name="t",
            schema=SCHEMA,
            record_key=["id"],
            partition_by=["city"],
            **self.options,
        )
        self.rows: dict[tuple[str, int], int] = {}
        self.commits: dict[str, str] = {}
        self.rewrites: set[str] = set()
        self.in_flight: list[Writer] = []
        self.count = 0
        self.consumer: Increment | None = None
        self.copy: dict[tuple[str, int], int] = {}

    def teardown(self) -> None:
        for writer in self.in_flight:
            writer.abort()
        self._folder.cleanup()

    def _ingest(self, operation: str, city: str, wanted: set[int]) -> None:
        self.count += 1
        columns = {"id": sorted(wanted), "city": [city] * len(wanted), "fare": [self.count] * len(wanted)}
        key = f"run/{self.count}"
        source = pa.table(columns, SCHEMA)
        result = ingest_arrow(self.table, source, operation=operation, operation_key=key)
        self.commits[key] = result["instant"]

    @initialize()
    def a_first_commit(self) -> None:
        # What is older than the first commit of a table counts as committed, whatever it is.
        self._upserted("sf", {0})

    @rule(city=cities, wanted=ids)
    def upsert(self, city: str, wanted: set[int]) -> None:
        self._upserted(city, wanted)

    def _upserted(self, city: str, wanted: set[int]) -> None:
        self._ingest("upsert", city, wanted)
        self.rows.update({(city, each): self.count for each in wanted})

    @rule(city=cities, wanted=ids)
    def delete(self, city: str, wanted: set[int]) -> None:
        self._ingest("delete", city, wanted)
        for each in wanted:
            self.rows.pop((city, each), None)

    @rule(city=cities, wanted=ids)
    def insert_overwrite(self, city: str, wanted: set[int]) -> None:
        self._ingest("insert_overwrite", city, wanted)
        self.rows = {key: value for key, value in self.rows.items() if key[0] != city}
        self.rows.update({(city, each): self.count for each in wanted})

    @rule()
    def write_begins(self) -> None:
        writer = begin_write(
            self.table,
            operation="INSERT",
            action=self.table.write_action,
            settings=WriteSettings(heartbeat=HeartbeatSettings(3600.0)),
        )
        writer.plan([], ["city=sf"])
        self.in_flight.append(writer)

    @precondition(lambda self: self.in_flight)
    @rule(wakes_up=st.booleans())
    def write_is_rolled_back(self, wakes_up: bool) -> None:
        writer = self.in_flight.pop(0)
        rollback(self.table, writer.instant)
        files = self.table.view().all_base_files()
        if wakes_up and files:
            content = self.table.storage.read(files[0].path)
            self.table.storage.put(f"city=sf/late-0_0-0-0_{writer.instant}.parquet", content)
        writer.heartbeat.stop()

    @rule()
    def replaced_file_groups_are_cleaned(self) -> None:
        if self.in_flight:
            return
        for group in self.table.view().replaced:
            for name in self.table.storage.names(group.partition_path):
                if name.startswith(f"{group.file_id}_"):
                    self.table.storage.delete(f"{group.partition_path}/{name}")

    @rule(keep_min=st.integers(1, 3), keep_max=st.integers(4, 6))
    def archived(self, keep_min: int, keep_max: int) -> None:
        plan = archive(self.table, keep_min=keep_min, keep_max=keep_max, dead_writer_seconds=0)
        left = len(self.table.timeline().commits())
        assert plan.held_by is not None or left <= keep_max
        assert not any(writer.instant in plan.to_dict()["archived"] for writer in self.in_flight)

    @rule()
    def consumer_polls(self) -> None:
        start = None if self.consumer is None else self.consumer.end
        try:
            found = increment(self.table, start)
        except CheckpointExpiredError:
            found, self.copy = increment(self.table), {}
        told = found.scanner().to_table().to_pylist()
        self.copy.update({(row["city"], row["id"]): row["fare"] for row in told})
        self.consumer = found
        # The reader reports no deletes; every row that exists has arrived.
        assert {key: self.copy.get(key) for key in self.rows} == self.rows

    @invariant()
    def every_reader_sees_the_rows(self) -> None:
        found = [snapshot(self.table).to_table().to_pylist()]
        if all(each.base_path for each in file_slices(self.table)):
            # Of a bucket that has only log files hudi-rs misses those whose instants were archived.
            batches = HudiTableBuilder.from_base_uri(self.table.location).build().read()
            found.append(pa.Table.from_batches(batches).to_pylist() if batches else [])
        for rows in found:
            assert sorted((row["city"], row["id"], row["fare"]) for row in rows) == sorted(
                (*key, value) for key, value in self.rows.items()
            )

    @invariant()
    def every_commit_is_known_once(self) -> None:
        found = [i.requested_time for i in archived_instants(self.table.storage)]
        active = {i.requested_time for i in self.table.timeline().completed()}
        assert len(found) == len(set(found))
        assert not set(found) & active
        assert {*self.commits.values(), *self.rewrites} <= set(found) | active
        pending = {i.requested_time for i in self.table.timeline().pending()}
        assert pending == {writer.instant for writer in self.in_flight}
        assert max(found, default="") < min(active, default="9")
        assert len(list(self.table.storage.names(TIMELINE_FOLDER))) <= 3 * (len(active) + len(pending)) + 1

    @precondition(lambda self: self.commits)
    @rule(data=st.data())
    def an_operation_is_tried_again(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.commits)))
        found = find_operation(self.table, key)
        assert isinstance(found, CommitResult)
        assert found.instant == self.commits[key]


class WithLogFiles(Archived):
    """The same on a merge-on-read table, with compactions."""

    options: ClassVar[dict[str, Any]] = {"table_type": "merge_on_read"}

    @rule(commits=st.integers(1, 3))
    def compacted(self, commits: int) -> None:
        for each in compact_table(self.table, TableCompactionSettings(delta_commits=commits)):
            self.rewrites.add(each.instant)

    @precondition(lambda self: not self.table.is_non_blocking)
    @rule()
    def logs_are_compacted(self) -> None:
        for each in compact_logs(self.table, LogCompactionSettings(blocks=2)):
            self.rewrites.add(each.instant)


class InBuckets(WithLogFiles):
    """The same on a non-blocking table."""

    options: ClassVar[dict[str, Any]] = {
        "table_type": "merge_on_read",
        "concurrency": "non_blocking",
        "hudi_options": BUCKETS,
    }


TestArchived = Archived.TestCase
TestArchived.settings = settings(stateful_step_count=25)
SHARE = settings(stateful_step_count=25, max_examples=max(1, settings.default.max_examples // 5))
TestWithLogFiles, TestInBuckets = WithLogFiles.TestCase, InBuckets.TestCase
TestWithLogFiles.settings = TestInBuckets.settings = SHARE
