"""Index builds: the possible indexes, their files on storage, and the files after a drop."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hudi import HudiTableBuilder

from airflow_provider.concurrency import CommitLog, begin_write, rollback, rollback_dead_writers
from airflow_provider.concurrency.commit.unlogged_commits import find_unlogged_commits
from airflow_provider.concurrency.indexes.log_to_indexes import current_indexes
from airflow_provider.concurrency.log.log_entry import Plan
from airflow_provider.exceptions import (
    DuplicateRecordKeyError,
    InvalidInputError,
    NoSuchInstantError,
    TableError,
    UnknownOperationError,
)
from airflow_provider.indexing.base_files import IndexBuild, build_in_process
from airflow_provider.indexing.drop import drop_index
from airflow_provider.indexing.run import pending_indexings, run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.indexing.status import index_status
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.locks import InProcessLockProvider
from airflow_provider.services.cleaning.clean_plan import Retention
from airflow_provider.services.cleaning.cleaning import clean
from airflow_provider.services.restore import restore
from airflow_provider.services.upgrade import downgrade, upgrade
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.hudi_table import PROPERTIES_PATH
from airflow_provider.table.metadata_table.index_definitions import read_index_definitions
from airflow_provider.table.metadata_table.reader import METADATA_FOLDER, MetadataTable, metadata_storage
from airflow_provider.table.metadata_table.writer import UPSERT, begin_instant
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.instant import Action
from airflow_provider.table.timeline.metadata import WriteStat
from tests.unit.indexing.jvm import SCHEMA, rows
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild

ALL = ["files", "column_stats", "bloom_filters", "record_index", "partition_stats"]


def files(table: HudiTable) -> set[str]:
    folder = Path(table.location)
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def built(table: HudiTable, *indexes: str) -> None:
    schedule_index(table, indexes)
    for instant in pending_indexings(table):
        run_index(table, instant)


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        ({"partitions": ["colum_stats"]}, UnknownOperationError, "known: files, column_stats"),
        ({"partitions": []}, InvalidInputError, "no index is named"),
        (
            {"partitions": ["column_stats"], "columns": ["fair"]},
            InvalidInputError,
            "'fair' cannot be indexed",
        ),
        ({"partitions": ["column_stats"], "columns": ["tags"]}, InvalidInputError, "no statistics"),
        ({"partitions": ["record_index"], "columns": ["fare"]}, InvalidInputError, "not among record_index"),
        ({"partitions": ["partition_stats"]}, InvalidInputError, "name column_stats too"),
        (
            {"partitions": ["files"], "options": {"hoodie.metadata.record.index.min.filegroups": 3}},
            UnknownOperationError,
            "the nearest that is: hoodie.metadata.record.index.min.filegroup.count",
        ),
        (
            {"partitions": ["files"], "options": {"hoodie.metadata.record.index.growth.factor": "fast"}},
            InvalidInputError,
            "must be: number above 0, not 'fast'",
        ),
        (
            {"partitions": ["files"], "options": {"hoodie.metadata.enable": "false"}},
            InvalidInputError,
            "is to have no metadata table",
        ),
    ],
)
def test_what_cannot_be_planned_is_refused_before_anything_is_written(
    tmp_path: Path, arguments: dict[str, object], error: type[Exception], told: str
) -> None:
    schema = SCHEMA.append(pa.field("tags", pa.list_(pa.string())))
    table = HudiTable.create(str(tmp_path / "t"), name="t", schema=schema, record_key=["id"])
    before = files(table)
    with pytest.raises(error, match=told):
        schedule_index(table, **arguments)  # type: ignore[arg-type]
    locks = {path for path in files(table) if path.startswith(".hoodie/locks/")}
    assert files(table) - locks == before


def test_files_is_planned_along_and_what_is_there_is_left_out(table: HudiTable) -> None:
    first = schedule_index(table, ["record_index"])
    assert [(each.index, each.state) for each in index_status(table)] == [
        ("files", "planned"),
        ("record_index", "planned"),
    ]
    assert schedule_index(table, ["record_index", "files"]) is None
    second = schedule_index(table, ["record_index", "bloom_filters"])
    assert pending_indexings(table, idle=True) == [first, second]
    assert pending_indexings(table, indexes=["bloom_filters"]) == [second]
    result = run_index(table)
    assert result is not None
    assert (result.instant, result.indexes) == (first, ("files", "record_index"))
    assert_indexes_equal_a_rebuild(table, ["files", "record_index"])
    assert [each.state for each in index_status(table)] == ["complete", "complete", "planned"]
    run_index(table)
    assert_indexes_equal_a_rebuild(table, ["bloom_filters", "files", "record_index"])
    assert run_index(table) is None


def test_chosen_columns_and_numbers_of_file_groups(table: HudiTable) -> None:
    options = {
        "hoodie.metadata.index.column.stats.file.group.count": "3",
        "hoodie.metadata.record.index.min.filegroup.count": 1,
        "hoodie.metadata.record.index.max.filegroup.count": 2,
        "hoodie.metadata.record.index.max.filegroup.size": 48,  # a record fills one
    }
    schedule_index(table, ["column_stats", "record_index"], ["fare"], options=options)
    run_index(table)
    found = MetadataTable(metadata_storage(table.storage))
    assert [len(found.file_slices(each)) for each in ("column_stats", "record_index")] == [3, 2]
    assert {each.column_name for _, each in found.records("column_stats")} == {  # type: ignore[union-attr]
        "_hoodie_commit_time",
        "_hoodie_partition_path",
        "_hoodie_record_key",
        "fare",
    }
    assert_indexes_equal_a_rebuild(table, ["column_stats", "files", "record_index"])
    with pytest.raises(InvalidInputError, match="drop it first"):
        schedule_index(table, ["column_stats"], ["id"])
    with pytest.raises(InvalidInputError, match="drop it first"):
        schedule_index(table, ["partition_stats", "bloom_filters"], ["id"])
    built(table, "partition_stats")
    ranges = MetadataTable(metadata_storage(table.storage)).records("partition_stats")
    assert "id" not in {each.column_name for _, each in ranges}  # type: ignore[union-attr]


def test_a_table_without_a_commit_can_have_indexes(tmp_path: Path) -> None:
    table = HudiTable.create(str(tmp_path / "t"), name="t", schema=SCHEMA, record_key=["id"])
    planned = schedule_index(table, ["files"])
    assert [each.requested_time for each in table.timeline().pending()] == [planned]
    run_index(table, planned)
    built(table, *ALL)
    ingest_arrow(HudiTable.open(table.location), rows([1, 2]))
    assert_indexes_equal_a_rebuild(table, ALL)
    assert sum(batch.num_rows for batch in HudiTableBuilder.from_base_uri(table.location).build().read()) == 2


def test_hudi_rs_reads_the_table_through_files(table: HudiTable) -> None:
    built(table, "files")
    ingest_arrow(HudiTable.open(table.location), rows([3, 4], 9.0))
    batches = HudiTableBuilder.from_base_uri(table.location).build().read()
    theirs = pa.Table.from_batches(batches).select(["id", "fare"]).sort_by("id")
    assert theirs.to_pylist() == [
        {"id": 1, "fare": 1.0},
        {"id": 2, "fare": 1.0},
        {"id": 3, "fare": 9.0},
        {"id": 4, "fare": 9.0},
    ]


def test_a_key_in_two_places_is_refused_and_named(table: HudiTable) -> None:
    ingest_arrow(table, rows([3], city="la"))
    instant = schedule_index(table, ["record_index"])
    told = r"key '3' lives in city=\w\w/.* and in city="
    with pytest.raises(DuplicateRecordKeyError, match=told) as refused:
        run_index(table)
    assert {each.partition("/")[0] for each in refused.value.details["file_groups"]} == {"city=sf", "city=la"}
    assert_indexes_equal_a_rebuild(table, [])
    # Its deletion is logged since, and would hide the other record.
    ingest_arrow(table, rows([3], city="la"), "delete")
    with pytest.raises(DuplicateRecordKeyError, match=r"key '3' lived in two .* planned by \d+"):
        run_index(table, instant)
    drop_index(table, ["record_index"])
    built(table, "record_index")
    assert_indexes_equal_a_rebuild(table, ["files", "record_index"])


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_key_that_comes_to_another_partition_while_it_is_built_is_refused(
    table: HudiTable, is_deleted: bool
) -> None:
    """No reader uses the index yet; the commit that moves the key comes after the index's base files."""

    def build(planned: IndexBuild) -> list[WriteStat]:
        stats = build_in_process(planned)
        ingest_arrow(table, rows([3], city="la"))
        if is_deleted:  # the key exists; a record of it would hide the other record
            ingest_arrow(table, rows([3], city="la"), "delete")
        return stats

    schedule_index(table, ["record_index"])
    other = "no other place" if is_deleted else "city=la"
    with pytest.raises(DuplicateRecordKeyError, match=f"key '3' lives in city=sf/.* was built, in {other}"):
        run_index(table, build=build)
    assert_indexes_equal_a_rebuild(table, [])


def test_a_file_that_is_cleaned_during_the_build_is_left_out_and_no_other_is(table: HudiTable) -> None:
    ingest_arrow(table, rows([1], fare=5.0))

    def build(planned: IndexBuild) -> list[WriteStat]:
        assert len(planned.files) > len(planned.live)
        clean(table, Retention("KEEP_LATEST_FILE_VERSIONS", 1))
        return build_in_process(planned)

    schedule_index(table, ALL)
    assert run_index(table, build=build) is not None
    assert_indexes_equal_a_rebuild(table, ALL)


def test_keys_of_another_writer_may_be_large_strings(table: HudiTable) -> None:
    ingest_arrow(table, rows([70], city="la"))
    changed = Path(table.location, table.base_files()[0].path)
    found = pq.read_table(changed)
    position = found.schema.get_field_index("_hoodie_record_key")
    field = found.schema.field(position).with_type(pa.large_string())
    pq.write_table(found.cast(found.schema.set(position, field)), changed)
    assert pq.read_schema(changed).field(position).type == pa.large_string()
    built(table, "record_index")
    assert_indexes_equal_a_rebuild(table)


def test_a_key_that_was_deleted_and_came_again_since_the_plan_is_in_one_place(table: HudiTable) -> None:
    schedule_index(table, ["record_index"])
    ingest_arrow(table, rows([2, 3]), "delete")
    ingest_arrow(table, rows([3, 4]))
    run_index(table)
    assert_indexes_equal_a_rebuild(table, ["files", "record_index"])


def test_a_drop_leaves_the_others_and_an_index_can_be_made_anew(table: HudiTable) -> None:
    built(table, *ALL)
    dropped = drop_index(table, ["column_stats"])
    assert dropped is not None
    assert dropped.indexes == ("column_stats", "partition_stats")
    left = ["bloom_filters", "files", "record_index"]
    assert_indexes_equal_a_rebuild(table, left)
    assert not [path for path in files(table) if path.startswith(f"{METADATA_FOLDER}/column_stats/")]
    assert "column_stats" not in read_index_definitions(table.storage)
    assert drop_index(table, ["column_stats"]) is None
    ingest_arrow(HudiTable.open(table.location), rows([4, 5]))
    built(table, *ALL)
    assert_indexes_equal_a_rebuild(table, ALL)


def test_without_files_the_whole_metadata_table_goes_and_a_plan_with_it(table: HudiTable) -> None:
    built(table, "files", "bloom_filters")
    pending = schedule_index(table, ["record_index"])
    assert pending is not None
    drop_index(table, ["files"])
    assert not [path for path in files(table) if path.startswith((METADATA_FOLDER, ".hoodie/.index_defs"))]
    config = HudiTable.open(table.location).config
    assert config.metadata_partitions == ()
    assert "hoodie.table.index.defs.path" not in config.raw
    with pytest.raises(NoSuchInstantError, match="its indexes were dropped"):
        run_index(table, pending)
    assert not table.timeline().pending()
    ingest_arrow(HudiTable.open(table.location), rows([4]))
    assert snapshot(HudiTable.open(table.location)).to_table().num_rows == 4
    assert downgrade(table.location).after == 8
    upgrade(table.location)
    built(table, *ALL)
    assert_indexes_equal_a_rebuild(table, ALL)


def test_what_was_committed_without_an_index_is_not_missed_by_a_later_one(table: HudiTable) -> None:
    """A writer that began before the new plan logs to it; that does not show what was logged before."""
    built(table, "record_index")
    drop_index(table, ["files"])
    writer = begin_write(table, operation="UPSERT")
    ingest_arrow(table, rows([7]))
    schedule_index(table, ["record_index"])
    begin_instant(metadata_storage(table.storage), Action.DELTA_COMMIT, writer.instant, UPSERT)
    commit_log = CommitLog(table.storage)
    indexes = current_indexes(table.storage, commit_log, commit_log.newest())
    assert len(indexes) == 2
    assert find_unlogged_commits(table.storage, indexes, table.timeline()) == []
    writer.abort()


def test_a_pending_index_alone_is_dropped_and_its_plan_leaves_the_timeline(table: HudiTable) -> None:
    built(table, "files")
    schedule_index(table, ["record_index", "bloom_filters"])
    drop_index(table, ["record_index"])
    (plan,) = table.timeline().pending()
    result = run_index(table)
    assert result is not None
    assert (result.instant, result.indexes) == (plan.requested_time, ("bloom_filters",))
    assert_indexes_equal_a_rebuild(table, ["bloom_filters", "files"])


def test_a_plan_whose_indexes_went_one_by_one_leaves_the_timeline(table: HudiTable) -> None:
    schedule_index(table, ["record_index", "bloom_filters"])
    drop_index(table, ["record_index"])
    anew = schedule_index(table, ["record_index"])
    assert len(table.timeline().pending()) == 2
    drop_index(table, ["bloom_filters"])
    assert len(table.timeline().pending()) == 2, "files is still to be built by the first"
    run_index(table)
    schedule_index(table, ["column_stats", "bloom_filters"])
    drop_index(table, ["column_stats"])
    schedule_index(table, ["column_stats"])
    drop_index(table, ["bloom_filters"])
    pending = [each.requested_time for each in table.timeline().pending()]
    assert pending == pending_indexings(table)
    assert anew in pending
    while run_index(table):
        pass
    assert_indexes_equal_a_rebuild(table, ["column_stats", "files", "record_index"])


def test_a_plan_is_not_rolled_back(table: HudiTable) -> None:
    instant = schedule_index(table, ["files"])
    assert instant is not None
    with pytest.raises(TableError, match="run it, or drop them"):
        rollback(table, instant)
    table.storage.put(
        f".hoodie/.heartbeat/{instant}", b'{"owner": "a run", "action": "indexing", "interval": 1e-9}'
    )
    os.utime(f"{table.location}/.hoodie/.heartbeat/{instant}", (0, 0))
    assert rollback_dead_writers(table) == [], "a run that died is run again"
    run_index(table, instant)
    assert_indexes_equal_a_rebuild(table, ["files"])


def test_a_restore_goes_past_a_plan(table: HudiTable) -> None:
    first = table.timeline().commits()[0].requested_time
    schedule_index(table, ALL)
    ingest_arrow(table, rows([3, 4], 5.0))
    restore(table, first)
    run_index(table)
    assert_indexes_equal_a_rebuild(table, ALL)
    ingest_arrow(HudiTable.open(table.location), rows([7]))
    restore(table, first)
    assert_indexes_equal_a_rebuild(table, ALL)


def test_who_stood_still_before_it_wrote_the_properties_brings_no_index_back(
    table: HudiTable,
) -> None:
    class StandsStill(Storage):
        overtaken = False

        def put(self, path: str, data: bytes) -> None:
            completes = path == PROPERTIES_PATH and b"metadata.partitions=files\n" in data
            if completes and not self.overtaken:
                self.overtaken = True
                drop_index(HudiTable.open(table.location), ["files"], lock=InProcessLockProvider("another"))
            super().put(path, data)

    storage = StandsStill(table.location)
    schedule_index(table, ["files"])
    with pytest.raises(NoSuchInstantError, match="its indexes were dropped"):
        run_index(HudiTable(storage, table.config))
    assert storage.overtaken
    assert HudiTable.open(table.location).config.metadata_partitions == ()
    ingest_arrow(HudiTable.open(table.location), rows([4]))
    assert_indexes_equal_a_rebuild(table, [])


class FailsOnce(Storage):
    """A storage that fails at one operation, and then works again."""

    def __init__(self, root: str, fails_at: int) -> None:
        super().__init__(root)
        self.left = fails_at

    def __getattribute__(self, name: str) -> Any:
        if name in ("put_if_absent", "put", "move_if_absent", "read", "names", "list", "stat"):
            self.left -= 1
            if self.left == -1:
                raise OSError("the storage is away")
        return super().__getattribute__(name)


def test_a_schedule_that_fails_leaves_nothing(tmp_path: Path) -> None:
    failed = 0
    for fails_at in range(0, 60, 2):
        location = str(tmp_path / str(fails_at))
        table = HudiTable.create(location, name="t", schema=SCHEMA, record_key=["id"])
        ingest_arrow(table, rows([1, 2]))
        before = files(table)
        failing = HudiTable(FailsOnce(location, fails_at), table.config)
        lock = InProcessLockProvider(location)
        try:
            planned = schedule_index(failing, ["bloom_filters"], lock=lock)
        except OSError:
            failed += 1
            newest = CommitLog(table.storage).newest()
            if isinstance(newest, Plan):
                continue  # its entry is put: the read right after that has failed
            new = files(table) - before
            # Files without an owner: an expired heartbeat, and content that no entry names.
            assert not {path for path in new if "/.heartbeat/" not in path and "/staged/" not in path}
            assert not table.timeline().pending()
            assert index_status(table) == []
            planned = schedule_index(table, ["bloom_filters"], lock=lock)
        run_index(table, planned, lock=lock)
        assert_indexes_equal_a_rebuild(table, ["bloom_filters", "files"])
    assert failed > 10


# --- by the load itself -------------------------------------------------------------------------


def asking_for(tmp_path: Path, **options: object) -> HudiTable:
    return HudiTable.create(
        str(tmp_path / "asking"),
        name="trips",
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["city"],
        hudi_options={
            "hoodie.metadata.index.column.stats.enable": True,
            "hoodie.metadata.record.index.enable": True,
            **{f"hoodie.metadata.index.{name}": value for name, value in options.items()},
        },
    )


def test_a_load_builds_what_the_options_enable_and_keeps_it(tmp_path: Path) -> None:
    table = asking_for(tmp_path)
    ingest_arrow(table, rows([1, 2]))
    enabled = {"files", "column_stats", "partition_stats", "record_index"}
    assert set(HudiTable.open(table.location).config.metadata_partitions) == enabled
    ingest_arrow(table, rows([2, 3]))
    assert_indexes_equal_a_rebuild(table, enabled)
    plans = [entry for entry in CommitLog(table.storage).after(0) if isinstance(entry, Plan)]
    assert len(plans) == 1, "what is there is not built again"


def test_a_load_leaves_it_to_a_plan_where_the_options_say_so(tmp_path: Path) -> None:
    table = asking_for(tmp_path, **{"async": True})
    ingest_arrow(table, rows([1, 2]))
    assert HudiTable.open(table.location).config.metadata_partitions == ()


def test_a_load_takes_a_plan_up_whose_run_died(tmp_path: Path) -> None:
    table = asking_for(tmp_path)
    assert schedule_index(table, ["column_stats"]) is not None
    ingest_arrow(table, rows([1, 2]))
    assert_indexes_equal_a_rebuild(table, {"files", "column_stats", "partition_stats", "record_index"})


def test_a_load_is_done_although_an_index_cannot_be_built(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = asking_for(tmp_path)
    twice = pa.concat_tables([rows([1]), rows([1], city="la")])
    assert ingest_arrow(table, twice, "bulk_insert")["instant"]
    assert "could not be built now: " in caplog.text
    assert "record_index" not in HudiTable.open(table.location).config.metadata_partitions
