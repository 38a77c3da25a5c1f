"""Guards of the protocol: each of these tests fails without its guard."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder

from airflow_provider.concurrency import PRIORITIES, CommitLog, ConflictPolicy, WriteSettings, begin_write
from airflow_provider.concurrency.commit.commit_point import commit
from airflow_provider.concurrency.commit.concurrent_changes import Moment
from airflow_provider.concurrency.commit.publish import publish
from airflow_provider.concurrency.heartbeats.heartbeat import heartbeat_path
from airflow_provider.concurrency.log.log_entry import Rollback
from airflow_provider.exceptions import HigherPriorityWriteError, NoSuchInstantError
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.cleaning.clean_plan import Retention
from airflow_provider.services.cleaning.cleaning import plan_clean
from airflow_provider.table import HudiTable
from airflow_provider.table.metadata_table.reader import metadata_storage
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.active import TIMELINE_FOLDER, Timeline
from tests.unit.concurrency.log.test_one_clock import silent_for

SCHEMA = pa.schema({"id": pa.int64(), "value": pa.int64()})


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    made = HudiTable.create(str(tmp_path / "t"), name="t", schema=SCHEMA, record_key=["id"])
    upsert(made, 1)
    return made


def upsert(table: HudiTable, *ids: int) -> None:
    rows = pa.table({"id": list(ids), "value": list(ids)}, schema=SCHEMA)
    ingest_arrow(table, rows, "upsert", small_file_limit=0)


@pytest.mark.parametrize(
    "policy",
    [
        ConflictPolicy(on_higher_priority="fail"),
        ConflictPolicy(on_higher_priority="wait", yield_timeout=0.0),
    ],
    ids=["fail", "its patience is over"],
)
def test_a_write_gives_way_at_its_commit_to_one_of_higher_priority_that_began_later(
    table: HudiTable, policy: ConflictPolicy
) -> None:
    (shared,) = table.view().all_base_files()
    with begin_write(
        table, operation="UPSERT", settings=WriteSettings(priority=PRIORITIES["backfill"], policy=policy)
    ) as backfill:
        backfill.plan([shared.file_group])
        with begin_write(
            table, operation="UPSERT", settings=WriteSettings(priority=PRIORITIES["ingestion"])
        ) as ingestion:
            ingestion.plan([shared.file_group])
            with pytest.raises(HigherPriorityWriteError, match=ingestion.instant):
                backfill.commit([], replaced={"": [shared.file_id]})
            assert ingestion.commit([], replaced={"": [shared.file_id]}).rebases == 0


def test_a_decision_that_fails_behind_a_trimmed_log_is_made_on_what_is_true_then(table: HudiTable) -> None:
    commit_log, moments = CommitLog(table.storage), []

    def decide(moment: Moment) -> None:
        moments.append(moment.sequence)
        if len(moments) == 1:  # it is paused, while others commit and archive
            upsert(table, 2)
            upsert(table, 3)
            commit_log.trim(commit_log.head() - 1)
            raise NoSuchInstantError("archived since")
        assert len(moments) == 2, "it is asked for ever"

    commit(table.storage, decide)
    assert moments == [1, 3]


class Watched(Storage):
    """A storage that looks at the table after each move of a file.

    :ivar seen: after each move: the commits, whether the newest is indexed, and the rows by hudi-rs.
    """

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.seen: list[tuple[int, bool, list[int]]] = []

    def move_if_absent(self, source: str, target: str) -> bool:
        moved = super().move_if_absent(source, target)
        commits = {commit.requested_time for commit in Timeline.load(self).commits()}
        indexed = {commit.requested_time for commit in Timeline.load(metadata_storage(self)).commits()}
        self.seen.append((len(commits), max(commits) in indexed, _read_by_hudi_rs(self.root)))
        return moved


def _read_by_hudi_rs(location: str) -> list[int]:
    batches = HudiTableBuilder.from_base_uri(location).build().read()
    return sorted(pa.Table.from_batches(batches)["id"].to_pylist())


def test_a_commit_is_in_the_indexes_before_it_is_on_the_timeline(table: HudiTable) -> None:
    run_index(table, schedule_index(table, ["files"]))
    upsert(table, 2)
    storage = Watched(table.location)
    upsert(HudiTable.at(storage), 3)
    assert [rows for commits, _, rows in storage.seen if commits == 3] == [[1, 2, 3]]
    assert all(rows == [1, 2] for commits, _, rows in storage.seen if commits == 2)
    assert all(is_indexed for _, is_indexed, _ in storage.seen)


def test_a_rollback_that_others_have_published_is_not_published_once_more(table: HudiTable) -> None:
    begin_write(table, operation="UPSERT").abort()
    newest = CommitLog(table.storage).newest()
    assert isinstance(newest, Rollback)
    upsert(table, 2)

    class Refuses(Storage):
        def put_if_absent(self, path: str, data: bytes) -> bool:
            assert not path.startswith(TIMELINE_FOLDER), f"{path} comes too late"
            return super().put_if_absent(path, data)

    publish(Refuses(table.location), newest, looks=False)


def test_a_clean_keeps_what_a_silent_writer_needs_that_nobody_has_rolled_back(table: HudiTable) -> None:
    writer = begin_write(table, operation="UPSERT")
    writer.heartbeat.stop()
    upsert(table, 1)  # a newer slice of the file group on which the write is based
    silent_for(table, heartbeat_path(writer.instant), 3600.0)
    plan = plan_clean(table, Retention("KEEP_LATEST_FILE_VERSIONS", 1))
    assert plan.files == ()
    assert [writer.instant in kept.by for kept in plan.kept] == [True]
