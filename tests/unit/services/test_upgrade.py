"""Copy-on-write tables of versions 6 and 8 become version 9, and 8 again; every reader sees the same rows."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi import HudiQueryType, HudiReadOptions, HudiTableBuilder

from airflow_provider.concurrency import begin_write
from airflow_provider.exceptions import TableError, UnsupportedTableError
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.indexing.status import index_status
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.archival import archive
from airflow_provider.services.upgrade import VersionChange, downgrade, upgrade
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.properties import dump_properties, parse_properties
from airflow_provider.table.reading.incremental import increment
from airflow_provider.table.timeline.archived_timeline import archived
from airflow_provider.table.timeline.instant import State
from airflow_provider.table.timeline.legacy_archive import LEGACY_FOLDER
from tests.unit.concurrency.simulation.scheduler import Killed, NoLock
from tests.unit.services.archival.test_archival_killed import DyingStorage
from tests.unit.table.conftest import JvmTables

PARTIAL = "hoodie.table.partial.update.mode"
NO_NULLS = {PARTIAL: "IGNORE_DEFAULTS"}
MERGE_PROPERTY = "hoodie.record.merge.property."
DELETE_FIELD = f"{MERGE_PROPERTY}hoodie.payload.delete.field"
DELETE_MARKER = f"{MERGE_PROPERTY}hoodie.payload.delete.marker"
UNAVAILABLE = f"{MERGE_PROPERTY}hoodie.write.partial.update.unavailable.value"
BEGINNING = "20000101000000000"
OLD = ["rs_cow_v6_overwritetable", "rs_cow_v8_simple"]
NEW = "rs_cow_v9_txns_simple_nometa"
WITH_INDEXES = "rs_cow_v9_txns_simple_meta"


@pytest.fixture
def copy_of(jvm_tables: JvmTables, tmp_path: Path) -> Callable[[str], str]:
    return lambda name: str(shutil.copytree(jvm_tables.table(name), tmp_path / "t"))


def hudi_rs(location: str, options: HudiReadOptions | None = None) -> list[str]:
    batches = HudiTableBuilder.from_base_uri(location).build().read(options)
    return sorted(map(repr, pa.Table.from_batches(batches).to_pylist())) if batches else []


def everything(location: str) -> dict[str, Any]:
    """The rows that hudi-rs and this package read: now, as of every commit, and the changes since each."""
    table = HudiTable.open(location)
    read: dict[str, Any] = {"now": hudi_rs(location), "schema": table.schema}
    read["ours"] = sorted(map(repr, snapshot(table, meta_columns=True).to_table().to_pylist()))
    for commit in table.timeline().commits():
        moment = commit.requested_time
        as_of = HudiReadOptions().with_as_of_timestamp(moment)
        window = HudiReadOptions().with_query_type(HudiQueryType.Incremental).with_start_timestamp(moment)
        read[moment] = [
            hudi_rs(location, as_of),
            hudi_rs(location, window),
            snapshot(table, as_of=moment).count_rows(),
            increment(table, moment).scanner().count_rows(),
        ]
    read["beginning"] = increment(table, BEGINNING).scanner().count_rows()
    return read


@pytest.mark.parametrize("name", OLD)
def test_an_upgrade_and_the_way_back_change_no_row(name: str, copy_of: Callable[[str], str]) -> None:
    location = copy_of(name)
    version = HudiTable.open(location).config.version
    before = everything(location)
    found = upgrade(location)
    assert (found.before, found.after) == (version, 9)
    assert everything(location) == before
    assert upgrade(location) == VersionChange(location, 9, 9)

    table = HudiTable.open(location)
    assert (table.config.version, table.config.layout) == (9, 2)
    assert all(instant.state is State.COMPLETED for instant in table.timeline().instants)
    leftovers = [each.name for each in (Path(location) / ".hoodie").iterdir() if each.name[:1].isdigit()]
    assert leftovers == []

    assert downgrade(location) == VersionChange(location, 9, 8)
    assert HudiTable.open(location).config.version == 8
    assert everything(location) == before
    assert downgrade(location) == VersionChange(location, 8, 8)
    upgrade(location)
    assert everything(location) == before


def test_a_downgrade_changes_no_row(copy_of: Callable[[str], str]) -> None:
    location = copy_of(NEW)
    before = everything(location)
    downgrade(location)
    assert everything(location) == before
    properties = parse_properties((Path(location) / ".hoodie/hoodie.properties").read_text())
    assert properties["hoodie.table.precombine.field"] == "txn_ts"
    assert "hoodie.table.ordering.fields" not in properties
    assert properties["hoodie.compaction.payload.class"].endswith(".DefaultHoodieRecordPayload")
    with pytest.raises(UnsupportedTableError, match="only version 9, layout 2 can be written"):
        begin_write(HudiTable.open(location), operation="UPSERT")
    upgrade(location)
    again = parse_properties((Path(location) / ".hoodie/hoodie.properties").read_text())
    assert again["hoodie.table.ordering.fields"] == "txn_ts"
    assert "hoodie.table.precombine.field" not in again
    assert again["hoodie.record.merge.mode"] == "EVENT_TIME_ORDERING"


@pytest.mark.parametrize("name", OLD)
def test_what_was_upgraded_is_written_and_archived(name: str, copy_of: Callable[[str], str]) -> None:
    location = copy_of(name)
    upgrade(location)
    table = HudiTable.open(location)
    rows = snapshot(table).to_table()
    result = ingest_arrow(table, rows)
    assert (result["rows_inserted"], result["rows_updated"]) == (0, rows.num_rows)
    archive(table, keep_min=1, keep_max=2)
    assert snapshot(table).to_table().sort_by("id") == rows.sort_by("id")
    assert len(hudi_rs(location)) == rows.num_rows


def test_the_legacy_archive_becomes_a_history(copy_of: Callable[[str], str], jvm_tables: JvmTables) -> None:
    location = copy_of("rs_cow_v6_overwritetable")
    legacy = jvm_tables.table("jvm_mor_v6_archived") / LEGACY_FOLDER
    shutil.copytree(legacy, f"{location}/{LEGACY_FOLDER}", dirs_exist_ok=True)
    storage = HudiTable.open(location).storage
    before = [(each.instant, each.commit_metadata) for each in archived(storage, 1)]
    assert len(before) == 5
    upgrade(location)
    assert [(each.instant, each.commit_metadata) for each in archived(storage)] == before
    assert list(archived(storage, 1)) == []


@pytest.mark.parametrize("name", OLD)
def test_killed_at_every_operation(name: str, copy_of: Callable[[str], str], jvm_tables: JvmTables) -> None:
    location = copy_of(name)
    before, dies_at, done = hudi_rs(location), 0, False
    while not done:
        shutil.rmtree(location)
        shutil.copytree(jvm_tables.table(name), location)
        _begin_index(location)
        try:
            _upgrade_and_die(location, dies_at)
            done = True
        except Killed:
            dies_at += 1
        assert hudi_rs(location) == before, dies_at
        upgrade(location)
        assert HudiTable.open(location).config.version == 9
        assert hudi_rs(location) == before, dies_at
        check_no_metadata_table(location)
        assert not [each for each in (Path(location) / ".hoodie").iterdir() if each.name[:1].isdigit()]
    assert dies_at > 5


def _begin_index(location: str) -> None:
    """Begin a metadata table's first index, which hudi-rs does not use while it is pending."""
    for name in (
        "hoodie.properties",
        "files/.hoodie_partition_metadata",
        ".hoodie/timeline/history/_version_",
    ):
        path = Path(location) / ".hoodie/metadata" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    path = Path(location) / ".hoodie/hoodie.properties"
    path.write_text(f"{path.read_text()}\nhoodie.table.metadata.partitions.inflight=files\n")


def _upgrade_and_die(location: str, dies_at: int) -> None:
    """Upgrade on a storage that dies before one of its operations."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("airflow_provider.table.hudi_table.Storage", lambda root, _: DyingStorage(root, 1000))
        table = HudiTable.open(location)
        patch.setattr(HudiTable, "open", lambda location, storage_options: table)
        table.storage.left = dies_at  # type: ignore[attr-defined]
        upgrade(location, lock=NoLock())


def test_writers_in_flight_are_not_upgraded_away(copy_of: Callable[[str], str]) -> None:
    location = copy_of("rs_cow_v6_overwritetable")
    (Path(location) / ".hoodie/20250101000000000.commit.requested").touch()
    with pytest.raises(TableError, match=r"1 instants in flight, the first is commit 20250101000000000"):
        upgrade(location)
    assert HudiTable.open(location).config.version == 6


def test_writers_in_flight_are_not_downgraded_away(copy_of: Callable[[str], str]) -> None:
    location = copy_of(NEW)
    writer = begin_write(HudiTable.open(location), operation="UPSERT")
    with pytest.raises(TableError, match=f"the first is commit {writer.instant} by "):
        downgrade(location)
    writer.abort()
    assert downgrade(location).after == 8


@pytest.mark.parametrize("change", [upgrade, downgrade])
def test_merge_on_read_tables_keep_their_version(
    change: Callable[[str], VersionChange], copy_of: Callable[[str], str]
) -> None:
    with pytest.raises(UnsupportedTableError, match="MERGE_ON_READ"):
        change(copy_of("rs_mor_v6_nonpart_rollback"))


# --- with a metadata table ----------------------------------------------------------------


def check_no_metadata_table(location: str) -> None:
    config = HudiTable.open(location).config
    assert (config.metadata_partitions, config.inflight_metadata_partitions) == ((), ())
    left = Path(location, ".hoodie", "metadata").rglob("*")
    assert [each for each in left if each.is_file()] == []
    assert not Path(location, ".hoodie/.index_defs/index.json").exists()


@pytest.mark.parametrize("name", OLD)
def test_an_upgrade_drops_the_metadata_table(
    name: str, copy_of: Callable[[str], str], jvm_tables: JvmTables
) -> None:
    location = copy_of(name)
    before = everything(location)
    metadata_table = jvm_tables.table(WITH_INDEXES) / ".hoodie/metadata"  # not looked at
    shutil.copytree(metadata_table, f"{location}/.hoodie/metadata")
    path = Path(location) / ".hoodie/hoodie.properties"
    names = "hoodie.table.metadata.partitions=files\nhoodie.table.metadata.partitions.inflight=column_stats"
    path.write_text(f"{path.read_text()}\n{names}\n")
    assert upgrade(location).dropped_indexes == ("files", "column_stats")
    check_no_metadata_table(location)
    assert everything(location) == before
    table = HudiTable.open(location)
    schedule_index(table, ["files", "column_stats"])
    run_index(table)
    assert HudiTable.open(location).config.metadata_partitions == ("column_stats", "files")
    assert everything(location) == before


def test_a_downgrade_drops_the_jvms_metadata_table(copy_of: Callable[[str], str]) -> None:
    location = copy_of(WITH_INDEXES)
    before, indexes = everything(location), HudiTable.open(location).config.metadata_partitions
    dropped = downgrade(location).dropped_indexes
    assert dropped == tuple(sorted(indexes))
    check_no_metadata_table(location)
    assert everything(location) == before
    assert upgrade(location).dropped_indexes == ()
    assert everything(location) == before


def test_indexes_that_a_downgrade_has_dropped_are_not_there_after_an_upgrade(
    copy_of: Callable[[str], str],
) -> None:
    location = copy_of("rs_cow_v8_simple")
    upgrade(location)
    table = HudiTable.open(location)
    schedule_index(table, ["files", "record_index"])
    run_index(table)
    before = everything(location)
    assert downgrade(location).dropped_indexes == ("files", "record_index")
    check_no_metadata_table(location)
    assert everything(location) == before
    assert upgrade(location).dropped_indexes == ()
    table = HudiTable.open(location)
    ingest_arrow(table, snapshot(table).to_table())
    check_no_metadata_table(location)
    assert [each.state for each in index_status(table)] == []


@pytest.mark.parametrize(
    ("payload", "ordering", "mode", "merges"),
    [
        (
            "OverwriteNonDefaultsWithLatestAvroPayload",
            "",
            "COMMIT_TIME_ORDERING",
            {PARTIAL: "IGNORE_DEFAULTS"},
        ),
        ("PartialUpdateAvroPayload", "", "EVENT_TIME_ORDERING", {PARTIAL: "IGNORE_DEFAULTS"}),
        ("AWSDmsAvroPayload", "", "COMMIT_TIME_ORDERING", {DELETE_FIELD: "Op", DELETE_MARKER: "D"}),
        (
            "debezium.PostgresDebeziumAvroPayload",
            "_event_lsn",
            "EVENT_TIME_ORDERING",
            {
                PARTIAL: "FILL_UNAVAILABLE",
                UNAVAILABLE: "__debezium_unavailable_value",
                DELETE_FIELD: "_change_operation_type",
                DELETE_MARKER: "d",
            },
        ),
        (
            "debezium.MySqlDebeziumAvroPayload",
            "_event_bin_file,_event_pos",
            "EVENT_TIME_ORDERING",
            {DELETE_FIELD: "_change_operation_type", DELETE_MARKER: "d"},
        ),
    ],
)
def test_what_a_payload_class_did_is_said_by_properties(
    payload: str, ordering: str, mode: str, merges: dict[str, str], tmp_path: Path
) -> None:
    """The properties are those of Hudi's EightToNineUpgradeHandler; in version 8 the class itself merges."""
    location, payload = str(tmp_path / "t"), f"org.apache.hudi.common.model.{payload}"
    schema = pa.schema({"id": pa.string(), "ts": pa.int64()})
    HudiTable.create(location, name="t", schema=schema, record_key=["id"], ordering_field="ts")
    downgrade(location)
    path = Path(location) / ".hoodie/hoodie.properties"
    of_8 = parse_properties(path.read_text()) | {
        "hoodie.compaction.payload.class": payload,
        "hoodie.record.merge.mode": "CUSTOM",
        "hoodie.record.merge.strategy.id": "00000000-0000-0000-0000-000000000000",
    }
    path.write_text(dump_properties(of_8))
    upgrade(location)
    of_9 = parse_properties(path.read_text())
    assert of_9.items() >= merges.items()
    assert of_9["hoodie.record.merge.mode"] == mode
    assert of_9["hoodie.table.legacy.payload.class"] == payload
    assert of_9["hoodie.table.ordering.fields"] == (ordering or "ts")
    assert "hoodie.compaction.payload.class" not in of_9
    downgrade(location)
    again = parse_properties(path.read_text())
    assert again.pop("hoodie.table.precombine.field") == (ordering or "ts")
    assert of_8.pop("hoodie.table.precombine.field") == "ts"
    assert again == of_8


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("hoodie.compaction.payload.class=com.example.MyPayload", "com.example.MyPayload"),
        ("hoodie.table.keygenerator.type=COMPLEX", "HUDI-7001"),
        ("hoodie.table.keygenerator.type=CUSTOM", "keygenerator.type=CUSTOM"),
        ("hoodie.populate.meta.fields=false", "populate.meta.fields=false"),
    ],
)
def test_properties_that_cannot_be_kept(line: str, why: str, copy_of: Callable[[str], str]) -> None:
    location = copy_of("rs_cow_v8_simple")
    path = Path(location) / ".hoodie/hoodie.properties"
    path.write_text(f"{path.read_text()}\n{line}\n")
    with pytest.raises(UnsupportedTableError, match=why):
        upgrade(location)
    assert HudiTable.open(location).config.version == 8


def test_only_version_9_is_downgraded(copy_of: Callable[[str], str]) -> None:
    with pytest.raises(UnsupportedTableError, match="only one of version 9"):
        downgrade(copy_of("rs_cow_v6_overwritetable"))
