"""Readers of a merge-on-read table skip file slices by the statistics of base file and log files."""

from __future__ import annotations

import datetime as dt
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given

from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.table_compaction.log_compaction import LogCompactionSettings, compact_logs
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.files import BlockType, LogFileName, WrappedValue, block_rows, read_log_blocks
from airflow_provider.table.files.log_file import HeaderKey, encode_log_block
from airflow_provider.table.files.log_rows import avro_rows
from airflow_provider.table.metadata_table import ColumnStats, ValueType
from airflow_provider.table.metadata_table.keys import column_stats_key
from airflow_provider.table.metadata_table.reader import metadata_storage
from airflow_provider.table.metadata_table.writer import write_instant, write_log_file
from airflow_provider.table.reading import explain, select_slices
from airflow_provider.table.schema import arrow_to_avro
from airflow_provider.table.skipping import Where
from airflow_provider.table.skipping.statistics import Cases
from airflow_provider.table.storage import ByteRange
from airflow_provider.table.timeline.instant import Action, format_time, parse_time
from tests.unit.table.skipping.queries import SCHEMA, predicates, rows

APART: dict[str, Any] = {"small_file_limit": 0}
FORMATS = ("parquet", "avro")


def build(table: HudiTable, *indexes: str) -> HudiTable:
    """The table, with indexes that later writes maintain."""
    schedule_index(table, list(indexes))
    run_index(table)
    return HudiTable.open(table.location)


# --- no row is skipped ------------------------------------------------------------------------

IDS = st.integers(0, 8)
changes = st.one_of(
    st.tuples(st.just("upsert"), st.dictionaries(IDS, rows, min_size=1, max_size=3)),
    st.tuples(st.just("delete"), st.sets(IDS, min_size=1, max_size=2)),
    st.tuples(st.just("compact"), st.none()),
)
NOTHING: dict[str, Any] = dict.fromkeys(SCHEMA.names[1:])


@given(
    first=st.lists(rows, min_size=9, max_size=9),
    then=st.lists(st.tuples(changes, st.sampled_from(FORMATS)), min_size=1, max_size=4),
    asked=st.lists(predicates, min_size=1, max_size=12),
)
@example(  # the log file's bounds have no NaN, which is not less than anything
    first=[{**NOTHING, "x": 1.5}] * 9,
    then=[(("upsert", {0: {**NOTHING, "x": float("nan")}, 1: {**NOTHING, "x": 0.0}}), "avro")],
    asked=[~(pc.field("x") < 2.0)],
)
def test_no_row_is_skipped(
    first: list[dict[str, Any]], then: list[tuple[tuple[str, Any], str]], asked: list[Any]
) -> None:
    model = dict(enumerate(first))
    with tempfile.TemporaryDirectory() as folder:
        table = HudiTable.create(
            f"{folder}/t", name="t", schema=SCHEMA, record_key=["id"], table_type="merge_on_read"
        )
        for begin in (0, 3, 6):
            write(table, "bulk_insert", {number: model[number] for number in range(begin, begin + 3)}, APART)
        table = build(table, "files", "column_stats")
        for (operation, changed), log_block_format in then:
            settings = {**APART, "log_block_format": log_block_format}
            if operation == "compact":
                compact_logs(table, LogCompactionSettings(blocks=2))
            elif operation == "upsert":
                write(table, "upsert", changed, settings)
                model |= changed
            elif gone := {number: NOTHING for number in changed if number in model}:
                write(table, "delete", gone, settings)
                model = {number: row for number, row in model.items() if number not in gone}
        everything = pa.Table.from_pylist([{"id": number, **row} for number, row in model.items()], SCHEMA)
        table = HudiTable.open(table.location)
        for where in asked:
            found = snapshot(table, where=where).to_table()["id"].to_pylist()
            assert sorted(found) == sorted(everything.filter(where)["id"].to_pylist()), where


def write(table: HudiTable, operation: str, found: dict[int, Any], settings: dict[str, Any]) -> None:
    batch = pa.Table.from_pylist([{"id": number, **row} for number, row in found.items()], SCHEMA)
    ingest_arrow(HudiTable.open(table.location), batch, operation, **settings)


# --- what is skipped --------------------------------------------------------------------------

FLIGHTS = pa.schema({"id": pa.int64(), "delay": pa.int32(), "gate": pa.int32()})


@pytest.fixture
def flights(tmp_path: Path) -> HudiTable:
    """A table of two file groups: ids 0 to 2 with delays 0 to 2, and ids 10 to 12 with delays 10 to 12.

    The gates are 5.
    """
    table = HudiTable.create(
        str(tmp_path / "t"), name="t", schema=FLIGHTS, record_key=["id"], table_type="merge_on_read"
    )
    for begin in (0, 10):
        batch = [{"id": n, "delay": n, "gate": 5} for n in range(begin, begin + 3)]
        ingest_arrow(table, pa.Table.from_pylist(batch, FLIGHTS), "bulk_insert", **APART)
    return build(table, "files", "column_stats")


def upsert(table: HudiTable, *found: tuple[int, int | None, int | None], **settings: Any) -> HudiTable:
    batch = [dict(zip(FLIGHTS.names, row, strict=True)) for row in found]
    ingest_arrow(table, pa.Table.from_pylist(batch, FLIGHTS), "upsert", **APART, **settings)
    return HudiTable.open(table.location)


def delete(table: HudiTable, number: int) -> HudiTable:
    ingest_arrow(table, pa.table({"id": [number]}), "delete", **APART)
    return HudiTable.open(table.location)


def opened(table: HudiTable, where: Where) -> int:
    """The number of file slices that a query opens."""
    return len(select_slices(table, where=where)[1])


def ids(table: HudiTable, where: Where) -> list[int]:
    found: list[int] = snapshot(table, where=where).to_table()["id"].to_pylist()
    return sorted(found)


@pytest.mark.parametrize("log_block_format", FORMATS)
def test_a_slice_is_skipped_if_neither_base_file_nor_log_files_match(
    flights: HudiTable, log_block_format: str
) -> None:
    table = upsert(flights, (1, 100, 5), log_block_format=log_block_format)
    table = upsert(table, (2, 200, 5), log_block_format=log_block_format)
    assert (opened(table, [("delay", ">", 200)]), ids(table, [("delay", ">", 200)])) == (0, [])
    assert (opened(table, [("delay", "=", 11)]), ids(table, [("delay", "=", 11)])) == (1, [11])
    assert (opened(table, [("delay", "=", 100)]), ids(table, [("delay", "=", 100)])) == (1, [1])
    assert (opened(table, [("delay", "=", 200)]), ids(table, [("delay", "=", 200)])) == (1, [2])
    assert (opened(table, [("gate", "=", 5)])) == 2


def test_a_version_that_a_newer_one_replaces_opens_the_slice_and_is_no_row(flights: HudiTable) -> None:
    table = upsert(flights, (1, 100, 5))
    assert (opened(table, [("delay", "=", 1)]), ids(table, [("delay", "=", 1)])) == (1, [])


def test_log_files_that_only_delete_have_no_statistics_and_hinder_nothing(flights: HudiTable) -> None:
    table = delete(upsert(flights, (1, 100, 5)), 0)
    assert opened(table, [("delay", ">", 200)]) == 0
    assert opened(table, [("delay", "=", 11)]) == 1
    assert ids(table, [("delay", "<", 50)]) == [2, 10, 11, 12]


def test_a_log_file_whose_statistics_are_gone_is_read(flights: HudiTable) -> None:
    table = upsert(flights, (1, 100, 5))
    assert opened(table, [("delay", ">", 200)]) == 0
    forget(table, "delay", "gate")
    assert opened(table, [("delay", ">", 200)]) == 1


def test_a_column_without_statistics_of_the_log_file_skips_nothing(flights: HudiTable) -> None:
    table = upsert(flights, (1, 100, 5))
    forget(table, "delay")
    assert opened(table, [("delay", ">", 200)]) == 1
    assert opened(table, [("gate", ">", 200)]) == 0
    assert opened(table, [("delay", ">", 200), ("gate", "=", 6)]) == 0


def test_a_column_that_became_a_text_skips_no_older_file(flights: HudiTable) -> None:
    table = upsert(flights, (1, 100, 5))
    wider = pa.table({"id": [10], "delay": ["x"], "gate": pa.array([5], pa.int32())})
    ingest_arrow(table, wider, "upsert", **APART)
    table = HudiTable.open(table.location)
    assert opened(table, [("delay", "=", "100")]) == 2
    assert ids(table, [("delay", "=", "100")]) == [1]


def test_partial_updates_skip_nothing_because_a_row_has_values_of_several_files(flights: HudiTable) -> None:
    table = upsert(flights, (1, 100, None))
    where = [("delay", "=", 100), ("gate", "=", 5)]
    assert (opened(table, where), ids(table, where)) == (0, [])
    make_partial(table, "gate")
    assert (opened(table, where), ids(table, where)) == (1, [1])


def test_nothing_is_skipped_where_a_null_keeps_the_older_value(flights: HudiTable) -> None:
    table = upsert(flights, (1, 100, None))
    where = [("delay", "=", 100), ("gate", "=", 5)]
    assert (opened(table, where), ids(table, where)) == (0, [])
    with (Path(table.location) / ".hoodie" / "hoodie.properties").open("a") as properties:
        properties.write("\nhoodie.table.partial.update.mode=IGNORE_DEFAULTS\n")
    table = HudiTable.open(table.location)
    assert (opened(table, where), ids(table, where)) == (1, [1])


def test_explain_shows_which_slices_are_skipped(flights: HudiTable) -> None:
    table = delete(upsert(flights, (1, 100, 5), (10, 10, 6)), 2)
    where = [("gate", "=", 6)]
    told = explain(table, where)
    assert told["steps"] == [{"index": "column_stats", "considered": 2, "skipped": 1, "of": "file slices"}]
    _, [kept] = select_slices(table, where=where)
    sizes = {path: (Path(table.location) / path).stat().st_size for path in kept.paths}
    assert (told["files"], told["paths"], told["bytes"]) == (2, list(kept.paths), sum(sizes.values()))
    assert (told["files_in_table"], told["bytes_in_table"] > told["bytes"]) == (5, True)
    everything = explain(table)
    assert (everything["steps"], everything["files"]) == ([], 5)
    by_key = explain(build(table, "record_index"), [("id", "=", 10)])
    assert by_key["steps"] == [{"index": "record_index", "considered": 2, "skipped": 1, "of": "file slices"}]
    assert by_key["paths"] == list(kept.paths)


TEXT = ValueType.STRING, "StringWrapper"


@pytest.mark.parametrize(
    ("kind", "type_", "least", "largest", "is_known"),
    [
        (TEXT, pa.string(), "a", "퟿", True),
        (TEXT, pa.string(), "\U0001f600", "�", False),  # in Java the first is the smaller
        ((ValueType.BYTES, "BytesWrapper"), pa.binary(), b"\xff", b"\x01", False),
        ((ValueType.DOUBLE, "DoubleWrapper"), pa.float64(), 1.0, float("nan"), False),
        ((ValueType.DOUBLE, "DoubleWrapper"), pa.float64(), 1.0, 2.0, True),
    ],
)
def test_bounds_of_log_files_in_javas_order_are_not_used(
    kind: tuple[ValueType, str], type_: pa.DataType, least: Any, largest: Any, is_known: bool
) -> None:
    value_type, wrapper = kind
    ends = [WrappedValue(wrapper, each) for each in (least, largest)]
    stats = ColumnStats("log", "c", *ends, 2, 0, value_type=value_type)
    assert bool(Cases(pa.schema({"c": type_}), of_log_files=True).of({"c": stats}, ["c"])) is is_known


# --- log files that this package does not write -----------------------------------------------


def log_file(table: HudiTable) -> Path:
    (found,) = (path for path in Path(table.location).glob(".*.log.*") if LogFileName.parse(path.name))
    return found


def forget(table: HudiTable, *columns: str) -> None:
    """Take the statistics of columns of the only log file from the index, as if its writer had written
    none."""
    metadata, name = metadata_storage(table.storage), log_file(table).name
    newest = parse_time(table.timeline().newest_completion)
    times = [format_time(newest + dt.timedelta(milliseconds=step)) for step in (10, 11)]
    gone = dict.fromkeys(column_stats_key(column, "", name) for column in columns)
    groups = {path.name.split("_")[0] for path in (Path(metadata.root) / "column_stats").glob("col-stats-*")}
    stats = [write_log_file(metadata, "column_stats", each, times[0], gone) for each in sorted(groups)]
    write_instant(metadata, Action.DELTA_COMMIT, *times, "UPSERT_PREPPED", stats)


def make_partial(table: HudiTable, *left_out: str) -> None:
    """Make the only log file one of partial updates, as the JVM's ``MERGE INTO`` writes it."""
    path = log_file(table)
    (block,) = read_log_blocks(ByteRange.of_bytes(path.read_bytes(), path.name))
    part = block_rows(block).drop_columns(list(left_out))
    schema = arrow_to_avro(part.schema, "t")
    header = {HeaderKey.SCHEMA: schema, HeaderKey.IS_PARTIAL: "true"}
    content = avro_rows(part, schema)
    path.write_bytes(encode_log_block(BlockType.AVRO_DATA, content, instant=block.instant, header=header))
