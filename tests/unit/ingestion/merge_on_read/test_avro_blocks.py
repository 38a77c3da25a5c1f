"""Log files with Avro blocks (``hoodie.logfile.data.block.format=avro``), which all readers show."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.services.table_compaction.log_compaction import LogCompactionSettings, compact_logs
from airflow_provider.services.table_compaction.table_compaction import compact_table
from airflow_provider.services.table_options import change_options
from airflow_provider.table.files import BlockType
from airflow_provider.table.reading import file_slices
from airflow_provider.table.reading.log_merge import SliceReader
from tests.ingestion_contract.lake import Lake, LakeTable
from tests.ingestion_contract.merge_on_read import operations_one_after_the_other
from tests.unit.ingestion.merge_on_read.three_file_groups import ALWAYS, APART, KEPT, make, row
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild

FORMAT = "hoodie.logfile.data.block.format"
AVRO = {"hudi_options": {FORMAT: "avro"}}
OLD = [row(n, "old") for n in range(5)]


@pytest.fixture
def table(lake: Lake) -> LakeTable:
    made = make(lake, **AVRO)
    made.ingest("bulk_insert", OLD)
    return made


def blocks(table: LakeTable) -> list[BlockType]:
    """The types of all log blocks that readers merge."""
    reader = SliceReader.of(table.table, table.table.view())
    return [each.block_type for found in file_slices(table.table) for each in reader.blocks(found)]


@pytest.mark.parametrize("seed", range(4))
def test_operations_one_after_the_other(lake: Lake, seed: int) -> None:
    operations_one_after_the_other(lake, seed, steps=14, log_block_format="avro")


def test_a_load_and_a_log_compaction_write_the_tables_format(table: LakeTable) -> None:
    table.ingest("upsert", [row(1, "one")], **APART)
    table.ingest("upsert", [row(2, "two")], **APART)
    table.ingest("delete", [row(3, "")])
    wanted = [OLD[0], row(1, "one"), row(2, "two"), OLD[4]]
    assert blocks(table) == [BlockType.AVRO_DATA, BlockType.AVRO_DATA, BlockType.DELETE]
    table.check_now(wanted)
    assert compact_logs(table.table, LogCompactionSettings(blocks=2))
    assert blocks(table) == [BlockType.AVRO_DATA, BlockType.DELETE]
    table.check_now(wanted)
    assert compact_table(table.table, ALWAYS)
    table.check_now(wanted)


def test_a_load_may_have_its_own_format_and_a_file_group_both(lake: Lake, table: LakeTable) -> None:
    table.ingest("upsert", [row(1, "one")], **APART)
    table.ingest("upsert", [row(1, "two"), row(2, "two")], log_block_format="parquet", **APART)
    change_options(table.table, {}, unset=[FORMAT])
    table.ingest("upsert", [row(2, "three")], **APART)
    table.ingest("upsert", [row(4, "four")], log_block_format="avro", **APART)
    avro, parquet = BlockType.AVRO_DATA, BlockType.PARQUET_DATA
    assert blocks(table) == [avro, parquet, parquet, avro]
    table.check_now([OLD[0], row(1, "two"), row(2, "three"), OLD[3], row(4, "four")])


def test_another_format_is_refused_by_its_name(lake: Lake, table: LakeTable) -> None:
    with pytest.raises(InvalidInputError, match=f"{FORMAT} must be: `parquet` or `avro`, not 'hfile'"):
        make(lake, hudi_options={FORMAT: "hfile"})
    with pytest.raises(InvalidInputError, match="log_block_format must be parquet or avro, not 'hfile'"):
        table.ingest("upsert", [row(1, "new")], log_block_format="hfile")
    table.check_now(OLD)


def test_the_indexes_say_what_the_blocks_say(table: LakeTable) -> None:
    schedule_index(table.table, list(KEPT))
    run_index(table.table)
    table.ingest("upsert", [row(1, "zzz"), row(7, "yyy")], **APART)
    table.ingest("delete", [row(2, "")])
    assert_indexes_equal_a_rebuild(table.table, KEPT)


# --- every type -------------------------------------------------------------------------------

UTC = datetime.UTC
LAST_DAY, LAST_MOMENT = datetime.date.max, datetime.datetime.max
TYPES: list[tuple[pa.DataType, Any]] = [
    (pa.bool_(), True),
    (pa.int32(), -(2**31)),
    (pa.int64(), 2**63 - 1),
    (pa.float32(), float("-inf")),
    (pa.float64(), 0.1),
    (pa.string(), "Zürich \U0001f600"),
    (pa.binary(), b"\x00\xff"),
    (pa.date32(), LAST_DAY),
    (pa.timestamp("us", "UTC"), datetime.datetime(1582, 1, 1, 1, 2, 3, 4, UTC)),
    (pa.timestamp("ms", "UTC"), datetime.datetime(1969, 12, 31, 23, tzinfo=UTC)),
    (pa.timestamp("us"), LAST_MOMENT),
    (pa.timestamp("ms"), datetime.datetime(2024, 2, 29, 1, 2, 3)),
    (pa.decimal128(5, 2), Decimal("-123.45")),
    (pa.decimal128(38, 10), Decimal(f"-{'9' * 28}.{'9' * 10}")),
]


@pytest.mark.parametrize(("kind", "value"), TYPES, ids=str)
def test_a_value_of_each_type_in_each_place(lake: Lake, kind: pa.DataType, value: Any) -> None:
    places: dict[str, tuple[pa.DataType, Any]] = {
        "plain": (kind, value),
        "inside": (pa.struct([("of_it", kind)]), {"of_it": value}),
        "several": (pa.list_(kind), [value, None]),
        "by_name": (pa.map_(pa.string(), kind), [("x", value), ("y", None)]),
    }
    schema = pa.schema({"id": pa.int64()} | {name: inner for name, (inner, _) in places.items()})
    found = {"id": 1} | {name: each for name, (_, each) in places.items()}
    nothing = [{"id": n} | dict.fromkeys(places) for n in range(3)]
    table = lake.create(schema, table_type="merge_on_read", **AVRO)
    table.ingest("bulk_insert", nothing)
    table.ingest("upsert", [found, nothing[2]], **APART)
    assert blocks(table) == [BlockType.AVRO_DATA]
    wanted = [nothing[0], found, nothing[2]]
    assert table.rows() == wanted
    # hudi-rs takes the zones +00:00 and UTC of timestamps in nested columns for two types. A column of
    # timestamps without a zone it cannot read at all.
    if not pa.types.is_timestamp(kind):
        table.check_now(wanted)
    compact_table(table.table, ALWAYS)
    assert table.rows() == wanted


@pytest.mark.parametrize("unit", ["ms", "us"])
def test_hudi_rs_reads_timestamps_that_are_no_part_of_another_column(lake: Lake, unit: str) -> None:
    table = lake.create(
        pa.schema({"id": pa.int64(), "at": pa.timestamp(unit, "UTC")}), table_type="merge_on_read", **AVRO
    )
    moments = [datetime.datetime(year, 1, 2, 3, 4, 5, 6000, UTC) for year in (1582, 1969, 2024)]
    table.ingest("bulk_insert", [{"id": n, "at": None} for n in range(4)])
    changed = [{"id": n, "at": moment} for n, moment in enumerate(moments)]
    table.ingest("upsert", changed, **APART)
    assert blocks(table) == [BlockType.AVRO_DATA]
    table.check_now([*changed, {"id": 3, "at": None}])
