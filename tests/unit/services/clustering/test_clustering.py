"""Executing clustering plans beside writers, dead executors and second executors: no row changes."""

from __future__ import annotations

import datetime
import decimal
import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider.concurrency import (
    PRIORITIES,
    CommitLog,
    HeartbeatSettings,
    begin_planned,
    begin_write,
    pending_instants,
    rollback,
    rollback_dead_writers,
)
from airflow_provider.concurrency.heartbeats.heartbeat import heartbeat_path
from airflow_provider.concurrency.log.log_entry import Commit
from airflow_provider.concurrency.plans.service_failures import (
    Service,
    clear_failures,
    failures,
    failures_in_a_row,
)
from airflow_provider.exceptions import (
    HigherPriorityWriteError,
    NoSuchInstantError,
    ServiceStoppedError,
    WriteConflictError,
)
from airflow_provider.locks import open_lock
from airflow_provider.services.clustering.clustering import (
    cluster_in_process,
    clustering_progress,
    pending_clusterings,
    pending_plan,
    run_clustering,
    schedule_clustering,
)
from airflow_provider.services.clustering.clustering_job import ClusteringJob
from airflow_provider.services.clustering.clustering_plan import ClusteringGroup, ClusteringSettings
from airflow_provider.services.clustering.clustering_task import ClusteringTask
from airflow_provider.services.clustering.row_order import LAYOUTS, row_order
from airflow_provider.table import increment, snapshot
from airflow_provider.table.file_groups.file_slice import FileSlice
from airflow_provider.table.file_groups.view import FileGroupId
from airflow_provider.table.files.base_file_reader import read_base_file, read_footer
from airflow_provider.table.timeline.instant import Action
from airflow_provider.table.timeline.metadata import WriteStat
from tests.ingestion_contract.interleaving import MeetingLock
from tests.ingestion_contract.lake import Lake, LakeTable

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "part": pa.string(),
        "number": pa.int32(),
        "real": pa.float64(),
        "text": pa.string(),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "price": pa.decimal128(9, 2),
        "flag": pa.bool_(),
    }
)
PACKED = ClusteringSettings()


def row(id_: int, part: str = "a") -> dict[str, Any]:
    """A row; each column orders the rows in another way, and has nulls."""
    spread = int.from_bytes(hashlib.sha256(str(id_).encode()).digest()[:8])
    values = {
        "number": spread % 7,
        "real": spread % 1000 / 8,
        "text": f"t{spread % 91}",
        "day": datetime.date(2013, 1, 1) + datetime.timedelta(spread % 365),
        "at": datetime.datetime(2013, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=spread % 10**6),
        "price": decimal.Decimal(spread % 99_999).scaleb(-2),
        "flag": bool(spread % 2),
    }
    names = list(values)
    if id_ % 5 == 0:
        values[names[id_ // 5 % len(names)]] = None
    return {"id": id_, "part": part, **values}


@pytest.fixture
def table(tmp_path: Path) -> LakeTable:
    """A table with partitions ``a`` and ``b`` of three file groups each."""
    return make(tmp_path)


def make(folder: Path) -> LakeTable:
    made = Lake(folder).create(SCHEMA, partition_by=["part"])
    for number in range(3):
        ids = range(20 * number, 20 * number + 20)
        made.ingest("bulk_insert", [row(n, part) for n in ids for part in "ab"])
    return made


def upsert(table: LakeTable, id_: int, part: str = "a", text: str = "new") -> dict[str, Any]:
    return table.ingest("upsert", [{**row(id_, part), "text": text}], small_file_limit=0)


def plan(table: LakeTable, **given_: Any) -> str:
    instant = schedule_clustering(table.table, ClusteringSettings(**given_))
    assert instant is not None
    return instant


def meta(table: LakeTable) -> pa.Table:
    """All columns of all rows except the file's name, in the order of the keys."""
    rows = snapshot(table.table, meta_columns=True).to_table().drop_columns(["_hoodie_file_name"])
    return rows.sort_by([("part", "ascending"), ("id", "ascending")])


def one_by_one(tasks: Sequence[ClusteringTask]) -> list[WriteStat]:
    written = (task.run(f"{number}-0-0") for number, task in enumerate(tasks))
    return [stat for stat in written if stat is not None]


# --- what a query returns -------------------------------------------------------------------


@settings(max_examples=10)
@given(
    columns=st.lists(st.sampled_from(SCHEMA.names), unique=True, max_size=4),
    layout=st.sampled_from(list(LAYOUTS)),
    outputs=st.integers(1, 4),
)
def test_the_same_rows_in_any_layout(
    tmp_path_factory: pytest.TempPathFactory, columns: list[str], layout: str, outputs: int
) -> None:
    table = make(tmp_path_factory.mktemp("lake"))
    before, partition = meta(table), sum(b.size for b in table.table.view().base_files("part=a"))
    instant = schedule_clustering(
        table.table,
        ClusteringSettings(tuple(columns), layout, target_file_size=partition // outputs + 1000),
    )
    cluster_in_process(table.table)
    assert meta(table).equals(before)
    table.check()  # hudi-rs agrees, on every commit and every change
    if instant is None or not columns:
        return
    for path in ("part=a", "part=b"):
        files = [b for b in table.table.view().base_files(path) if b.instant == instant]
        files.sort(key=lambda base_file: int(base_file.write_token.partition("-")[0]))
        rows = pa.concat_tables([read_base_file(table.table.storage, each.path) for each in files])
        order = row_order(layout, [rows[name] for name in columns])
        # Rows that are equal in the layout may be in any order; the columns decide which rows are equal.
        assert rows.select(columns).take(order).equals(rows.select(columns).combine_chunks())


def test_the_new_files_are_whole_hudi_files(table: LakeTable) -> None:
    result = plan(table, sort_by=("text",)) and cluster_in_process(table.table)
    assert result is not None
    counts = ("groups_planned", "groups_done", "groups_left_out", "files_replaced", "files_written", "rows")
    assert [result[name] for name in counts] == [2, 2, 0, 6, 2, 120]
    timeline = table.table.timeline()
    commit = timeline.find(result["instant"])
    assert commit is not None
    assert commit.action is Action.REPLACE_COMMIT
    metadata = timeline.commit_metadata(commit)
    assert (metadata.operation_type, metadata.extra_metadata["priority"]) == ("CLUSTER", "200")
    for stat in metadata.write_stats:
        footer = read_footer(table.table.storage, stat.path)
        assert (stat.num_writes, stat.num_inserts, stat.prev_commit) == (60, 0, "null")
        assert Path(table.location, stat.path).stat().st_size == stat.file_size
        assert (footer.num_rows, footer.min_key, footer.max_key) == (60, "0", "9")
        assert footer.bloom is not None
        assert footer.bloom.might_contain(pa.array([str(n) for n in range(60)])).all()
        rows = pq.read_table(f"{table.location}/{stat.path}")
        assert set(rows["_hoodie_file_name"].to_pylist()) == {stat.path.rpartition("/")[2]}
        texts = rows["text"].to_pylist()
        assert texts == sorted(texts, key=lambda text: (text is not None, text or ""))


@pytest.mark.parametrize("sort_by", [(), ("number",)])
def test_fewer_rows_than_new_file_groups(tmp_path: Path, sort_by: tuple[str, ...]) -> None:
    table = Lake(tmp_path).create(SCHEMA)
    for number in range(8):
        table.ingest("bulk_insert", [row(number)] if number % 4 else [row(number), row(number + 100)])
    group = ClusteringGroup("", tuple(map(FileSlice.of, table.table.base_files())), 12)
    settings_ = ClusteringSettings(sort_by)
    found = []
    with begin_write(table.table, operation="CLUSTER") as writer:
        for number in range(group.outputs):
            schema = table.table.schema_on(writer.view.timeline)
            args = (table.table.storage, table.table.config, schema, writer.instant)
            found.append(ClusteringTask(*args, settings_, group, number).run(f"{number}-0-0"))
        assert [stat.num_writes for stat in found if stat] == [1] * 10
        assert found.count(None) == 2


def test_an_incremental_reader_sees_nothing_twice(table: LakeTable) -> None:
    upsert(table, 1)
    checkpoint = increment(table.table).end
    plan(table, sort_by=("number",))
    cluster_in_process(table.table)
    assert increment(table.table, checkpoint).scanner().to_table().num_rows == 0
    upsert(table, 2)
    found = increment(table.table, checkpoint).scanner().to_table()
    assert found["id"].to_pylist() == [2]


# --- others -----------------------------------------------------------------------------------


class Moments:
    """Lets an upsert come at one point of a clustering's life.

    :param table: the table.
    :param at: name of the point.
    """

    ALL = ("planned", "begun", "first group", "written", "committing", "completed")

    def __init__(self, table: LakeTable, at: str) -> None:
        self._table, self._at, self._groups = table, at, 0
        self.upserted = False

    def reached(self, point: str) -> None:
        if point == self._at:
            upsert(self._table, 5, "a")
            self.upserted = True

    def write_group(self, tasks: Sequence[ClusteringTask]) -> list[WriteStat]:
        self._groups += 1
        if self._groups == 1:
            self.reached("begun")
        stats = one_by_one(tasks)
        self.reached("first group" if self._groups == 1 else "written")
        return stats


@pytest.mark.parametrize("at", Moments.ALL)
def test_an_upsert_into_a_planned_group_at_every_point(table: LakeTable, at: str) -> None:
    # The ingestion has the higher priority, and always gets through. The clustering leaves out the group that
    # the ingestion touched, and commits the other partition's.
    moments = Moments(table, at)
    before = meta(table)
    instant = plan(table)
    moments.reached("planned")
    lock = MeetingLock(lambda: moments.reached("committing"))
    job = ClusteringJob(table.location, instant)
    result = run_clustering(job, table.table, moments.write_group, lock=lock)
    moments.reached("completed")
    assert moments.upserted
    assert result is not None
    left_out = 0 if at == "completed" else 1
    assert (result["groups_done"], result["groups_left_out"]) == (2 - left_out, left_out)
    rows = before.to_pylist()
    changed = {(row["part"], row["id"]): row for row in meta(table).to_pylist()}
    assert changed["a", 5]["text"] == "new"
    assert [row for row in rows if changed[row["part"], row["id"]] != row] == [rows[5]]
    table.check_now(table.rows())
    # The next plan contains the group that was left out.
    again = schedule_clustering(table.table, PACKED)
    assert (again is not None) == (left_out == 1)


def test_every_group_hit_leaves_nothing_to_commit(table: LakeTable) -> None:
    plan(table)
    for part in "ab":
        upsert(table, 1, part)
    with pytest.raises(WriteConflictError, match="lost a write conflict: UPSERT"):
        cluster_in_process(table.table)
    assert pending_clusterings(table.table) == []
    table.check()
    # The input has changed, so this does not count as a failure.
    assert failures_in_a_row(table.table) == []


def test_a_live_writer_of_higher_priority_is_not_disturbed(table: LakeTable) -> None:
    instant = plan(table)
    storage = table.table.storage
    (group, *_) = table.table.view().base_files("part=a")
    with begin_write(table.table, operation="UPSERT", lock=open_lock({}, storage)) as ingestion:
        ingestion.plan([group.file_group])
        result = cluster_in_process(table.table, instant)
        assert result is not None
        assert (result["partitions"], result["groups_left_out"]) == (["part=b"], 1)
        other = schedule_clustering(table.table, PACKED)  # without the file groups of the pending plan
        assert other is not None
    with begin_write(table.table, operation="UPSERT", lock=open_lock({}, storage)) as ingestion:
        ingestion.plan([base.file_group for base in table.table.view().base_files("part=a")])
        with pytest.raises(HigherPriorityWriteError):
            cluster_in_process(table.table, other)
    table.check()


def test_a_clustering_of_higher_priority_than_a_live_writer_goes_on(table: LakeTable) -> None:
    schedule_clustering(table.table, PACKED, priority=PRIORITIES["ingestion"] + 1)
    groups = [base_file.file_group for base_file in table.table.base_files()]
    with begin_write(table.table, operation="UPSERT") as ingestion:
        ingestion.plan(groups)
        result = cluster_in_process(table.table)
    assert result is not None
    assert result["groups_done"] == 2


def test_the_same_plan_started_twice_at_once_completes_once(table: LakeTable) -> None:
    instant = plan(table)
    seconds: list[str] = []

    def write_group(tasks: Sequence[ClusteringTask]) -> list[WriteStat]:
        with pytest.raises(WriteConflictError, match="is being carried out already") as caught:
            cluster_in_process(table.table, instant)
        seconds.append(str(caught.value))
        assert cluster_in_process(table.table) is None  # a search for any plan finds none
        return one_by_one(tasks)

    first = run_clustering(ClusteringJob(table.location, instant), table.table, write_group)
    assert first is not None
    assert len(seconds) == 2
    # A later executor gets the first one's result.
    assert cluster_in_process(table.table, instant) == {**first, "already_committed": True}
    assert [i.requested_time for i in table.table.timeline().commits()].count(instant) == 1
    table.check()


# --- an execution that dies -------------------------------------------------------------------


def test_a_plan_that_nobody_began_is_carried_out_by_the_next_run(table: LakeTable) -> None:
    first, second = plan(table, partitions=("part=a",)), plan(table)
    results = [cluster_in_process(table.table) for _ in range(3)]
    assert [result and result["instant"] for result in results] == [first, second, None]


def killed(table: LakeTable, instant: str) -> None:
    """An execution that wrote a file, and has been silent for too long since."""
    storage = table.table.storage
    writer = begin_planned(table.table, instant, heartbeat=HeartbeatSettings(3600.0))
    (group, *_) = pending_plan(table.table, instant).groups
    schema = table.table.schema_on(table.table.timeline())
    task = ClusteringTask(storage, table.table.config, schema, instant, PACKED, group)
    assert task.run("0-0-0") is not None
    writer.heartbeat.stop()
    os.utime(Path(table.location, heartbeat_path(instant)), (0, 0))


def test_a_killed_execution_is_rolled_back_by_the_next_run(table: LakeTable) -> None:
    instant = plan(table)
    killed(table, instant)
    before = meta(table)
    assert rollback_dead_writers(table.table) == [instant]
    with pytest.raises(NoSuchInstantError, match=r"plan \d+ was rolled back"):
        cluster_in_process(table.table, instant)
    assert cluster_in_process(table.table) is None
    assert not list(Path(table.location).rglob(f"*_{instant}.parquet"))
    assert plan(table) != instant
    assert cluster_in_process(table.table) is not None
    assert meta(table).equals(before)
    table.check()


def test_a_task_that_outlives_its_rollback_leaves_nothing(table: LakeTable) -> None:
    instant = plan(table)

    def write_group(tasks: Sequence[ClusteringTask]) -> list[WriteStat]:
        rollback(table.table, instant)
        return one_by_one(tasks)

    with pytest.raises(Exception, match="was rolled back while it was written"):
        run_clustering(ClusteringJob(table.location, instant), table.table, write_group)
    assert not list(Path(table.location).rglob(f"*_{instant}.parquet"))
    table.check()


# --- failures ---------------------------------------------------------------------------------


class DiskFullError(Exception):
    """The error of a full disk."""


def fail(table: LakeTable) -> None:
    def write_group(tasks: Sequence[ClusteringTask]) -> list[WriteStat]:
        raise DiskFullError("no space left")

    with pytest.raises(DiskFullError):
        run_clustering(ClusteringJob(table.location, plan(table)), table.table, write_group)


def clear_by_a_changed_input(table: LakeTable) -> None:
    upsert(table, 1)


def clear_by_a_person(table: LakeTable) -> None:
    schedule_clustering(table.table, PACKED, max_failures=None)
    cluster_in_process(table.table)
    table.ingest("bulk_insert", [row(99, "c")])
    table.ingest("bulk_insert", [row(100, "c")])


def clear_by_a_command(table: LakeTable) -> None:
    assert len(failures(table.table, Service.CLUSTERING)) == 3
    clear_failures(table.table, Service.CLUSTERING)


@pytest.mark.parametrize("clear", [clear_by_a_changed_input, clear_by_a_person, clear_by_a_command])
def test_it_stops_itself_after_three_failures_until_it_is_cleared(
    table: LakeTable, clear: Callable[[LakeTable], None]
) -> None:
    for _ in range(3):
        fail(table)
    table.ingest("bulk_insert", [row(1, "other")])  # this commit changes no file group that failed
    told = r"has failed 3 times in a row, last instant \d+ \(DiskFullError: no space left\)"
    with pytest.raises(ServiceStoppedError, match=told):
        schedule_clustering(table.table, PACKED)
    clear(table)
    assert schedule_clustering(table.table, PACKED) is not None


def test_a_success_begins_the_count_anew(table: LakeTable) -> None:
    for _ in range(2):
        fail(table)
    plan(table)
    cluster_in_process(table.table)
    assert failures_in_a_row(table.table) == []


# --- progress -----------------------------------------------------------------------------------


def test_progress_is_told_to_whoever_asks(table: LakeTable) -> None:
    instant = plan(table)
    told: list[dict[str, str]] = []

    def write_group(tasks: Sequence[ClusteringTask]) -> list[WriteStat]:
        told.append(clustering_progress(table.table))
        return one_by_one(tasks)

    run_clustering(ClusteringJob(table.location, instant), table.table, write_group)
    assert told == [{}, {instant: "1 of 2 groups done"}]
    assert clustering_progress(table.table) == {}
    assert pending_instants(table.table) == []


def test_a_failing_group_ends_the_others(table: LakeTable) -> None:
    instant = plan(table)

    def write_group(tasks: Sequence[ClusteringTask]) -> list[WriteStat]:
        if tasks[0].group.partition_path == "part=b":
            raise DiskFullError
        return one_by_one(tasks)

    with pytest.raises(DiskFullError):
        run_clustering(ClusteringJob(table.location, instant), table.table, write_group, parallel_groups=2)
    (last,) = [entry for entry in CommitLog(table.table.storage).backwards() if instant in entry.undone]
    assert "DiskFullError" in last.reason
    assert not list(Path(table.location).rglob(f"*_{instant}.parquet"))
    table.check()


def test_the_parts_of_a_commit_are_exactly_its_groups(table: LakeTable) -> None:
    plan(table)
    result = cluster_in_process(table.table)
    assert result is not None
    (entry,) = [
        entry
        for entry in CommitLog(table.table.storage).backwards()
        if entry.operation == "CLUSTER" and isinstance(entry, Commit)
    ]
    assert len(entry.replaced) == 6
    assert entry.written == {base_file.file_group for base_file in table.table.base_files()}
    assert all(isinstance(group, FileGroupId) for group in entry.written)
