"""Compaction of the metadata table: its plan, the same answers before and after it, and late writers."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider.concurrency import CommitLog, begin_planned, pending_instants, rollback_dead_writers
from airflow_provider.concurrency.heartbeats.heartbeat import HEARTBEAT_FOLDER
from airflow_provider.exceptions import (
    CorruptTableError,
    InvalidInputError,
    LockLostError,
    NoSuchInstantError,
)
from airflow_provider.indexing.drop import drop_index
from airflow_provider.indexing.run import pending_indexings, run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.locks import LockHolder
from airflow_provider.services import compaction
from airflow_provider.services.archival import archive
from airflow_provider.services.compaction import (
    compact,
    compact_when_due,
    pending_compactions,
    preview_compaction,
    run_compaction,
    schedule_compaction,
)
from airflow_provider.services.compaction_plan import CompactionPlan, CompactionSettings, plan_compaction
from airflow_provider.table import HudiTable
from airflow_provider.table.hudi_table import PROPERTIES_PATH
from airflow_provider.table.metadata_table.file_groups import MetadataFile, MetadataFileSlice
from airflow_provider.table.metadata_table.partitions import MetadataPartition
from airflow_provider.table.metadata_table.reader import METADATA_FOLDER, MetadataTable, metadata_storage
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.active import Timeline, instant_path
from airflow_provider.table.timeline.instant import Action, Instant, State, after, before
from airflow_provider.table.timeline.metadata import decode, encode
from tests.unit.concurrency.other_hudi_writers.another_engine import SharedLock
from tests.unit.concurrency.simulation.scheduler import NoLock
from tests.unit.services.indexed_table import (
    EVERY_COMMIT,
    FILES,
    GROUPS,
    RECORD_INDEX,
    SCHEMA,
    check_indexes,
    commit,
    indexed_table,
    records,
    rows,
    trust,
)
from tests.unit.table.conftest import JvmTables
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild


class Meanwhile(NoLock):
    """A table lock that calls a function before it is acquired."""

    def __init__(self, happens: Callable[[], None]) -> None:
        self._happens: Callable[[], None] | None = happens

    def holder(self) -> LockHolder | None:
        # While another process holds the lock a write waits for it; otherwise the write would commit without
        # the lock.
        return LockHolder("another", 0, 0.0) if self._happens else None

    def is_held(self) -> bool:
        return False

    def __enter__(self) -> Self:
        happens, self._happens = self._happens, None
        if happens is not None:
            happens()
        return self


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return indexed_table(tmp_path / "trips")


def schedule(table: HudiTable) -> str:
    instant = schedule_compaction(table, EVERY_COMMIT, lock=NoLock())
    assert instant is not None
    return instant


def metadata_timeline(table: HudiTable) -> Timeline:
    return Timeline.load(metadata_storage(table.storage))


def test_every_tenth_commit_it_is_due(table: HudiTable) -> None:
    for number in range(9):
        commit(table, number)
        assert (compact(table) == []) is (number != 8)  # one deltacommit made the indexes
    (done,) = [i for i in metadata_timeline(table).commits() if i.action is Action.COMMIT]
    assert done.completion_time == after(done.requested_time)
    assert [i for i in metadata_timeline(table).completed() if i.action is Action.DELTA_COMMIT]
    assert not metadata_timeline(table).pending()
    for partition in GROUPS:
        slices = MetadataTable(metadata_storage(table.storage)).file_slices(partition)
        assert {(each.base_file and each.base_file.instant, each.log_files) for each in slices} == {
            (done.requested_time, ())
        }
    check_indexes(table)
    assert rows(table) == list(range(9))


def test_the_instant_lies_on_the_metadata_tables_timeline_only(table: HudiTable) -> None:
    commit(table, 1)
    instant = schedule(table)
    assert table.timeline().find(instant) is None
    assert pending_instants(table) == []
    assert not list(table.storage.names(HEARTBEAT_FOLDER))
    assert pending_compactions(table) == [instant]
    assert schedule_compaction(table, EVERY_COMMIT, lock=NoLock()) is None, "one at a time"
    found = metadata_timeline(table).find(instant)
    assert found is not None
    assert (found.action, found.state) == (Action.COMPACTION, State.REQUESTED)
    with pytest.raises(NoSuchInstantError, match="there is no plan"):
        begin_planned(table, instant)
    commit(table, 2)
    result = run_compaction(table, instant)
    assert (result.partitions, result.file_groups) == (("files", "record_index"), 2)
    assert run_compaction(table, instant) == result
    assert result.to_dict()["records"] == result.records == 2 + 1
    assert pending_compactions(table) == []
    with pytest.raises(NoSuchInstantError, match="no compaction plan"):
        run_compaction(table, before(instant))
    check_indexes(table)


def test_the_plan_is_the_one_that_the_jvm_made(jvm_tables: JvmTables) -> None:
    storage = metadata_storage(Storage(str(jvm_tables.table("rs_cow_v9_txns_simple_meta"))))
    instant = "20260307162449278"
    theirs = decode(storage.read(instant_path(Instant(instant, Action.COMPACTION, State.REQUESTED))))
    later = [i for i in Timeline.load(storage).instants if (i.completion_time or "") > instant]
    then = MetadataTable(storage, pending=[i.requested_time for i in later])
    partitions = [each for each in MetadataPartition if each != "bloom_filters"]
    ours = plan_compaction(
        (each for partition in partitions for each in then.file_slices(partition)),
        then.timeline,
        CompactionSettings(),
    )
    assert ours is not None
    written = decode(ours.to_avro())
    assert {*theirs} == {*written}
    assert (theirs["version"], theirs["missingSchedulePartitions"]) == (2, [])

    def told(plan: dict[str, Any]) -> list[Any]:
        keys = ("partitionPath", "fileId", "baseInstantTime", "dataFilePath")
        return sorted(([*(each[key] for key in keys), *logs(each)] for each in plan["operations"]), key=str)

    def logs(operation: dict[str, Any]) -> list[Any]:
        # Beside a base file, this leaves out the empty log file with which the file group begins.
        names, metrics = operation["deltaFilePaths"], operation["metrics"]
        count, size = metrics["TOTAL_LOG_FILES"], metrics["TOTAL_LOG_FILES_SIZE"]
        first = f".{operation['fileId']}_{operation['baseInstantTime']}.log.1_0-0-0"
        if operation["dataFilePath"] and first in names:
            return [[name for name in names if name != first], count - 1, size - 80]
        return [names, count, size]

    assert told(written) == told(theirs)
    assert CompactionPlan.from_avro(ours.to_avro()) == ours
    assert CompactionPlan.from_avro(encode("HoodieCompactionPlan", theirs)) is None, "theirs is for them"


def test_few_records_beside_a_large_base_file_wait(table: HudiTable) -> None:
    """The whole base file would be written again for a few records; but they do not wait for ever."""
    base = MetadataFile("base", "10", "10", 100_000)
    few, many = (MetadataFile("log", "20", "21", size) for size in (9_000, 11_000))
    slices = [
        MetadataFileSlice("record_index", f"record-index-{n}", base, (log,))
        for n, log in enumerate((few, many))
    ]
    done = [Instant(str(n), Action.DELTA_COMMIT, State.COMPLETED, str(n + 1)) for n in range(11, 23)]
    timeline = Timeline(table.storage, done)

    def planned(patience: int) -> list[str]:
        plan = plan_compaction(slices, timeline, CompactionSettings(patience=patience))
        return [each.file_id for each in plan.operations] if plan else []

    assert planned(0) == planned(3) == ["record-index-0", "record-index-1"]
    assert planned(4) == ["record-index-1"], "three commits since are not four"
    built = Instant("10", Action.DELTA_COMMIT, State.COMPLETED, "23")
    timeline = Timeline(table.storage, [built, *done])
    assert planned(2) == ["record-index-0", "record-index-1"], "that of the build itself, and the last one"
    assert planned(3) == ["record-index-1"], "they could not be compacted while the base file was built"


def test_what_completes_after_the_plan_is_left_to_the_next(table: HudiTable) -> None:
    """This holds for any requested time, even if the commit completes before the plan is executed."""
    commit(table, 1, 2)
    planned: list[str] = []
    lock = Meanwhile(lambda: planned.append(schedule(table)))
    data = pa.table({"id": [2, 3], "city": ["sf", "sf"]}, SCHEMA)
    late = ingest_arrow(table, data, lock=lock)["instant"]
    assert late < planned[0]
    before = records(table)
    run_compaction(table, planned[0])
    for partition in GROUPS:
        for each in MetadataTable(metadata_storage(table.storage)).file_slices(partition):
            assert each.base_file is not None
            assert each.base_file.instant == planned[0]
            assert {log.instant for log in each.log_files} <= {late}
    assert records(table) == before
    check_indexes(table)
    assert rows(table) == [1, 2, 3]


def test_a_commit_within_the_planning_is_part_of_the_plan(table: HudiTable) -> None:
    """The planner looks again, even if the lock has failed to exclude another writer."""
    commit(table, 1)

    class SlowStorage(Storage):
        late: str | None = None

        def put(self, path: str, data: bytes) -> None:
            super().put(path, data)
            if self.late is None and "commit_log/staged" in path:
                self.late = ""
                self.late = commit(table, 7)

    slow = SlowStorage(table.location)
    instant = schedule_compaction(HudiTable(slow, table.config), EVERY_COMMIT, lock=NoLock())
    assert slow.late is not None
    assert instant is not None
    assert pending_compactions(table) == [instant]
    plan = metadata_timeline(table).plan(Instant(instant, Action.COMPACTION, State.REQUESTED))
    assert plan is not None
    assert any(slow.late in name for each in plan["operations"] for name in each["deltaFilePaths"])
    run_compaction(table, instant)
    check_indexes(table)


def test_file_groups_without_news_and_with_little_are_left(table: HudiTable) -> None:
    commit(table, 1)
    plan = preview_compaction(table, EVERY_COMMIT)
    assert plan is not None
    sizes = {(each.partition, each.file_id): each.log_bytes for each in plan.operations}
    assert len(sizes) == 2, "one file group of the record index has no record"
    most = max(sizes.values())
    some = preview_compaction(table, CompactionSettings(1, most))
    assert some is not None
    assert [each.log_bytes for each in some.operations] == [most]
    assert preview_compaction(table, CompactionSettings(1, most + 1)) is None

    config = HudiTable.open(table.location).config
    assert CompactionSettings.of(config) == CompactionSettings(10, 0)
    config.raw["hoodie.metadata.compact.max.delta.commits"] = "3"
    assert CompactionSettings.of(config, log_file_size_threshold=5) == CompactionSettings(3, 5)
    config.raw["hoodie.metadata.compact.max.delta.commits"] = "0"
    with pytest.raises(InvalidInputError, match="must be a whole number of at least 1, not '0'"):
        CompactionSettings.of(config)


def test_an_index_that_is_built_or_was_dropped_is_left_alone(table: HudiTable) -> None:
    commit(table, 1)
    trust(table, FILES, inflight=(RECORD_INDEX,))
    plan = preview_compaction(table, EVERY_COMMIT)
    assert plan is not None
    assert {each.partition for each in plan.operations} == {FILES}

    trust(table, FILES, RECORD_INDEX)
    instant = schedule(table)
    trust(table, FILES)
    shutil.rmtree(f"{table.location}/{METADATA_FOLDER}/{RECORD_INDEX}")
    assert run_compaction(table, instant).partitions == (FILES,)
    assert not (Path(table.location) / METADATA_FOLDER / RECORD_INDEX).exists()
    assert rows(table) == [1]


def test_an_index_that_is_built_again_keeps_its_new_base_files(table: HudiTable) -> None:
    commit(table, 1)
    instant = schedule(table)
    drop_index(table, [RECORD_INDEX])
    commit(table, 2)
    assert schedule_index(table, [RECORD_INDEX]) is not None
    (plan,) = pending_indexings(table)
    run_index(table, plan)
    commit(table, 3)
    assert run_compaction(table, instant).partitions == (FILES,)
    assert_indexes_equal_a_rebuild(table, [FILES, RECORD_INDEX])
    assert [each.file_groups for each in compact(table, EVERY_COMMIT)] == [2]
    assert_indexes_equal_a_rebuild(table, [FILES, RECORD_INDEX])
    assert rows(table) == [1, 2, 3]

    commit(table, 4)
    instant = schedule(table)
    drop_index(table, [FILES])  # this drops the metadata table, with its plan
    assert pending_compactions(table) == []
    with pytest.raises(NoSuchInstantError, match="schedule one first"):
        run_compaction(table, instant)
    commit(table, 5)
    assert compact(table, EVERY_COMMIT) == []
    assert rows(table) == [1, 2, 3, 4, 5]


def test_files_that_are_gone_are_told(table: HudiTable) -> None:
    commit(table, 1)
    instant = schedule(table)
    for log_file in (Path(table.location) / METADATA_FOLDER / FILES).glob(".files*.log.1_1-*"):
        log_file.unlink()
    with pytest.raises(CorruptTableError, match="drop the index and build it again"):
        run_compaction(table, instant)
    assert pending_compactions(table) == [instant]


def test_another_hudi_writers_plan_is_left_to_it(table: HudiTable) -> None:
    commit(table, 1)
    storage = metadata_storage(table.storage)
    theirs = Instant("20200102000000000", Action.COMPACTION, State.REQUESTED)
    storage.put(instant_path(theirs), encode("HoodieCompactionPlan", {"operations": [], "version": 2}))
    assert compact(table, EVERY_COMMIT) == []
    assert pending_compactions(table) == []
    with pytest.raises(NoSuchInstantError):
        run_compaction(table, theirs.requested_time)


def test_a_plan_that_a_jvm_carries_out_under_the_shared_lock_is_not_carried_out_again(
    table: HudiTable,
) -> None:
    """A JVM completes the plan at a time of its own; hudi-rs cannot read two completions of one instant."""
    commit(table, 1)
    instant = schedule(table)
    completed_by_the_jvm = after(after(instant))

    class TakenByTheJvm(Meanwhile):
        excludes_hudi = True

    def jvm() -> None:
        with pytest.MonkeyPatch.context() as clock:
            clock.setattr(compaction, "after", lambda _: completed_by_the_jvm)
            run_compaction(table, instant)

    result = run_compaction(table, instant, lock=TakenByTheJvm(jvm))
    assert result.completion_time == completed_by_the_jvm
    assert [i.requested_time for i in metadata_timeline(table).commits()].count(instant) == 1
    timeline = Path(table.location, ".hoodie/metadata/.hoodie/timeline")
    assert len(list(timeline.glob(f"{instant}_*"))) == 1
    check_indexes(table)


@pytest.mark.parametrize("completes", ["this package", "the JVM"])
def test_one_base_file_stays_of_two_executors(table: HudiTable, completes: str) -> None:
    """hudi-rs reads no file group that has two base files of one instant."""
    commit(table, 1)
    instant = schedule(table)
    storage = metadata_storage(table.storage)
    path = f"files/files-0000-0_7-8-9_{instant}.hfile"
    if completes == "this package":
        storage.put(path, b"of a JVM that was killed")
    run_compaction(table, instant, lock=SharedLock())
    if completes == "the JVM":
        storage.put(path, b"of a process of this package that had lost the lock")
        compact(table)
    assert [name for name in storage.names("files") if instant in name] == [
        f"files-0000-0_1-0-0_{instant}.hfile"
    ]
    check_indexes(table)


def test_a_compaction_that_has_lost_the_shared_lock_completes_nothing(table: HudiTable) -> None:
    """A JVM may be carrying the plan out: its base file stays."""
    commit(table, 1)
    instant = schedule(table)
    storage = metadata_storage(table.storage)
    path = f"files/files-0000-0_7-8-9_{instant}.hfile"
    storage.put(path, b"of a JVM that works")

    class Lost(SharedLock):
        def is_held(self) -> bool:
            return False

    with pytest.raises(LockLostError, match=f"compaction {instant} of its metadata table has lost the lock"):
        run_compaction(table, instant, lock=Lost())
    assert storage.stat(path) is not None
    assert pending_compactions(table) == [instant]


def test_a_pending_plan_needs_nothing_of_the_commit_log(table: HudiTable) -> None:
    commit(table, 1)
    instant = schedule(table)
    for number in range(5):
        commit(table, number)
    assert archive(table, keep_min=1, keep_max=2).trim > 2
    assert not any(entry.instant == instant for entry in CommitLog(table.storage).backwards())
    assert rollback_dead_writers(table) == []
    assert [done.instant for done in compact(table)] == [instant]
    check_indexes(table)
    assert rows(table) == list(range(5))


def test_a_planner_that_died_after_its_entry_is_not_rolled_back(table: HudiTable) -> None:
    commit(table, 1)
    instant = schedule(table)
    heartbeat = f"{HEARTBEAT_FOLDER}/{instant}"
    table.storage.put(heartbeat, b'{"action": "compaction", "base": 1}')
    os.utime(f"{table.location}/{heartbeat}", (0, 0))
    entries = CommitLog(table.storage).head()
    assert rollback_dead_writers(table) == []
    assert CommitLog(table.storage).head() == entries
    assert table.storage.stat(heartbeat) is None
    assert pending_compactions(table) == [instant]


def test_after_a_commit_it_is_looked_whether_one_is_due(
    table: HudiTable, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(9):
        commit(table, number)
    compact_when_due(table, 12)
    compact_when_due(table, 20, every=100)
    assert not [i for i in metadata_timeline(table).instants if i.action is not Action.DELTA_COMMIT]
    commit(table, 9)  # a load checks at the tenth entry
    assert [i for i in metadata_timeline(table).commits() if i.action is Action.COMMIT]
    assert not metadata_timeline(table).pending()
    check_indexes(table)
    commit(table, 10)
    instant = schedule(table)
    compact_when_due(table, 21)  # the load finishes a compaction that another process began
    assert pending_compactions(table) == []
    assert run_compaction(table, instant).file_groups == 2

    raw = {**table.config.to_properties(), "hoodie.metadata.compact.max.delta.commits": "many"}
    table.storage.put(PROPERTIES_PATH, "\n".join(f"{k}={v}" for k, v in raw.items()).encode())
    compact_when_due(table, 10)  # the commit has completed
    assert "could not be compacted now" in caplog.text
    assert "not 'many'" in caplog.text


def test_a_table_without_indexes_has_nothing_to_compact(tmp_path: Path) -> None:
    table = HudiTable.create(str(tmp_path / "t"), name="t", schema=SCHEMA, record_key=["id"])
    ingest_arrow(table, pa.table({"id": [1], "city": ["sf"]}, SCHEMA))
    compact_when_due(table, 10)
    assert compact(table, EVERY_COMMIT) == []
    assert table.storage.list(METADATA_FOLDER) == []


_steps = st.lists(
    st.one_of(
        st.lists(st.integers(0, 6), min_size=1, max_size=3),  # a commit of these keys
        st.sampled_from(["commit while one is planned", "plan", "run", "compact", "archive"]),
    ),
    min_size=3,
    max_size=12,
)


@settings(max_examples=12)
@given(_steps)
def test_any_order_of_commits_and_services(steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = indexed_table(Path(folder) / "trips")
        expected: set[int] = set()
        for step in steps:
            if isinstance(step, list):
                commit(table, *step)
                expected.update(step)
            elif step == "commit while one is planned":
                lock = Meanwhile(lambda: _plan(table))
                ingest_arrow(table, pa.table({"id": [9], "city": ["sf"]}, SCHEMA), lock=lock)
                expected.add(9)
            elif step == "plan":
                _plan(table)
            elif step == "run":
                for instant in pending_compactions(table):
                    run_compaction(table, instant)
            elif step == "compact":
                compact(table, EVERY_COMMIT, lock=NoLock())
            else:
                archive(table, keep_min=1, keep_max=2, lock=NoLock())
            check_indexes(table)
        assert rows(table) == sorted(expected)


def _plan(table: HudiTable) -> None:
    schedule_compaction(table, EVERY_COMMIT, lock=NoLock())
