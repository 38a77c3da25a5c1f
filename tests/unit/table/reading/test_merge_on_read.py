"""Merge-on-read tables: the effect of log files, block by block, and the features of a dataset over them.

:mod:`tests.unit.table.real_tables.test_tables_of_the_real_hudi` compares whole tables with the JVM's reader.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from airflow_provider.exceptions import UnsupportedTableError
from airflow_provider.table import HudiTable, read_optimized, snapshot
from airflow_provider.table.files import BlockType, HeaderKey, LogBlock, WrappedValue, merge_order
from airflow_provider.table.storage import ByteRange
from tests.unit.table.reading.logged import Logged

FIXTURES = Path(__file__).parents[3] / "fixtures" / "real_hudi"


@pytest.fixture
def by_event_time(tmp_path: Path) -> Logged:
    return Logged(tmp_path / "t")


@pytest.fixture
def by_commit_time(tmp_path: Path) -> Logged:
    return Logged(tmp_path / "t", ordering=None)


def test_the_larger_ordering_value_wins_and_the_later_one_of_equals(by_event_time: Logged) -> None:
    by_event_time.rows("001", ("a", 1, 10), ("b", 1, 10), ("c", 1, 10))
    by_event_time.rows("002", ("a", 2, 5), ("b", 2, 10), ("c", 2, 20))
    assert by_event_time.read() == {"a": (1, 10), "b": (2, 10), "c": (2, 20)}


def test_the_later_write_wins_where_the_table_has_no_ordering_field(by_commit_time: Logged) -> None:
    by_commit_time.rows("001", ("a", 1, 10), ("b", 1, 10)).rows("002", ("a", 2, 5)).deletes("003", "b")
    assert by_commit_time.read() == {"a": (2, 5)}


def test_a_delete_with_an_ordering_value_loses_against_a_larger_one(by_event_time: Logged) -> None:
    by_event_time.rows("001", ("a", 1, 10), ("b", 1, 10))
    by_event_time.deletes("002", "a", WrappedValue("LongWrapper", 9))
    by_event_time.deletes("002", "b", WrappedValue("LongWrapper", 11)).rows("003", ("b", 2, 10))
    assert by_event_time.read() == {"a": (1, 10)}


def test_a_delete_without_an_ordering_value_takes_out_what_came_before_it(by_event_time: Logged) -> None:
    by_event_time.rows("001", ("a", 1, 10), ("b", 1, 10)).deletes("002", "a").deletes("002", "b")
    by_event_time.rows("003", ("b", 2, 5))
    assert by_event_time.read() == {"b": (2, 5)}


def test_blocks_of_writes_that_did_not_complete_do_not_count(by_commit_time: Logged) -> None:
    by_commit_time.rows("001", ("a", 1, 10)).rows("002", ("a", 2, 10))
    by_commit_time.completed.remove("002")
    assert by_commit_time.read() == {"a": (1, 10)}


def test_a_rollback_command_voids_the_blocks_before_it_and_none_after(by_commit_time: Logged) -> None:
    by_commit_time.rows("001", ("a", 1, 10)).rows("002", ("a", 2, 10)).rolls_back("003", "002")
    assert by_commit_time.read() == {"a": (1, 10)}
    by_commit_time.rows("002", ("a", 3, 10))
    assert by_commit_time.read() == {"a": (3, 10)}


def test_a_block_that_was_cut_off_is_passed_over(by_commit_time: Logged) -> None:
    by_commit_time.rows("001", ("a", 1, 10)).rows("002", ("a", 2, 10)).cut_off().rows("003", ("b", 3, 10))
    assert by_commit_time.read() == {"a": (1, 10), "b": (3, 10)}


def test_a_partial_update_leaves_the_columns_that_it_says_nothing_of(by_commit_time: Logged) -> None:
    by_commit_time.rows("001", ("a", 1, 10), ("b", 1, 10))
    by_commit_time.rows("002", ("a", 2, None), only="v").rows("003", ("a", None, 30), only="ts")
    assert by_commit_time.read() == {"a": (2, 30), "b": (1, 10)}
    by_commit_time.deletes("004", "a").rows("005", ("a", 5, None), only="v")
    assert by_commit_time.read() == {"a": (5, None), "b": (1, 10)}


def block(instant: str, *compacted: str) -> LogBlock:
    header = {HeaderKey.INSTANT_TIME: instant}
    if compacted:
        header[HeaderKey.COMPACTED_BLOCK_TIMES] = ",".join(compacted)
    return LogBlock(BlockType.AVRO_DATA, header, ByteRange.of_bytes(b"", "log"))


@pytest.mark.parametrize(
    ("blocks", "merged"),
    [
        ([block("1"), block("2")], "1 2"),
        ([block("1"), block("2"), block("4", "1", "2")], "4"),
        ([block("1"), block("2"), block("3"), block("4", "1", "2")], "4 3"),
        ([block("1"), block("2"), block("4", "1", "2"), block("5"), block("6", "4", "5")], "6"),
        ([block("3"), block("4", "1", "2")], "3 4"),
    ],
    ids=["none", "whole", "later writes follow", "twice", "originals are gone"],
)
def test_a_log_compaction_takes_the_place_of_the_newest_that_it_has_read(
    blocks: list[LogBlock], merged: str
) -> None:
    assert " ".join(each.instant for each in merge_order(blocks)) == merged


@pytest.fixture
def by_the_jvm(tmp_path: Path) -> Any:
    def opened(name: str) -> tuple[HudiTable, dict[str, Any]]:
        with zipfile.ZipFile(FIXTURES / f"{name}.zip") as archive:
            archive.extractall(tmp_path / name)
        return HudiTable.open(str(tmp_path / name)), json.loads((FIXTURES / f"{name}.json").read_text())

    return opened


def test_a_dataset_is_filtered_projected_counted_and_sorted(by_the_jvm: Any) -> None:
    table, answers = by_the_jvm("mor_v9")
    rows, whole = snapshot(table), answers["now"]
    assert rows.count_rows() == len(whole)
    assert rows.schema.equals(table.schema)
    assert sorted(rows.to_table(columns=["id"])["id"].to_pylist()) == sorted(row["id"] for row in whole)
    assert rows.filter(ds.field("v") > 100).count_rows() == sum(row["v"] > 100 for row in whole)
    assert rows.to_table(columns={"w": ds.field("v") * 2}).column_names == ["w"]
    assert rows.sort_by("id").to_table()["id"].to_pylist() == sorted(row["id"] for row in whole)
    assert any(".log." in path for path in rows.files)
    with pytest.raises(NotImplementedError, match="scan the dataset"):
        rows.get_fragments()


def test_a_read_optimized_query_shows_what_the_base_files_hold(by_the_jvm: Any) -> None:
    table, answers = by_the_jvm("mor_v9")
    base = {row["id"]: row for row in read_optimized(table).to_table().to_pylist()}
    now = {row["id"]: row for row in answers["now"]}
    assert base["k02"]["ts"] == 10, "its update is in a log file"
    assert now["k02"]["ts"] == 20
    assert "k05" in base
    assert "k05" not in now
    cow, _ = by_the_jvm("cow_v9")
    assert read_optimized(cow).to_table().sort_by("id") == snapshot(cow).to_table().sort_by("id")


def test_statistics_of_a_base_file_leave_nothing_out_that_was_logged(by_the_jvm: Any) -> None:
    table, answers = by_the_jvm("mor_indexed")
    for bound in range(-1, 110):
        found = snapshot(table, where=[("v", ">", bound)]).to_table()["id"].to_pylist()
        assert sorted(found) == sorted(row["id"] for row in answers["now"] if row["v"] > bound)


def test_a_way_of_merging_that_is_not_known_is_refused_by_name(by_the_jvm: Any) -> None:
    table, _ = by_the_jvm("mor_v9")
    path = Path(table.location) / ".hoodie" / "hoodie.properties"
    path.write_text(path.read_text().replace("EVENT_TIME_ORDERING", "CUSTOM"))
    table = HudiTable.open(table.location)
    with pytest.raises(UnsupportedTableError, match=r"hoodie.record.merge.mode=CUSTOM"):
        snapshot(table)
    assert read_optimized(table).count_rows() > 0
