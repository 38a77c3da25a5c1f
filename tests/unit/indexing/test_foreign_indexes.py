"""Indexes that another Hudi writer makes, changes or drops between two commits of this package.

Also the instant names that protect this package's own indexes from that writer.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from airflow_provider.concurrency import CommitLog
from airflow_provider.concurrency.log.commit_log import COMMIT_LOG_FOLDER
from airflow_provider.exceptions import UnsupportedTableError
from airflow_provider.indexing.drop import drop_index
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.indexing.status import index_status
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.metadata_table.initial_instants import is_initial
from airflow_provider.table.metadata_table.reader import METADATA_FOLDER, MetadataTable, metadata_storage
from airflow_provider.table.properties import PROPERTIES_PATH
from airflow_provider.table.reading.explanation import explain
from airflow_provider.table.timeline.active import Timeline, instant_path
from airflow_provider.table.timeline.instant import Action, Instant, State
from tests.unit.indexing.jvm import rows
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild

ALL = ["files", "column_stats", "bloom_filters", "record_index", "partition_stats"]
COMPLETE = "hoodie.table.metadata.partitions="
DEFINITIONS = Path(".hoodie") / ".index_defs" / "index.json"


@pytest.fixture
def indexed(table: HudiTable) -> HudiTable:
    return build(table, *ALL)


def build(table: HudiTable, *indexes: str) -> HudiTable:
    schedule_index(table, indexes)
    assert run_index(table) is not None
    return HudiTable.open(table.location)


def again(table: HudiTable) -> HudiTable:
    return HudiTable.open(table.location)


def named(table: HudiTable) -> set[str]:
    return set(again(table).config.metadata_partitions)


def foreign_writer_names(table: HudiTable, *partitions: str) -> None:
    """Set the properties as another Hudi writer does that has made or dropped an index."""
    lines = table.storage.read(PROPERTIES_PATH).decode().splitlines()
    lines = [line for line in lines if not line.startswith(COMPLETE)]
    lines += [COMPLETE + ",".join(sorted(partitions))] if partitions else []
    table.storage.put(PROPERTIES_PATH, "\n".join([*lines, ""]).encode())


def foreign_writer_drops(table: HudiTable, partition: str) -> None:
    foreign_writer_names(table, *named(table) - {partition})
    shutil.rmtree(Path(table.location) / METADATA_FOLDER / partition)


def without_commit_log(table: HudiTable) -> None:
    """Make all commits look like another Hudi writer's, which writes no commit log."""
    shutil.rmtree(Path(table.location) / COMMIT_LOG_FOLDER)


def files(table: HudiTable) -> set[str]:
    folder = Path(table.location)
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    return {path for path in found if not path.startswith(".hoodie/locks/")}


class TestNames:
    def test_the_base_files_of_an_index_are_of_an_initial_instant(self, indexed: HudiTable) -> None:
        storage = metadata_storage(indexed.storage)
        own = MetadataTable(storage)
        slices = [each for index in ALL for each in own.file_slices(index)]
        wrote = [each.base_file.instant for each in slices if each.base_file is not None]
        assert len(wrote) == len(slices)
        assert all(map(is_initial, wrote))
        initial = {
            each.requested_time
            for each in Timeline.load(storage).completed()
            if is_initial(each.requested_time)
        }
        assert initial == {f"{number:017d}" for number in range(len(ALL))}

    def test_an_index_that_is_built_later_takes_names_that_nobody_has(self, table: HudiTable) -> None:
        build(table, "files")
        ingest_arrow(again(table), rows([4]))
        build(again(table), "record_index")
        drop_index(again(table), ["record_index"])
        build(again(table), "record_index")
        storage = metadata_storage(table.storage)
        completed = [each.requested_time for each in Timeline.load(storage).completed()]
        assert [each for each in completed if is_initial(each)] == [f"{number:017d}" for number in range(3)]
        assert_indexes_equal_a_rebuild(again(table), ["files", "record_index"])

    def test_no_indexing_is_the_newest_instant_of_the_table(self, indexed: HudiTable) -> None:
        """The initialisation of another partition would roll back an instant with the same time."""
        assert [each for each in indexed.timeline().instants if each.action is Action.INDEXING] == []
        again_scheduled = schedule_index(indexed, ALL)
        assert again_scheduled is None

    def test_a_name_that_another_takes_meanwhile_is_left_to_it(
        self, table: HudiTable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The other writer begins a partition under that name; this package builds its own again."""
        from airflow_provider.exceptions import WriteConflictError
        from airflow_provider.indexing import index_run as running

        schedule_index(table, ["files"])
        stage, storage = running.stage_base_files, metadata_storage(table.storage)
        theirs = instant_path(Instant("0" * 17, Action.DELTA_COMMIT, State.REQUESTED))

        def taken(*args: object) -> None:
            stage(*args)  # type: ignore[arg-type]
            storage.put_if_absent(theirs, b"")

        with monkeypatch.context() as patch:
            patch.setattr(running, "stage_base_files", taken)
            with pytest.raises(WriteConflictError, match="run it again"):
                run_index(table)
        assert storage.read(theirs) == b""
        assert run_index(again(table)) is not None
        assert storage.read(theirs) == b""
        ingest_arrow(again(table), rows([4]))
        assert_indexes_equal_a_rebuild(again(table), ["files"])


class TestMade:
    def test_what_they_have_made_is_kept(self, indexed: HudiTable) -> None:
        without_commit_log(indexed)
        for key in (4, 5):
            ingest_arrow(again(indexed), rows([key]))
        assert_indexes_equal_a_rebuild(again(indexed), ALL)

    def test_what_they_make_between_two_commits_is_kept(self, table: HudiTable) -> None:
        ingest_arrow(table, rows([4]))
        log = {path: table.storage.read(path) for path in files(table) if path.startswith(COMMIT_LOG_FOLDER)}
        build(again(table), *ALL)
        without_commit_log(table)
        for path, content in log.items():
            table.storage.put(path, content)
        assert CommitLog(table.storage).newest() is not None
        ingest_arrow(again(table), rows([5]))
        assert_indexes_equal_a_rebuild(again(table), ALL)
        assert {each.state for each in index_status(again(table))} == {"complete"}


class TestDropped:
    def test_a_dropped_index_is_gone(self, indexed: HudiTable) -> None:
        foreign_writer_drops(indexed, "record_index")
        ingest_arrow(again(indexed), rows([4]))
        assert named(indexed) == {*ALL} - {"record_index"}
        assert "record_index" not in {each.index for each in index_status(again(indexed))}
        drop_index(again(indexed), ["bloom_filters"])
        assert named(indexed) == {"files", "column_stats", "partition_stats"}
        assert_indexes_equal_a_rebuild(again(indexed), ["files", "column_stats", "partition_stats"])

    def test_it_is_built_anew(self, indexed: HudiTable) -> None:
        foreign_writer_drops(indexed, "record_index")
        ingest_arrow(again(indexed), rows([4]))
        build(again(indexed), "record_index")
        ingest_arrow(again(indexed), rows([5]))
        assert_indexes_equal_a_rebuild(again(indexed), ALL)

    def test_the_whole_metadata_table(self, indexed: HudiTable) -> None:
        foreign_writer_names(indexed)
        shutil.rmtree(Path(indexed.location) / METADATA_FOLDER)
        ingest_arrow(again(indexed), rows([4]))
        assert not (Path(indexed.location) / METADATA_FOLDER).exists()
        assert index_status(again(indexed)) == []
        build(again(indexed), *ALL)
        ingest_arrow(again(indexed), rows([5]))
        assert_indexes_equal_a_rebuild(again(indexed), ALL)


class TestNotKept:
    @pytest.fixture
    def foreign(self, indexed: HudiTable, request: pytest.FixtureRequest) -> str:
        """Add an index that this package does not maintain; return its name."""
        name = str(request.param)
        if name == "record_index":
            path = Path(indexed.location) / DEFINITIONS
            found = path.read_text()
            assert '"isPartitioned"' in found
            path.write_text(found.replace('"isPartitioned": "false"', '"isPartitioned": "true"'))
        else:
            foreign_writer_names(indexed, *ALL, name)
        return name

    @pytest.mark.parametrize(
        ("foreign", "kind"),
        [
            ("record_index", "of each partition"),
            ("secondary_index_city", "a secondary index"),
            ("expr_index_day", "an expression index"),
            ("of_tomorrow", "of an unknown kind"),
        ],
        indirect=["foreign"],
    )
    def test_a_write_is_refused_by_name_before_anything_is_written(
        self, indexed: HudiTable, foreign: str, kind: str
    ) -> None:
        before = files(indexed)
        with pytest.raises(UnsupportedTableError, match=kind) as refused:
            ingest_arrow(again(indexed), rows([4]))
        assert f"table-services index drop {indexed.location} {foreign}" in str(refused.value)
        assert refused.value.details["indexes"] == [foreign]
        assert files(indexed) == before
        status = {each.index: each.state for each in index_status(again(indexed))}
        assert status[foreign] == "not kept"
        assert snapshot(again(indexed)).to_table(filter=None)["id"].to_pylist() == [1, 2, 3]

    @pytest.mark.parametrize("foreign", ["record_index", "secondary_index_city"], indirect=True)
    def test_it_is_dropped_here_and_writes_go_on(self, indexed: HudiTable, foreign: str) -> None:
        dropped = drop_index(again(indexed), [foreign])
        assert dropped is not None
        assert foreign not in named(indexed)
        ingest_arrow(again(indexed), rows([4]))
        assert_indexes_equal_a_rebuild(again(indexed), [each for each in ALL if each != foreign])

    @pytest.mark.parametrize("foreign", ["record_index"], indirect=True)
    def test_a_key_is_not_looked_up_in_the_record_index_of_each_partition(
        self, indexed: HudiTable, foreign: str
    ) -> None:
        told = explain(again(indexed), where=[("id", "==", 2)])
        assert told["indexes"]["record_index"] == "not usable"
        assert told["indexes"]["column_stats"] == "usable"
        found = snapshot(again(indexed), where=[("id", "==", 2)]).to_table()
        assert found["id"].to_pylist() == [2]
