"""The instants that leave the active timeline, and those that stay; readers can still read all of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self

import pyarrow as pa
import pytest

from airflow_provider.concurrency import (
    PRIORITIES,
    CommitLog,
    ServicePlan,
    WriteTransaction,
    begin_planned,
    begin_write,
    pending_instants,
    rollback_dead_writers,
    schedule,
)
from airflow_provider.concurrency.commit.commit_point import commit
from airflow_provider.concurrency.commit.staged_paths import STAGED_FOLDER
from airflow_provider.concurrency.log.log_entry import Archival, Commit, Plan
from airflow_provider.concurrency.undo.reverts import revert_entry
from airflow_provider.exceptions import (
    CheckpointExpiredError,
    InvalidInputError,
    SnapshotUnavailableError,
    UnsupportedTableError,
)
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.metastore import ValidWriteIdList
from airflow_provider.services import archival
from airflow_provider.services.alter_table import Alteration, alter_table
from airflow_provider.services.archival import archive, archive_when_due, plan_archival
from airflow_provider.services.clustering import ClusteringSettings, cluster_in_process, schedule_clustering
from airflow_provider.services.orphans.orphans import delete_reverted_files
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.reading.incremental import increment
from airflow_provider.table.timeline.active import TIMELINE_FOLDER, instant_path
from airflow_provider.table.timeline.archived_timeline import HISTORY_FOLDER, archived
from airflow_provider.table.timeline.instant import Action, Instant, State
from airflow_provider.table.timeline.metadata import WriteStat
from tests.unit.services.archival.trips import FEW, commits, create, dead_writer, fares, ingest, on_timeline
from tests.unit.table.conftest import JvmTables


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return create(tmp_path)


class Refused:
    """A lock that must not be acquired."""

    fencing_token = 0
    excludes_hudi = False

    def __enter__(self) -> Self:
        raise AssertionError("the lock was taken")


# --- what leaves


def test_the_oldest_commits_leave_and_the_rows_stay(table: HudiTable) -> None:
    done = commits(table, 6)
    before, timeline = fares(table), table.timeline()
    contents = {i.requested_time: timeline.read(i) for i in timeline.commits()}
    plan = archive(table, **FEW)
    assert [instant.requested_time for instant in plan.instants] == done[:4]
    assert plan.held_by is None
    assert on_timeline(table) == done[4:]
    assert not [name for name in table.storage.names(TIMELINE_FOLDER) if name[:17] in done[:4]]
    assert fares(table) == before
    found = list(archived(table.storage))
    assert [each.instant for each in found] == [i for i in timeline.commits() if i.requested_time in done[:4]]
    assert [each.metadata for each in found] == [contents[time] for time in done[:4]]
    assert [each.plan for each in found] == [None] * 4
    assert ingest(table, {0: 7.0})["rows_updated"] == 1
    assert fares(table) == {**before, 0: 7.0}


@pytest.mark.parametrize(
    "alteration",
    [Alteration(add={"tip": "double"}), Alteration(widen={"n": "bigint"})],
    ids=["added", "wider"],
)
def test_the_columns_stay_where_only_table_services_are_left(tmp_path: Path, alteration: Alteration) -> None:
    schema = pa.schema([("id", pa.int64()), ("n", pa.int32())])
    table = HudiTable.create(str(tmp_path / "narrow"), name="narrow", schema=schema, record_key=["id"])
    for n in range(2):
        ingest_arrow(table, pa.table({"id": [1, 2], "n": pa.array([n, n], pa.int32())}), "upsert")
    altered = alter_table(table, alteration)
    columns = HudiTable.open(table.location).schema
    for column in ("n", "id", "n"):  # a clustering's metadata has no schema
        schedule_clustering(table, ClusteringSettings(sort_by=(column,)))
        cluster_in_process(table)
    done = archive(table, keep_min=1, keep_max=2)
    assert done.held_by == f"no later commit than {altered['instant']} has the table's columns"
    assert columns != schema
    assert HudiTable.open(table.location).schema == columns
    assert snapshot(table).to_table().schema == columns
    # The commit of the next load has the columns, too, so the commit before may leave.
    ingest_arrow(table, pa.Table.from_pylist([{"id": 3, "n": 3, "tip": 1.0}], columns), "upsert")
    left = archive(table, keep_min=1, keep_max=2).instants
    assert altered["instant"] in {each.requested_time for each in left}
    assert HudiTable.open(table.location).schema == columns


def test_columns_that_an_earlier_release_lost_come_back_with_their_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema([("id", pa.int64()), ("n", pa.int32())])
    table = HudiTable.create(str(tmp_path / "narrow"), name="narrow", schema=schema, record_key=["id"])
    alter_table(table, Alteration(add={"tip": "double"}, widen={"n": "bigint"}))
    columns = HudiTable.open(table.location).schema
    ingest_arrow(table, pa.Table.from_pylist([{"id": 1, "n": 2**40, "tip": 1.5}], columns), "upsert")
    rows = snapshot(table).to_table()
    for column in ("n", "id", "n"):
        schedule_clustering(table, ClusteringSettings(sort_by=(column,)))
        cluster_in_process(table)
    with monkeypatch.context() as earlier:
        earlier.setattr(archival, "keeper_of_schema", lambda *_: None)
        archive(table, keep_min=1, keep_max=2)
    table = HudiTable.open(table.location)
    assert table.schema == schema
    alter_table(table, Alteration(add={"tip": "double"}, widen={"n": "bigint"}))
    assert snapshot(HudiTable.open(table.location)).to_table() == rows


def test_nothing_is_due(table: HudiTable) -> None:
    commits(table, 3)
    before = sorted(Path(table.location).rglob("*"))
    assert not archive(table, lock=Refused(), **FEW)  # type: ignore[arg-type]
    assert sorted(Path(table.location).rglob("*")) == before


def keeping_few(table: HudiTable) -> HudiTable:
    path = Path(table.location) / ".hoodie" / "hoodie.properties"
    path.write_text(path.read_text() + "hoodie.keep.min.commits=1\nhoodie.keep.max.commits=2\n")
    return HudiTable.open(table.location)


def test_the_table_says_how_many_commits_stay(table: HudiTable) -> None:
    table = keeping_few(table)
    for number in range(25):
        ingest(table, {number: 1.0})
        assert len(table.timeline().commits()) <= 12, "archived at every eleventh commit"
    assert len(table.timeline().commits()) == 5, "one stayed at the 21st, the log's 22nd entry"
    assert len(fares(table)) == 25


@pytest.mark.parametrize(("keep_min", "keep_max"), [(0, 3), (3, 3), (4, 3)])
def test_numbers_that_cannot_work(table: HudiTable, keep_min: int, keep_max: int) -> None:
    with pytest.raises(InvalidInputError, match=f"not {keep_min} and {keep_max}"):
        plan_archival(table, keep_min=keep_min, keep_max=keep_max)


def test_a_table_that_we_do_not_write_is_not_archived(jvm_tables: JvmTables) -> None:
    with pytest.raises(UnsupportedTableError):
        archive(HudiTable.open(str(jvm_tables.table("rs_cow_v8_simple"))), **FEW)


# --- what stays


def test_a_write_in_flight_stays_with_all_that_came_after_it(table: HudiTable) -> None:
    first = commits(table, 3)
    writer = begin_write(table, operation="UPSERT")
    later = commits(table, 4, first=3)
    plan = archive(table, **FEW)
    assert [instant.requested_time for instant in plan.instants] == first[:2]
    assert plan.held_by == f"instant {writer.instant} of {writer.info.owner} is in flight"
    assert on_timeline(table) == [first[2], writer.instant, *later]
    assert CommitLog(table.storage).trimmed() == 2, "the entry on which the writer is based stays"
    writer.abort()


def test_what_completed_since_the_base_of_a_writer_stays(table: HudiTable) -> None:
    """A commit that was requested before a writer and completed after its base."""
    slow = begin_write(table, operation="INSERT")
    slow.plan([], ["city=sf"])
    early = commits(table, 4)
    writer = begin_write(table, operation="UPSERT")
    slow.commit([])
    commits(table, 2, first=4)
    plan = plan_archival(table, **FEW)
    assert plan.instants == ()
    assert plan.held_by == f"a writer in flight asks about {slow.instant}"
    writer.abort()
    assert {i.requested_time for i in plan_archival(table, dead_writer_seconds=0, **FEW).instants} >= {*early}


def test_a_plan_stays(table: HudiTable) -> None:
    first = commits(table, 2)
    group = table.view().all_base_files()[0].file_group
    planned = schedule(
        table,
        lambda view, taken: ServicePlan(frozenset({group}), b"plan"),
        action=Action.CLUSTERING,
        operation="CLUSTER",
        priority=PRIORITIES["table_service"],
    )
    commits(table, 4, first=2)
    plan = archive(table, **FEW)
    assert plan.held_by == f"clustering {planned} is requested"
    assert [instant.requested_time for instant in plan.instants] == first[:1]
    assert any(isinstance(entry, Plan) for entry in CommitLog(table.storage).backwards())


def test_what_an_open_transaction_may_undo_stays(table: HudiTable) -> None:
    commits(table, 1)
    with begin_write(table, operation="INSERT", transaction=WriteTransaction(7, txn_goes_on=True)) as writer:
        writer.plan([], ["city=la"])
        writer.commit([])
    commits(table, 5, first=1)
    plan = archive(table, **FEW)
    assert plan.instants == ()
    assert plan.held_by == f"transaction 7, which wrote {writer.instant}, has not ended"


def test_a_savepoint_stays(table: HudiTable) -> None:
    done = commits(table, 6)
    saved = table.timeline().commits()[2]
    path = instant_path(Instant(saved.requested_time, Action.SAVEPOINT, State.COMPLETED, done[5]))
    table.storage.put(path, b"savepoint")
    plan = archive(table, **FEW)
    assert [instant.requested_time for instant in plan.instants] == done[:2]
    assert plan.held_by == f"savepoint {saved.requested_time} keeps it"
    table.storage.delete(path)
    assert len(archive(table, **FEW).instants) == 2


def test_a_replacecommit_stays_until_what_it_replaced_is_cleaned(table: HudiTable) -> None:
    commits(table, 2)
    replaced = ingest(table, {50: 1.0}, operation="insert_overwrite")["instant"]
    assert fares(table) == {50: 1.0}
    commits(table, 4, first=60)
    before = fares(table)
    plan = archive(table, **FEW)
    assert len(plan.instants) == 2
    assert f"which {replaced} replaced, is not cleaned yet" in str(plan.held_by)
    assert fares(table) == before
    for group in table.view().replaced:
        for name in table.storage.names(group.partition_path):
            if name.startswith(group.file_id):
                table.storage.delete(f"{group.partition_path}/{name}")
    plan = archive(table, **FEW)
    assert replaced in [instant.requested_time for instant in plan.instants]
    assert fares(table) == before


@pytest.mark.parametrize("begun", [False, True], ids=["", "by-one-who-died-after-its-entry"])
def test_a_dead_instant_is_passed_only_when_its_writer_cannot_wake_up_any_more(
    table: HudiTable, begun: bool
) -> None:
    first = commits(table, 2)
    instant, path = dead_writer(table)
    commits(table, 4, first=2)
    before = fares(table)
    plan = archive(table, **FEW)
    assert str(plan.held_by).startswith(f"{instant} was rolled back only ")
    assert [each.requested_time for each in plan.instants] == first[:1]
    assert fares(table) == before
    if begun:
        upto = plan_archival(table, dead_writer_seconds=0, **FEW).upto
        assert commit(table.storage, lambda _: Archival(archived=upto, priority=0))
    plan = archive(table, dead_writer_seconds=0, **FEW)
    assert plan.leftovers == (path,)
    assert table.storage.stat(path) is None
    assert fares(table) == before, "nothing that was rolled back shows"


def test_what_a_savepoint_left_whose_maker_died_goes_with_its_commit(table: HudiTable) -> None:
    kept, *_ = commits(table, 6)
    staged = [f"{STAGED_FOLDER}/{kept}.savepoint.{age}.avro" for age in ("new", "old")]
    for path in staged:
        table.storage.put(path, b"")
    os.utime(table.storage.url(staged[1]), (0, 0))
    archive(table, **FEW)
    assert kept not in on_timeline(table)
    assert [table.storage.stat(path) is not None for path in staged] == [True, False]


def test_a_reverted_clustering_stays_until_its_files_are_cleaned(table: HudiTable) -> None:
    commits(table, 2)
    clustering = schedule(
        table,
        lambda view, taken: ServicePlan(frozenset(f.file_group for f in view.all_base_files()), b"plan"),
        action=Action.CLUSTERING,
        operation="CLUSTER",
        priority=PRIORITIES["table_service"],
    )
    assert clustering is not None
    inputs = table.view().all_base_files()
    with begin_planned(table, clustering) as writer:
        path = f"city=sf/clustered-0_0-0-0_{clustering}.parquet"
        table.storage.put(path, table.storage.read(inputs[0].path))
        writer.commit([WriteStat("clustered-0", "city=sf", path)], replaced={"city=sf": [inputs[0].file_id]})
    rewrite = next(
        e for e in CommitLog(table.storage).backwards() if isinstance(e, Commit) and e.instant == clustering
    )
    assert commit(table.storage, lambda moment: revert_entry(table.storage, moment, rewrite))
    assert table.storage.stat(path) is not None, "a reader may be on it"
    commits(table, 4, first=2)
    plan = archive(table, dead_writer_seconds=0, **FEW)
    assert plan.held_by == f"{clustering} was reverted, and its files are not cleaned yet"
    assert table.storage.stat(path) is not None
    assert delete_reverted_files(table, after_seconds=0.0) == [path]
    before = fares(table)
    plan = archive(table, dead_writer_seconds=0, **FEW)
    assert clustering < plan.instants[-1].requested_time
    assert fares(table) == before


def test_what_a_dead_writer_writes_onto_the_timeline_is_cleaned_up(table: HudiTable) -> None:
    commits(table, 2)
    instant, path = dead_writer(table)
    commits(table, 5, first=2)
    archive(table, dead_writer_seconds=0, **FEW)
    assert CommitLog(table.storage).trimmed()
    before = fares(table)
    late = begin_write(table, operation="INSERT")
    late.plan([], ["city=sf"])
    inflight = instant_path(Instant(late.instant, Action.COMMIT, State.INFLIGHT))
    content = table.storage.read(inflight)
    late.abort()
    stale = instant_path(Instant(instant, Action.COMMIT, State.INFLIGHT))
    for clean_up in (rollback_dead_writers, lambda table: archive(table, dead_writer_seconds=0, **FEW)):
        table.storage.put(stale, content)
        table.storage.put(path, table.storage.read(table.view().all_base_files()[0].path))
        assert pending_instants(table) == [], "nobody waits for it"
        assert snapshot(table).count_rows() == len(before)
        clean_up(table)
        assert table.storage.stat(stale) is None
        assert table.storage.stat(path) is None
        assert fares(table) == before


# --- consumers


def test_a_snapshot_of_before_an_archived_transaction_cannot_be_read_any_more(table: HudiTable) -> None:
    """Every reader sees an archived commit, so a reader whose snapshot excludes it gets an error."""
    for write_id in range(1, 7):
        ingest(table, {write_id: 1.0}, txn_id=write_id, write_id=write_id)

    def seen(valid: ValidWriteIdList) -> int:
        return snapshot(table, valid_write_ids=valid).count_rows()

    assert seen(ValidWriteIdList(None, 3)) == 3
    archive(table, **FEW)
    assert seen(ValidWriteIdList(None, 6)) == 6
    assert seen(ValidWriteIdList(None, 4)) == 4
    assert seen(ValidWriteIdList(None, 6, (6,))) == 5
    for valid in (ValidWriteIdList(None, 3), ValidWriteIdList(None, 6, (2,))):
        with pytest.raises(SnapshotUnavailableError, match="was archived since"):
            seen(valid)
    assert seen(ValidWriteIdList(None, 6, (2,), frozenset({2}))) == 6, "undone, or it were not archived"
    commits(table, 4, first=10)
    archive(table, **FEW)
    with pytest.raises(SnapshotUnavailableError, match="write id 5"):
        seen(ValidWriteIdList(None, 6, (5,)))


def test_a_checkpoint_that_was_archived_has_expired(table: HudiTable) -> None:
    commits(table, 6)
    start = table.timeline().commits()[1].completion_time
    kept = table.timeline().commits()[3].completion_time
    assert increment(table, start).scanner().count_rows() == 4
    archive(table, **FEW)
    with pytest.raises(CheckpointExpiredError, match="was archived"):
        increment(table, start)
    assert increment(table, kept).scanner().count_rows() == 2


# --- after a commit


def test_a_commit_archives_when_it_is_due(table: HudiTable, monkeypatch: pytest.MonkeyPatch) -> None:
    table = keeping_few(table)
    commits(table, 2)
    archive_when_due(table, 11, lock=Refused())  # type: ignore[arg-type]
    commits(table, 1, first=2)
    tried: list[int] = []
    monkeypatch.setattr(archival, "archive", lambda table, lock: tried.append(count))
    for count in range(2, 32):
        archive_when_due(table, count)
    assert tried == [11, 22]


def test_of_many_writers_one_archives(table: HudiTable, monkeypatch: pytest.MonkeyPatch) -> None:
    table = keeping_few(table)
    tried: list[int] = []
    monkeypatch.setattr(archival, "archive", lambda table, lock: tried.append(count))
    for count in range(1, 10):
        commits(table, 1, first=count)
        archive_when_due(table, 2, every=2)
    # Two commits over the limit, the first writer that looks archives; if it is killed, a later one does.
    assert tried == [3, 4, 7, 8, 9]


def test_a_commit_is_done_whatever_becomes_of_the_archival(
    table: HudiTable, caplog: pytest.LogCaptureFixture
) -> None:
    table = keeping_few(table)
    commits(table, 10)
    table.storage.put(f"{HISTORY_FOLDER}/manifest_99", b"no manifest")
    commits(table, 1, first=10)
    assert "could not be archived now" in caplog.text
    assert "manifest_99 is not a manifest" in caplog.text
    assert len(fares(table)) == 11
