"""Commits of a Hudi writer that knows no commit log, such as the JVM's, made under the shared lock.

Hand-written instants stand for the JVM. They come when a JVM's would: while it holds the table lock,
right before the writer under test gets it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder

from airflow_provider.concurrency import begin_write
from airflow_provider.exceptions import InstantRolledBackError, WriteConflictError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.locks.in_process import InProcessLockProvider
from airflow_provider.services.savepoint import create_savepoint
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.base_file import BaseFileWriter, new_file_id, read_base_file
from airflow_provider.table.file_groups import BaseFile
from airflow_provider.table.instant import Action, Instant, State, after, now
from airflow_provider.table.keys import record_keys
from airflow_provider.table.metadata import CommitMetadata, WriteStat, encode, encode_commit_metadata
from airflow_provider.table.timeline import instant_path

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("fare", pa.float64())])


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    table = HudiTable.create(
        str(tmp_path / "trips"), name="trips", schema=SCHEMA, record_key=["id"], partition_by=["city"]
    )
    ingest_arrow(table, rows({1: 1.0, 2: 2.0}))
    return table


def rows(fares: dict[int, float], city: str = "sf") -> pa.Table:
    columns = {"id": list(fares), "city": [city] * len(fares), "fare": list(fares.values())}
    return pa.table(columns, SCHEMA)


class SharedLock(InProcessLockProvider):
    """The lock that a JVM and this writer share: the JVM commits while it has it, before this writer."""

    excludes_hudi = True

    def __init__(self, table: HudiTable, jvm: Callable[[], object]) -> None:
        super().__init__(table.location)
        self._jvm: Callable[[], object] | None = jvm

    def __enter__(self) -> Self:
        if self._jvm is not None:
            self._jvm()
            self._jvm = None
        return super().__enter__()


class Jvm:
    """Writes instants and data files as the JVM does, and no log entry."""

    def __init__(self, table: HudiTable, *, requested: str | None = None) -> None:
        self.table = table
        self.instant = requested or now()
        time.sleep(0.002)  # it has the millisecond to itself
        self.completion_time = after(max(now(), self.instant))

    def upsert(self, fares: dict[int, float], *, into: BaseFile | None = None) -> None:
        file_id = into.file_id if into else new_file_id()
        with self._file(file_id) as sink:
            inserts = len(fares)
            if into is not None:
                old = read_base_file(self.table.storage, into.path)
                kept = [key not in fares for key in old["id"].to_pylist()]
                inserts -= kept.count(False)
                sink.write_preserved(old.filter(pa.array(kept)))
            sink.write(rows(fares), record_keys(rows(fares), ["id"]))
            stat = self._closed(sink, file_id, into.instant if into else "null", inserts)
        self._complete(Action.COMMIT, CommitMetadata("UPSERT", (stat,), {}, {}))

    def cluster(self, inputs: list[BaseFile]) -> None:
        with self._file(file_id := new_file_id()) as sink:
            for each in inputs:
                sink.write_preserved(read_base_file(self.table.storage, each.path))
            stat = self._closed(sink, file_id, "null", 0)
        replaced = {"city=sf": tuple(each.file_id for each in inputs)}
        self._complete(Action.REPLACE_COMMIT, CommitMetadata("CLUSTER", (stat,), replaced, {}))

    def begin_rollback_of(self, instant: str) -> None:
        plan = {
            "instantToRollback": {"commitTime": instant, "action": "commit"},
            "RollbackRequests": [],
            "version": 1,
        }
        self._put(Action.ROLLBACK, State.REQUESTED, encode("HoodieRollbackPlan", plan))

    def begin_restore_of(self, instant: str) -> None:
        plan = {"instantsToRollback": [{"commitTime": instant, "action": "commit"}]}
        self._put(Action.RESTORE, State.REQUESTED, encode("HoodieRestorePlan", plan))

    def _file(self, file_id: str) -> BaseFileWriter:
        return BaseFileWriter(
            self.table.storage,
            partition_path="city=sf",
            file_id=file_id,
            write_token="0-1-2",
            instant=self.instant,
            schema=SCHEMA,
            table_name="trips",
        )

    def _closed(self, sink: BaseFileWriter, file_id: str, prev_commit: str, inserts: int) -> WriteStat:
        written = sink.close()
        return WriteStat(
            file_id, "city=sf", written.path, prev_commit, num_writes=written.rows, num_inserts=inserts
        )

    def _complete(self, action: Action, metadata: CommitMetadata) -> None:
        pending = Action.CLUSTERING if metadata.operation_type == "CLUSTER" else action
        self._put(pending, State.REQUESTED, b"")
        self._put(pending, State.INFLIGHT, b"")
        self._put(action, State.COMPLETED, encode_commit_metadata(metadata, action))

    def _put(self, action: Action, state: State, content: bytes) -> None:
        completed = self.completion_time if state is State.COMPLETED else None
        self.table.storage.put(instant_path(Instant(self.instant, action, state, completed)), content)


def ingest(
    table: HudiTable, fares: dict[int, float], jvm: Callable[[], object], **settings: Any
) -> dict[str, Any]:
    return ingest_arrow(table, rows(fares), lock=SharedLock(table, jvm), **settings)


def fares(table: HudiTable) -> dict[int, float]:
    """What both readers find, which must be the same."""
    ours = snapshot(table).to_table().sort_by("id").to_pydict()
    theirs = HudiTableBuilder.from_base_uri(table.location).build().read()
    found = pa.Table.from_batches(theirs).select(["id", "fare"]).sort_by("id").to_pydict()
    assert {name: ours[name] for name in ("id", "fare")} == found
    return dict(zip(ours["id"], ours["fare"], strict=True))


def only_file(table: HudiTable) -> BaseFile:
    (base_file,) = table.view().base_files("city=sf")
    return base_file


def test_a_commit_of_the_same_file_group_is_a_conflict(table: HudiTable) -> None:
    jvm = Jvm(table)
    with pytest.raises(WriteConflictError, match=f"UPSERT {jvm.instant} by another Hudi writer"):
        ingest(table, {1: 10.0}, lambda: jvm.upsert({1: 5.0}, into=only_file(table)))
    assert fares(table) == {1: 5.0, 2: 2.0}


def test_a_lost_conflict_is_rebased_onto_it(table: HudiTable) -> None:
    jvm = Jvm(table)
    ingest(table, {1: 10.0}, lambda: jvm.upsert({2: 5.0}, into=only_file(table)), on_conflict="rebase")
    assert fares(table) == {1: 10.0, 2: 5.0}


def test_a_commit_of_another_file_group_is_none(table: HudiTable) -> None:
    ingest(table, {1: 10.0}, lambda: Jvm(table).upsert({7: 7.0}))
    assert fares(table) == {1: 10.0, 2: 2.0, 7: 7.0}


def test_a_requested_time_that_another_writer_took_first(
    table: HudiTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = now()
    path = Path(table.location, f".hoodie/timeline/{taken}.commit.requested")
    path.write_bytes(b"")
    monkeypatch.setattr("airflow_provider.concurrency.instant_time.now", lambda: taken)
    writer = begin_write(table, operation="UPSERT")
    assert writer.instant > taken
    assert [path.name for path in Path(table.location, ".hoodie/.heartbeat").iterdir()] == [writer.instant]
    writer.abort()
    assert path.exists()


@pytest.mark.parametrize("policy", ["raise", "rebase"])
def test_the_same_new_key_is_a_conflict(table: HudiTable, policy: str) -> None:
    settings = {"on_conflict": policy, "small_file_limit": 0}
    jvm = Jvm(table)
    if policy == "raise":
        with pytest.raises(WriteConflictError, match="added the same new record key 7"):
            ingest(table, {7: 70.0}, lambda: jvm.upsert({7: 7.0}), **settings)
        assert fares(table) == {1: 1.0, 2: 2.0, 7: 7.0}
    else:
        ingest(table, {7: 70.0}, lambda: jvm.upsert({7: 7.0}), **settings)
        assert fares(table) == {1: 1.0, 2: 2.0, 7: 70.0}


@pytest.mark.parametrize("requested", ["earlier", "later"])
def test_a_clustering_is_rebased_onto_by_default(table: HudiTable, requested: str) -> None:
    earlier = Jvm(table)

    def cluster() -> None:
        jvm = earlier if requested == "earlier" else Jvm(table)
        jvm.cluster(table.view().base_files("city=sf"))

    ingest(table, {1: 10.0, 9: 9.0}, cluster)
    assert fares(table) == {1: 10.0, 2: 2.0, 9: 9.0}


def test_a_clustering_of_another_writer_is_not_reverted(table: HudiTable) -> None:
    jvm = Jvm(table)
    ingest(table, {1: 10.0}, lambda: jvm.cluster([only_file(table)]), on_rewrite="revert")
    assert fares(table) == {1: 10.0, 2: 2.0}
    assert table.timeline().find(jvm.instant) is not None


def test_a_commit_completes_later_than_one_from_a_clock_that_is_ahead(table: HudiTable) -> None:
    jvm = Jvm(table)
    jvm.completion_time = f"{int(now()[:4]) + 1}0101000000000"
    result = ingest(table, {1: 10.0}, lambda: jvm.upsert({7: 7.0}))
    assert result["completion_time"] > jvm.completion_time
    assert ingest_arrow(table, rows({2: 20.0}))["instant"] > jvm.completion_time
    assert fares(table) == {1: 10.0, 2: 20.0, 7: 7.0}


def test_a_write_whose_rollback_another_writer_has_begun_is_dead(table: HudiTable) -> None:
    jvm = Jvm(table)
    writer = begin_write(table, operation="UPSERT", lock=InProcessLockProvider(table.location))
    assert writer.view.base_files("city=sf")
    writer.plan([])
    jvm.begin_rollback_of(writer.instant)
    with pytest.raises(InstantRolledBackError, match="another Hudi writer"):
        writer.commit([])


@pytest.mark.parametrize("policy", ["raise", "rebase"])
def test_a_restore_that_another_writer_has_begun_is_a_conflict(table: HudiTable, policy: str) -> None:
    jvm = Jvm(table)
    (first,) = table.timeline().commits()
    with pytest.raises(WriteConflictError, match=r"another Hudi writer.* took the table back"):
        ingest(table, {1: 10.0}, lambda: jvm.begin_restore_of(first.requested_time), on_conflict=policy)


def test_a_commit_that_we_keep_is_still_another_writers(table: HudiTable) -> None:
    jvm = Jvm(table)

    def commit() -> None:
        jvm.upsert({1: 5.0}, into=only_file(table))
        create_savepoint(table, jvm.instant)

    with pytest.raises(WriteConflictError, match=f"UPSERT {jvm.instant} by another Hudi writer"):
        ingest(table, {1: 10.0}, commit)
    assert fares(table) == {1: 5.0, 2: 2.0}
