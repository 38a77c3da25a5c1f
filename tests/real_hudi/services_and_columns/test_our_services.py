"""The JVM's Hudi reads tables after our table services, and continues to write to them."""

from __future__ import annotations

from pathlib import Path

from airflow_provider.services.archival import archive
from airflow_provider.services.cleaning.clean_plan import Retention
from airflow_provider.services.cleaning.cleaning import clean
from airflow_provider.services.clustering.clustering import cluster_in_process, schedule_clustering
from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
from airflow_provider.services.compaction import compact
from airflow_provider.services.compaction_plan import CompactionSettings
from airflow_provider.services.restore import restore
from airflow_provider.services.savepoint import create_savepoint
from airflow_provider.table import increment
from tests.real_hudi.in_turn.readers import difference
from tests.real_hudi.in_turn.shared_table import (
    ALL_INDEXES,
    ALL_INDEXES_OF_THE_JVM,
    SCHEMA,
    SharedTable,
    rows,
)
from tests.real_hudi.jvm import Session
from tests.real_hudi.services_and_columns.metadata_table import check_metadata_table


def cluster(shared: SharedTable) -> str:
    """Cluster all file groups of a partition into one, sorted."""
    instant = schedule_clustering(shared.table, ClusteringSettings(sort_by=("v",)))
    assert instant is not None
    cluster_in_process(shared.table)
    return instant


def test_every_service_and_then_a_write_of_the_jvm(hudi: Session, location: Path) -> None:
    shared = SharedTable.of_ours(hudi, location, rows(range(300), 0), ALL_INDEXES)
    shared.always(ALL_INDEXES_OF_THE_JVM)
    shared.check()
    shared.ours(rows(range(0, 300, 7), 1000, 2))
    shared.ours(rows(range(1, 200, 18), 5000), "insert_overwrite")
    shared.check()
    clustered = cluster(shared)
    shared.check()
    kept = create_savepoint(shared.table, comments="before the clean").instant
    for turn in range(2, 4):
        shared.ours(rows(range(0, 400, 6 + turn), 7000, turn))
    [cleaned] = clean(shared.table, Retention("KEEP_LATEST_COMMITS", 1))
    shared.check()
    shown = {name: said(shared, name) for name in ("clustering", "savepoints", "cleans")}
    for turn in range(4, 10):
        shared.ours(rows(range(turn, 400, 31), 9000, turn))
    archived = archive(shared.table, keep_min=3, keep_max=4)
    assert compact(shared.table, CompactionSettings(max_delta_commits=1))
    shared.check()
    shared.theirs(rows(range(0, 400, 37), 20000, 99))
    shared.check()
    check_metadata_table(hudi, shared.table)

    assert clustered in shown["clustering"]
    assert kept in shown["savepoints"]
    assert cleaned.instant in shown["cleans"]
    assert archived
    wrong = shared.sql("call validate_metadata_table_files(table => '{t}')")
    assert not wrong


def said(shared: SharedTable, name: str) -> str:
    """The output of a procedure of the JVM."""
    return str(shared.sql(f"call show_{name}(table => '{{t}}')"))


def test_the_past_of_our_commits(hudi: Session, location: Path) -> None:
    shared = SharedTable.of_ours(hudi, location, rows(range(60), 0), ["files", "column_stats"])
    past = [dict(shared.model)]
    shared.ours(rows(range(30, 90), 1000, 2))
    past.append(dict(shared.model))
    cluster(shared)
    past.append(dict(shared.model))
    shared.ours(rows(range(2, 90, 9), 5000), "insert_overwrite")
    past.append(dict(shared.model))
    shared.ours_deletes(sorted(shared.model)[::7])
    past.append(dict(shared.model))
    commits = shared.table.timeline().commits()
    now = shared.model
    for commit, model in zip(commits, past, strict=True):
        for moment in (commit.requested_time, commit.completion_time):
            shared.model = model
            shared.check(as_of=moment, where=[])
    shared.model = now
    times = [commit.completion_time or "" for commit in commits]
    windows = [
        (None, times[0]),
        (times[0], times[1]),
        (times[0], None),
        (times[1], times[2]),
        (times[2], None),
    ]
    for start, end in windows:
        ours = increment(shared.table, start=start or "19700101000000000", end=end).scanner().to_table()
        theirs = hudi.read(shared.location, incremental(start or "00000000000000", end))
        told = difference(ours.to_pylist(), theirs, SCHEMA.names)
        assert not told, f"({start}, {end}] of ours beside the JVM's: {told}"


def incremental(start: str, end: str | None) -> dict[str, str]:
    """Options of an incremental read by the JVM."""
    options = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": start,
    }
    return options | ({"hoodie.datasource.read.end.instanttime": end} if end else {})


def test_a_restore_of_ours_over_commits_and_cleans_of_the_jvm(hudi: Session, location: Path) -> None:
    shared = SharedTable.of_the_jvm(
        hudi, location, rows(range(20), 0), {"hoodie.clean.commits.retained": "1"}
    )
    shared.ours(rows(range(5, 15), 100, 2))
    kept = create_savepoint(shared.table).instant
    then = dict(shared.model)
    for turn in range(3, 5):
        shared.theirs(rows(range(8, 12), 1000, turn))
    shared.check()
    assert kept in said(shared, "savepoints")
    restore(shared.table, kept)
    shared.model = then
    shared.check()
    shared.theirs(rows(range(9, 12), 2000, 9))
    shared.ours(rows(range(10, 13), 3000, 10))
    shared.check()


def test_a_data_frame_that_the_jvm_opened_as_far_back_as_our_clean_keeps(
    hudi: Session, location: Path
) -> None:
    shared = SharedTable.of_the_jvm(hudi, location, rows(range(20), 0))
    shared.ours(rows(range(20), 100, 2))
    opened = "spark.opened = spark.read.format('hudi').load(location); spark.opened.rdd"
    hudi.run(opened, location=shared.location)
    before = list(shared.model.values())
    for turn in range(3, 6):
        shared.ours(rows(range(20), 100 * turn, turn))
    [cleaned] = clean(shared.table, Retention("KEEP_LATEST_COMMITS", 3))
    assert cleaned.deleted
    shown = hudi.run("result = [row.asDict() for row in spark.opened.collect()]")
    assert not difference(shown, before, SCHEMA.names)
    shared.check()
