"""Readers skip files without a matching row, and never a file with one."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given

from airflow_provider.exceptions import InvalidInputError, MissingColumnError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.metadata_table.keys import column_stats_key
from airflow_provider.table.metadata_table.partitions import MetadataPartition
from airflow_provider.table.metadata_table.reader import metadata_storage
from airflow_provider.table.metadata_table.writer import write_instant, write_log_file
from airflow_provider.table.properties import PROPERTIES_PATH, dump_properties
from airflow_provider.table.reading.explanation import explain
from airflow_provider.table.schema.arrow_avro import arrow_to_avro
from airflow_provider.table.skipping.predicates import Filter, Where, parse_filter
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.instant import Action, format_time, parse_time
from tests.unit.table.skipping.indexed import build_indexes
from tests.unit.table.skipping.queries import SCHEMA, VALUES, predicates, rows

UTC = dt.UTC
files = st.lists(st.lists(rows, min_size=1, max_size=3), min_size=1, max_size=4)


def indexed(table: HudiTable, *partitions: str) -> HudiTable:
    """The table, with indexes of its present content."""
    newest = parse_time(table.timeline().newest_completion)
    times = [format_time(newest + dt.timedelta(milliseconds=step)) for step in (1, 2)]
    build_indexes(table, partitions or tuple(MetadataPartition), *times)
    return HudiTable.open(table.location)


@contextmanager
def table_of(batches: list[list[dict[str, Any]]], **options: Any) -> Iterator[HudiTable]:
    with tempfile.TemporaryDirectory() as folder:
        table = HudiTable.create(f"{folder}/t", name="t", schema=SCHEMA, record_key=["id"], **options)
        number = 0
        for batch in batches:
            numbered = [{**row, "id": number + position} for position, row in enumerate(batch)]
            number += len(batch)
            ingest_arrow(table, pa.Table.from_pylist(numbered, SCHEMA), "bulk_insert")
        yield table


# With known bounds Arrow treats "not less than" as "at least", and would leave out the file.
NOTHING = dict.fromkeys(VALUES)
NAN = pa.scalar(float("nan"))


@example(batches=[[NOTHING, {**NOTHING, "x": 0.0}]], asked=[~(pc.field("x") < NAN)], is_partitioned=False)
@given(batches=files, asked=st.lists(predicates, min_size=1, max_size=12), is_partitioned=st.booleans())
def test_no_row_is_skipped(
    batches: list[list[dict[str, Any]]], asked: list[Any], is_partitioned: bool
) -> None:
    with table_of(batches, partition_by=["p"] if is_partitioned else []) as plain:
        everything = snapshot(plain).to_table()
        table = indexed(plain, "files", "column_stats", "partition_stats")
        for where in asked:
            found = snapshot(table, where=where).to_table()["id"].to_pylist()
            assert sorted(found) == sorted(everything.filter(where)["id"].to_pylist()), where


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_zero_and_minus_zero_are_one_value(zero: float) -> None:
    with table_of([[{**NOTHING, "x": 0.0}], [{**NOTHING, "x": -0.0}], [{**NOTHING, "x": 1.5}]]) as plain:
        for table in (plain, indexed(plain, "files", "column_stats")):
            for where, ids in [
                ([("x", "in", [zero])], {0, 1}),
                ([("x", "in", [zero, 1.5])], {0, 1, 2}),
                ([("x", "not in", [zero])], {2}),
                ([("x", "=", zero)], {0, 1}),
                ([("x", "!=", zero)], {2}),
            ]:
                assert set(snapshot(table, where=where).to_table()["id"].to_pylist()) == ids, where


# --- what is skipped ----------------------------------------------------------------------------


@pytest.fixture
def flights(tmp_path: Path) -> HudiTable:
    """A table of three files with different months, airports and delays; one file has only null delays."""
    schema = pa.schema(
        {
            "id": pa.int64(),
            "month": pa.int32(),
            "origin": pa.string(),
            "delay": pa.float64(),
            "at": pa.timestamp("us", "UTC"),
        }
    )
    table = HudiTable.create(
        str(tmp_path / "t"), name="t", schema=schema, record_key=["id"], partition_by=["month"]
    )
    for month, (origin, delay) in enumerate([("EWR", 5.0), ("JFK", 300.0), ("LGA", None)], 1):
        at = dt.datetime(2024, month, 1, tzinfo=UTC)
        batch = [
            {"id": 10 * month + n, "month": month, "origin": origin, "delay": delay and delay + n, "at": at}
            for n in range(3)
        ]
        ingest_arrow(table, pa.Table.from_pylist(batch, schema), "insert")
    return table


@pytest.mark.parametrize(
    ("where", "months"),
    [
        ([("delay", ">", 300)], [2]),
        ([("delay", ">", 302)], []),
        ([("delay", "<=", 302), ("delay", ">=", 7)], [1, 2]),
        ([("delay", "is null", None)], [3]),
        ([("delay", "is not null", None)], [1, 2]),
        ([("origin", "in", ["JFK", "XYZ"])], [2]),
        ([("origin", "!=", "JFK")], [1, 3]),
        ([("origin", "not in", ["JFK", "LGA"])], [1]),
        (~pc.field("origin").isin(["JFK"]), [1, 3]),
        ([("delay", "!=", 300)], [1, 2]),
        (~pc.field("delay").isin([300.0]), [1, 2, 3]),  # neither is null in a list
        ([[("origin", "=", "EWR")], [("delay", ">", 100)]], [1, 2]),
        ([("at", ">", "2024-02-15T00:00:00Z")], [3]),
        ([("month", "=", 2)], [2]),
        (~(pc.field("delay") < 300), [1, 2]),
        (pc.field("origin").is_null(), []),
        ((pc.field("delay") + 1) > 1000, [1, 2]),
    ],
    ids=str,
)
def test_files_without_a_match_are_skipped(flights: HudiTable, where: Where, months: list[int]) -> None:
    table = indexed(flights)
    found = table.select_files(where)
    # A float may be NaN, which is not less than anything.
    assert [each.partition_path for each in found.base_files] == [f"month={month}" for month in months]
    assert found.listed_by == "files"


def test_partitions_are_skipped_by_their_statistics(flights: HudiTable) -> None:
    moment = flights.timeline().newest_completion
    table = indexed(flights, "files", "column_stats", "partition_stats")
    where = [("delay", ">", 300)]
    found = explain(table, where)
    assert found["steps"] == [
        {"index": "partition_stats", "considered": 3, "skipped": 2, "of": "partitions"},
        {"index": "column_stats", "considered": 1, "skipped": 0, "of": "files"},
    ]
    assert [path.rpartition("/")[0] for path in found["paths"]] == ["month=2"]
    assert found["indexes"]["partition_stats"] == "usable"
    assert snapshot(table, where=where).to_table()["delay"].to_pylist() == [301.0, 302.0]
    # The index describes the present content of partitions, not their content before it existed.
    assert [step.index for step in table.select_files(where, moment).steps] == ["column_stats"]


def test_a_partition_with_a_file_from_before_a_column_came_is_read(tmp_path: Path) -> None:
    location, before = str(tmp_path / "t"), pa.schema({"id": pa.int64(), "p": pa.string()})
    table = HudiTable.create(location, name="t", schema=before, record_key=["id"], partition_by=["p"])
    ingest_arrow(table, pa.table({"id": [1], "p": ["old"]}), "insert")
    now = arrow_to_avro(before.append(pa.field("fare", pa.float64())), "t")
    properties = replace(table.config, create_schema=now).to_properties()
    table.storage.put(PROPERTIES_PATH, dump_properties(properties).encode())
    table = HudiTable.open(location)
    ingest_arrow(table, pa.table({"id": [2, 3], "p": ["old", "new"], "fare": [2.0, 3.0]}), "bulk_insert")
    where = [("fare", "is null", None)]
    found = indexed(table, "files", "partition_stats").select_files(where)
    assert [(step.index, step.considered, step.skipped) for step in found.steps] == [
        ("partition_stats", 2, 1)
    ]
    assert {each.partition_path for each in found.base_files} == {"p=old"}
    assert snapshot(HudiTable.open(location), where=where).to_table()["id"].to_pylist() == [1]


def test_without_an_index_partitions_are_skipped_all_the_same(flights: HudiTable) -> None:
    found = flights.select_files([("month", "in", [1, 3]), ("delay", ">", 100)])
    assert [each.partition_path for each in found.base_files] == ["month=1", "month=3"]
    assert [(step.index, step.skipped, step.of) for step in found.steps] == [
        ("partition columns", 1, "partitions")
    ]
    assert found.listed_by == "folders"


@pytest.mark.parametrize(
    "where", [[("id", "=", 21)], [("id", "in", [21, 99])], [[("id", "==", "21")]]], ids=str
)
def test_a_key_is_found_in_one_file(flights: HudiTable, where: Where) -> None:
    table = indexed(flights, "files", "record_index")
    found = table.select_files(where)
    assert [each.partition_path for each in found.base_files] == ["month=2"]
    assert [step.index for step in found.steps] == ["record_index"]
    assert explain(table, where)["steps"] == [
        {"index": "record_index", "considered": 3, "skipped": 2, "of": "files"}
    ]
    assert [row["id"] for row in snapshot(table, where=where).to_table().to_pylist()] == [21]
    assert table.select_files([("id", "=", 99)]).base_files == ()
    assert snapshot(table, where=[("id", "=", 99)]).to_table().num_rows == 0


@pytest.mark.parametrize("hive_style", [True, False])
def test_a_partition_that_is_named_is_read_without_a_look_at_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hive_style: bool
) -> None:
    schema = pa.schema({"id": pa.int64(), "p": pa.string(), "q": pa.string()})
    table = HudiTable.create(
        str(tmp_path / "t"),
        name="t",
        schema=schema,
        record_key=["id"],
        partition_by=["p", "q"],
        hive_style=hive_style,
    )
    rows = {"id": [1, 2, 3, 4], "p": ["a", "a", "b", ".hoodie"], "q": ["x y", "z", "x y", "%41"]}
    ingest_arrow(table, pa.table(rows, schema))
    where: list[Filter] = [("p", "in", ["a", "nowhere"]), ("q", "=", "x y")]
    assert snapshot(table, where=[("p", "=", ".hoodie"), ("q", "=", "%41")]).to_table()["id"].to_pylist() == [
        4
    ]
    assert explain(table, where)["steps"] == [
        {"index": "partition columns", "considered": 4, "skipped": 3, "of": "partitions"}
    ]
    listed: list[str] = []
    monkeypatch.setattr(Storage, "folders_holding", lambda *_: pytest.fail("all partitions are listed"))
    names = Storage.names
    monkeypatch.setattr(Storage, "names", lambda self, path: listed.append(path) or names(self, path))
    found = snapshot(table, where=where).to_table()
    assert found["id"].to_pylist() == [1]
    assert len([path for path in listed if not path.startswith(".hoodie")]) == 2


def test_a_partition_column_of_truths_skips(tmp_path: Path) -> None:
    schema = pa.schema({"id": pa.int64(), "late": pa.bool_()})
    table = HudiTable.create(
        str(tmp_path / "t"), name="t", schema=schema, record_key=["id"], partition_by=["late"]
    )
    ingest_arrow(table, pa.table({"id": [1, 2, 3], "late": [True, False, None]}, schema))
    for where in ([("late", "=", True)], [("late", "!=", False)]):
        found = table.select_files(where).base_files
        assert [each.partition_path for each in found][-1:] == ["late=true"]
        assert "late=false" not in [each.partition_path for each in found]
        assert snapshot(table, where=where).to_table()["id"].to_pylist() == [1]


def test_of_a_moment_before_the_index_keys_are_found_without_it(flights: HudiTable) -> None:
    moment = flights.timeline().commits()[1].requested_time
    row = pa.table({"id": [41], "month": pa.array([4], pa.int32())})
    ingest_arrow(flights, row, "insert", set_null_for_missing_columns=True)
    table = indexed(flights, "record_index")
    found = table.select_files([("id", "=", 21)], moment)
    assert [step.index for step in found.steps] == []
    assert [each.partition_path for each in found.base_files] == ["month=1", "month=2"]


def test_a_file_whose_statistics_are_gone_is_read(flights: HudiTable) -> None:
    table = indexed(flights, "column_stats")
    where = [("delay", ">", 1000)]
    assert table.select_files(where).base_files == ()
    indexes = table.view().indexes
    assert indexes is not None
    metadata = metadata_storage(table.storage)
    gone = dict.fromkeys(_keys_of(table, "month=1"))
    newest = parse_time(table.timeline().newest_completion)
    times = [format_time(newest + dt.timedelta(milliseconds=step)) for step in (10, 11)]
    stats = [
        write_log_file(metadata, "column_stats", f"col-stats-000{number}-0", times[0], gone)
        for number in range(2)
    ]
    write_instant(metadata, Action.DELTA_COMMIT, *times, "UPSERT_PREPPED", stats)
    assert [each.partition_path for each in table.select_files(where).base_files] == ["month=1"]


def _keys_of(table: HudiTable, partition: str) -> list[str]:
    (base_file,) = table.view().base_files(partition)
    return [column_stats_key("delay", partition, base_file.path.rpartition("/")[2])]


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ([("nowhere", "=", 1)], MissingColumnError),
        (pc.field("nowhere") == 1, InvalidInputError),
        ([("delay", "~", 1)], InvalidInputError),
        ([("delay", "=", None)], InvalidInputError),
        ([("origin", "in", "JFK")], InvalidInputError),
        ([("at", ">", "yesterday")], InvalidInputError),
        ([("delay",)], InvalidInputError),
        ([], InvalidInputError),
        ([[]], InvalidInputError),
    ],
    ids=str,
)
def test_what_cannot_be_evaluated_is_said_before_anything_is_read(
    flights: HudiTable, where: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        flights.base_files(where=where)


@pytest.mark.parametrize(
    ("text", "filter_"),
    [
        ("delay > 300", ("delay", ">", "300")),
        ("delay<=-1.5", ("delay", "<=", "-1.5")),
        ("origin in JFK, 'EWR'", ("origin", "in", ["JFK", "EWR"])),
        ("origin NOT  IN JFK", ("origin", "not in", ["JFK"])),
        ("delay is not null", ("delay", "is not null", "")),
        ("origin = 'is null'", ("origin", "=", "is null")),
        ("at >= 2024-01-01T00:00:00Z", ("at", ">=", "2024-01-01T00:00:00Z")),
    ],
)
def test_filters_as_people_write_them(text: str, filter_: Filter) -> None:
    assert parse_filter(text) == filter_


@pytest.mark.parametrize("text", ["", "delay", "delay >", "delay is null 3", "> 3"])
def test_what_is_no_filter(text: str) -> None:
    with pytest.raises(InvalidInputError, match="is no filter"):
        parse_filter(text)
