"""Every table of the JVM's Hudi opens: versions 6, 8 and 9, copy-on-write and merge-on-read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.concurrency import (
    begin_planned,
    begin_write,
    pending_instants,
    rollback,
    rollback_dead_writers,
    schedule,
)
from airflow_provider.concurrency.undo.reverts import revert
from airflow_provider.exceptions import CheckpointExpiredError, CorruptTableError, UnsupportedTableError
from airflow_provider.indexing.drop import drop_index
from airflow_provider.indexing.run import end_indexing, run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.archival import archive, plan_archival
from airflow_provider.services.cleaning.cleaning import clean, plan_clean, run_clean, schedule_clean
from airflow_provider.services.cleaning.metadata_cleaning import archive_metadata_timeline, delete_superseded
from airflow_provider.services.clustering.clustering import (
    preview_clustering,
    run_clustering,
    schedule_clustering,
)
from airflow_provider.services.clustering.clustering_job import ClusteringJob
from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
from airflow_provider.services.compaction import (
    compact,
    due_compactions,
    run_compaction,
    schedule_compaction,
)
from airflow_provider.services.orphans.orphans import delete_reverted_files
from airflow_provider.services.restore import plan_restore, restore
from airflow_provider.services.savepoint import create_savepoint, delete_savepoint
from airflow_provider.services.table_options import change_options
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.reading.incremental import Order, increment
from airflow_provider.table.reading.slices import file_slices
from airflow_provider.table.timeline.archived_timeline import archived, archived_write_ids, find_archived
from airflow_provider.table.timeline.instant import Action, State
from airflow_provider.table.timeline.legacy_archive import LEGACY_FOLDER
from airflow_provider.table.timeline.metadata import decode
from tests.unit.table.conftest import JvmTables, told_of_jvm_tables
from tests.unit.test_cli import call

COPY_ON_WRITE = [
    "rs_cow_v6_overwritetable",
    "rs_cow_v8_simple",
    "rs_cow_v9_txns_simple_nometa",
    "rs_cow_v9_txns_simple_meta",
]
MERGE_ON_READ = [
    "rs_mor_v6_nonpart_rollback",
    "jvm_mor_v6_archived",
    "rs_mor_v9_txns_simple_nometa",
    "jvm_mor_v9_mdt_legacy_hfile",
]
ALL = COPY_ON_WRITE + MERGE_ON_READ


def known_of(name: str) -> Any:
    (known,) = [each for each in told_of_jvm_tables("inventory.json") if each["zip"] == f"{name}.zip"]
    return known


def opened(jvm_tables: JvmTables, name: str) -> HudiTable:
    return HudiTable.open(str(jvm_tables.table(name)))


@pytest.mark.parametrize("name", ALL)
def test_the_timeline_is_what_the_inventory_says(name: str, jvm_tables: JvmTables) -> None:
    table, known = opened(jvm_tables, name), known_of(name)
    assert (table.config.version, table.config.layout) == (known["version"], int(known["layout"]))
    instants = table.timeline().instants
    assert [(i.requested_time, str(i.action)) for i in instants] == [
        (each["requested"], each["action"]) for each in known["instants"]
    ]
    for instant, each in zip(instants, known["instants"], strict=True):
        assert instant.state is State.COMPLETED
        assert instant.completion_time == (each["completed"] or each["requested"])
        assert instant.file_name in each["files"]
    assert pending_instants(table) == []


@pytest.mark.parametrize("name", ALL)
def test_a_snapshot_holds_the_expected_rows(name: str, jvm_tables: JvmTables) -> None:
    expected = told_of_jvm_tables("expected_snapshots.json")[f"{name}.zip"]["rows"]
    rows = snapshot(opened(jvm_tables, name), meta_columns=True).to_table().to_pylist()
    assert sorted(map(_told, rows)) == sorted(map(_told, expected))


def _told(row: dict[str, Any]) -> str:
    """A row as the expectations have it: values without a JSON type become text."""
    return json.dumps({key: v if isinstance(v, (int, float)) else str(v) for key, v in row.items()})


@pytest.mark.parametrize("name", COPY_ON_WRITE)
def test_the_past_and_the_changes_since_are_as_the_inventory_counts(name: str, jvm_tables: JvmTables) -> None:
    table, known = opened(jvm_tables, name), known_of(name)
    commits = [each for each in known["instants"] if "as_of_rows" in each]
    assert commits
    for each in commits:
        assert snapshot(table, as_of=each["requested"]).count_rows() == each["as_of_rows"]
        for order in Order:
            at = each["requested"] if order is not Order.COMPLETION else each["completed"]
            found = increment(table, at or each["requested"], order=order)
            assert found.scanner().count_rows() == each["incremental_after_rows"], order


def test_a_table_without_completion_times_is_read_up_to_the_first_write_in_flight(
    jvm_tables: JvmTables, tmp_path: Path
) -> None:
    copy = shutil.copytree(jvm_tables.table("rs_cow_v6_overwritetable"), tmp_path / "t")
    (copy / ".hoodie" / "20240707001303088.replacecommit").unlink()
    table = HudiTable.open(str(copy))
    found = increment(table, "20240707001301554", order="completion")
    assert (found.order, found.end) == (Order.FENCED, "20240707001302376")
    (pending,) = pending_instants(table)
    assert (pending.instant, pending.action) == ("20240707001303088", Action.REPLACE_COMMIT)
    assert snapshot(table).count_rows() == 4


@pytest.mark.parametrize("name", ALL)
def test_replaced_file_groups_are_not_shown(name: str, jvm_tables: JvmTables) -> None:
    table = opened(jvm_tables, name)
    timeline, view = table.timeline(), table.view()
    replaced = {
        (partition, file_id)
        for commit in timeline.commits()
        for partition, ids in timeline.commit_metadata(commit).replaced.items()
        for file_id in ids
    }
    assert set(view.replaced) == replaced
    assert bool(replaced) == ("replacecommit" in known_of(name)["actions"])
    assert not replaced & {(each.partition_path, each.file_id) for each in file_slices(table)}


@pytest.mark.parametrize("name", ALL)
def test_clustering_plans(name: str, jvm_tables: JvmTables) -> None:
    timeline = opened(jvm_tables, name).timeline()
    for instant in timeline.commits():
        metadata, plan = timeline.commit_metadata(instant), timeline.plan(instant)
        if metadata.operation_type != "CLUSTER":
            continue
        assert plan is not None
        inputs = {
            (each["partitionPath"], each["fileId"])
            for group in plan["clusteringPlan"]["inputGroups"]
            for each in group["slices"]
        }
        assert inputs == {(path, file_id) for path, ids in metadata.replaced.items() for file_id in ids}


def test_log_files_are_listed_by_file_slice(jvm_tables: JvmTables) -> None:
    """Each log file belongs to the slice on which its deltacommit was written."""
    (slice_,) = file_slices(opened(jvm_tables, "rs_mor_v6_nonpart_rollback"))
    assert slice_.base_instant == "20250126040823628"
    assert [path.partition("8.")[2] for path in slice_.log_paths] == [
        "log.1_0-33-43",
        "log.2_1-0-1",
        "log.3_0-13-9",
    ]

    found = {s.file_id[:4]: s for s in file_slices(opened(jvm_tables, "jvm_mor_v9_mdt_legacy_hfile"))}
    assert [path.partition("_")[2] for path in found["6b26"].log_paths] == [
        "20250922140634799.log.1_0-218-446"
    ]
    assert found["460f"].log_paths == ()

    table = opened(jvm_tables, "rs_mor_v9_txns_simple_nometa")
    assert not any(each.log_paths for each in file_slices(table)), "all compacted, clustered or overwritten"
    (eu,) = [s for s in file_slices(table, as_of="20260307135835748") if s.partition_path == "region=eu"]
    assert eu.base_instant == "20260307135827749"
    assert [path.partition("_")[2][:17] for path in eu.log_paths] == [
        "20260307135833781",
        "20260307135834808",
    ]


@pytest.mark.parametrize("name", ["jvm_mor_v6_archived", "jvm_mor_v9_mdt_legacy_hfile"])
def test_the_archived_timeline_is_read_with_metadata_and_plans(name: str, jvm_tables: JvmTables) -> None:
    table = opened(jvm_tables, name)
    found = list(archived(table.storage, table.config.layout))
    assert [each.commit_metadata.operation_type for each in found] == [
        "INSERT", "INSERT", "UPSERT", "COMPACT", "CLUSTER",
    ]  # fmt: skip
    assert all(each.commit_metadata.write_stats for each in found)
    compaction, clustering = found[3], found[4]
    assert compaction.plan is not None
    assert clustering.plan is not None
    assert decode(compaction.plan)["operations"]
    inputs = decode(clustering.plan)["clusteringPlan"]["inputGroups"]
    file_ids = {each["fileId"] for group in inputs for each in group["slices"]}
    assert file_ids == {each for ids in clustering.commit_metadata.replaced.values() for each in ids}
    requested = clustering.instant.requested_time
    again = find_archived(table.storage, requested, table.config.layout)
    assert again is not None
    assert (again.instant, again.commit_metadata) == (clustering.instant, clustering.commit_metadata)
    assert find_archived(table.storage, "20200101000000000", table.config.layout) is None
    assert all(table.timeline().find(each.instant.requested_time) is None for each in found)
    assert list(archived_write_ids(table.storage)) == [], "the JVM knows no transactions"


def test_a_legacy_archive_that_was_cut_off(jvm_tables: JvmTables, tmp_path: Path) -> None:
    copy = shutil.copytree(jvm_tables.table("jvm_mor_v6_archived"), tmp_path / "t")
    path = copy / LEGACY_FOLDER / ".commits_.archive.2_1-0-1"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    storage = HudiTable.open(str(copy)).storage
    assert len(list(archived(storage, 1))) == 4, "without the last block"
    path.write_bytes(b"x" + whole[1:])
    with pytest.raises(CorruptTableError, match=r"archive\.2_1-0-1 is no log file"):
        list(archived(storage, 1))


def test_a_checkpoint_before_a_legacy_archive_has_expired(jvm_tables: JvmTables, tmp_path: Path) -> None:
    copy = shutil.copytree(jvm_tables.table("rs_cow_v6_overwritetable"), tmp_path / "t")
    shutil.copytree(
        jvm_tables.table("jvm_mor_v6_archived") / LEGACY_FOLDER, copy / LEGACY_FOLDER, dirs_exist_ok=True
    )
    table = HudiTable.open(str(copy))
    with pytest.raises(CheckpointExpiredError, match=r"20250922132151286.*was archived"):
        increment(table, "20250922132149538")
    assert increment(table, "20250922132151286").commits == ()


@pytest.mark.parametrize("name", [n for n in MERGE_ON_READ if n != "rs_mor_v9_txns_simple_nometa"])
def test_log_files_are_shown(name: str, jvm_tables: JvmTables) -> None:
    table = opened(jvm_tables, name)
    shown = call("files", table.location)
    expected = file_slices(table)
    assert [each["log_files"] for each in shown] == [list(each.log_paths) for each in expected]
    assert any(each.log_paths for each in expected)
    sizes = [each.base_path and (Path(table.location) / each.base_path).stat().st_size for each in expected]
    assert [each["bytes"] for each in shown] == sizes


SOME = "20240101000000000"  # no such instant: the error that the table cannot be written comes first
WRITES: dict[str, Callable[[HudiTable], object]] = {
    "begin_write": lambda table: begin_write(table, operation="UPSERT"),
    "begin_planned": lambda table: begin_planned(table, SOME),
    "rollback": lambda table: rollback(table, SOME),
    "rollback_dead_writers": rollback_dead_writers,
    "revert": lambda table: revert(table, SOME, reason="asked for"),
    "schedule": lambda table: schedule(
        table, lambda *_: None, action=Action.CLEAN, operation="clean", priority=0
    ),
    "ingest_arrow": lambda table: ingest_arrow(table, pa.table({"id": [1]})),
    "plan_archival": plan_archival,
    "archive": archive,
    "plan_clean": plan_clean,
    "schedule_clean": schedule_clean,
    "run_clean": lambda table: run_clean(table, SOME),
    "clean": clean,
    "delete_reverted_files": delete_reverted_files,
    "preview_clustering": lambda table: preview_clustering(table, ClusteringSettings()),
    "schedule_clustering": lambda table: schedule_clustering(table, ClusteringSettings()),
    "run_clustering": lambda table: run_clustering(ClusteringJob(table.location), table, lambda *_: []),
    "due_compactions": due_compactions,
    "schedule_compaction": schedule_compaction,
    "run_compaction": lambda table: run_compaction(table, SOME),
    "compact": compact,
    "delete_superseded": delete_superseded,
    "archive_metadata_timeline": archive_metadata_timeline,
    "create_savepoint": create_savepoint,
    "delete_savepoint": lambda table: delete_savepoint(table, SOME),
    "plan_restore": lambda table: plan_restore(table, SOME),
    "restore": lambda table: restore(table, SOME),
    "schedule_index": lambda table: schedule_index(table, ["files"]),
    "run_index": run_index,
    "end_indexing": lambda table: end_indexing(table, SOME, "a run"),
    "change_options": lambda table: change_options(table, {}),
    "drop_index": lambda table: drop_index(table, ["files"]),
}


# ``test_writing_jvm_tables`` writes to the others of version 9.
REFUSED = [
    "rs_cow_v6_overwritetable",
    "rs_cow_v8_simple",
    "rs_cow_v9_txns_simple_meta",
    "rs_mor_v6_nonpart_rollback",
    "jvm_mor_v6_archived",
]
# Another Hudi's index does not prevent its drop, nor the deletion of files without a commit.
ALLOWED = {
    ("rs_cow_v9_txns_simple_meta", write) for write in ("rollback", "rollback_dead_writers", "drop_index")
}


@pytest.mark.parametrize(
    ("name", "write"),
    [(name, write) for name in REFUSED for write in WRITES if (name, write) not in ALLOWED],
)
def test_writing_to_what_we_do_not_write_is_refused(name: str, write: str, jvm_tables: JvmTables) -> None:
    table = opened(jvm_tables, name)
    before = sorted(jvm_tables.table(name).rglob("*"))
    with pytest.raises(UnsupportedTableError, match=r"can be written|is not kept here"):
        WRITES[write](table)
    assert sorted(jvm_tables.table(name).rglob("*")) == before
