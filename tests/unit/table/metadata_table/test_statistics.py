"""The statistics of a base file: every type, with and without statistics in its footer."""

from __future__ import annotations

import datetime
import io
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.table.files.base_file_reader import read_base_file, read_footer
from airflow_provider.table.files.base_file_writer import BaseFileWriter
from airflow_provider.table.files.bloom_filter import BloomFilter
from airflow_provider.table.files.log_records import WrappedValue
from airflow_provider.table.metadata_table.index_records.statistics import (
    INDEXED_META_COLUMNS,
    column_stats,
    indexed_columns,
    partition_stats,
    record_locations,
    stored_bloom_filter,
    value_type,
)
from airflow_provider.table.metadata_table.records import ColumnStats, RecordLocation, RecordType, ValueType
from airflow_provider.table.storage.storage import Storage

_DAY = datetime.date(2024, 2, 3)
_MOMENT = datetime.datetime(2024, 2, 3, 4, 5, 6, 789_012)
_COLUMNS: dict[str, tuple[pa.DataType, list[Any], ValueType, str, Any, Any]] = {
    "bool": (pa.bool_(), [True, False], ValueType.BOOLEAN, "BooleanWrapper", False, True),
    "int": (pa.int32(), [5, -3, None], ValueType.INT, "IntWrapper", -3, 5),
    "short": (pa.int16(), [5, -3], ValueType.INT, "IntWrapper", -3, 5),
    "long": (pa.int64(), [2**40, -1], ValueType.LONG, "LongWrapper", -1, 2**40),
    "float": (pa.float32(), [0.5, -2.0, float("nan")], ValueType.FLOAT, "FloatWrapper", -2.0, 0.5),
    "double": (pa.float64(), [0.1, float("inf")], ValueType.DOUBLE, "DoubleWrapper", 0.1, float("inf")),
    "string": (pa.string(), ["ü", "a", ""], ValueType.STRING, "StringWrapper", "", "ü"),
    "category": (
        pa.dictionary(pa.int32(), pa.string()),
        ["b", "a"],
        ValueType.STRING,
        "StringWrapper",
        "a",
        "b",
    ),
    "bytes": (pa.binary(), [b"\xff", b"\0"], ValueType.BYTES, "BytesWrapper", b"\0", b"\xff"),
    "fixed": (pa.binary(2), [b"ab", b"aa"], ValueType.FIXED, "BytesWrapper", b"aa", b"ab"),
    "small_decimal": (
        pa.decimal128(9, 2),
        [Decimal("-1.28"), Decimal("1.28")],
        ValueType.DECIMAL,
        "BytesWrapper",
        b"\x80",
        b"\x00\x80",
    ),
    "large_decimal": (
        pa.decimal128(38, 3),
        [Decimal("-0.001"), Decimal(10) ** 30],
        ValueType.DECIMAL,
        "BytesWrapper",
        b"\xff",
        (10**33).to_bytes(14, "big"),
    ),
    "day": (pa.date32(), [_DAY], ValueType.DATE, "IntWrapper", 19_756, 19_756),
    "time": (
        pa.time64("us"),
        [datetime.time(0, 0, 1)],
        ValueType.TIME_MICROS,
        "LongWrapper",
        1_000_000,
        1_000_000,
    ),
    "millis": (
        pa.time32("ms"),
        [datetime.time(0, 0, 1)],
        ValueType.TIME_MILLIS,
        "IntWrapper",
        1_000,
        1_000,
    ),
    "moment": (
        pa.timestamp("us", tz="UTC"),
        [_MOMENT],
        ValueType.TIMESTAMP_MICROS,
        "LongWrapper",
        1_706_933_106_789_012,
        1_706_933_106_789_012,
    ),
    "local": (
        pa.timestamp("ms"),
        [_MOMENT.replace(microsecond=5_000)],
        ValueType.LOCAL_TIMESTAMP_MILLIS,
        "LongWrapper",
        1_706_933_106_005,
        1_706_933_106_005,
    ),
    "nothing": (pa.int64(), [None, None], ValueType.LONG, "LongWrapper", None, None),
    "no_number": (pa.float64(), [float("nan")], ValueType.DOUBLE, "DoubleWrapper", None, None),
}


def _file(data: pa.Table, **options: Any) -> pq.ParquetFile:
    sink = io.BytesIO()
    pq.write_table(data, sink, **options)
    return pq.ParquetFile(sink)


@pytest.mark.parametrize("with_statistics", [True, False])
@pytest.mark.parametrize("name", _COLUMNS)
def test_statistics_of_each_type(name: str, with_statistics: bool) -> None:
    data_type, values, kind, wrapper, low, high = _COLUMNS[name]
    column = pa.array(values, data_type.value_type if pa.types.is_dictionary(data_type) else data_type)
    file = _file(pa.table({name: column.cast(data_type)}), write_statistics=with_statistics, row_group_size=2)
    (stats,) = column_stats(file, "a file", [name, "a column that came later"])
    assert stats.value_type is kind
    assert (stats.file_name, stats.column_name) == ("a file", name)
    assert (stats.value_count, stats.null_count) == (len(values), values.count(None))
    assert stats.min_value == (None if low is None else WrappedValue(wrapper, low))
    assert stats.max_value == (None if high is None else WrappedValue(wrapper, high))
    assert stats.type_info == (
        f"{data_type.precision},{data_type.scale}" if kind is ValueType.DECIMAL else None
    )
    assert stats.total_size > 0
    assert stats.total_uncompressed_size > 0


def test_values_too_long_for_a_footer_are_read() -> None:
    long = "x" * 5_000
    file = _file(pa.table({"text": [long, "a", None]}))
    assert not file.metadata.row_group(0).column(0).statistics.has_min_max
    (stats,) = column_stats(file, "a file", ["text"])
    assert stats.min_value == WrappedValue("StringWrapper", "a")
    assert stats.max_value == WrappedValue("StringWrapper", long)
    assert stats.null_count == 1


def test_indexed_columns_are_those_with_an_order() -> None:
    fields = [pa.field(f"c{number}", pa.int64()) for number in range(40)]
    schema = pa.schema([pa.field("tags", pa.list_(pa.string())), *fields])
    assert indexed_columns(schema) == [*INDEXED_META_COLUMNS, *(f"c{number}" for number in range(32))]
    assert indexed_columns(schema, ["c39"]) == [*INDEXED_META_COLUMNS, "c39"]
    with pytest.raises(InvalidInputError, match="'c40' cannot be indexed, the table has: tags, c0"):
        indexed_columns(schema, ["c40"])
    with pytest.raises(InvalidInputError, match="'tags' is of type list"):
        indexed_columns(schema, ["tags"])
    assert value_type(pa.struct([("a", pa.int64())])) is None


def test_statistics_of_a_partition_are_those_of_all_its_files() -> None:
    files = [_file(pa.table({"n": [low, low + 2, None]})) for low in (10, 5, 7)]
    of_files = [stats for file in files for stats in column_stats(file, "a file", ["n"])]
    (stats,) = partition_stats("region=eu", of_files)
    assert isinstance(stats, ColumnStats)
    assert stats.record_type is RecordType.PARTITION_STATS
    assert (stats.file_name, stats.is_tight_bound) == ("region=eu", True)
    assert stats.min_value == WrappedValue("LongWrapper", 5)
    assert stats.max_value == WrappedValue("LongWrapper", 12)
    assert (stats.value_count, stats.null_count) == (9, 3)


def test_a_base_file_of_ours_gives_its_filter_and_its_keys(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    keys = pa.array(["k1", "k2", "k3"])
    file_id, instant = "07838327-b037-4532-a9df-3c5b05dd823d-0", "20240203040506789"
    with BaseFileWriter(
        storage,
        partition_path="region=eu",
        file_id=file_id,
        write_token="1-0-1",
        instant=instant,
        schema=pa.schema([("id", pa.string())]),
    ) as writer:
        writer.write(pa.table({"id": keys}), keys)
        written = writer.close()
    bloom = stored_bloom_filter(read_footer(storage, written.path), instant)
    assert bloom is not None
    assert bloom.instant == instant
    assert BloomFilter.from_footer(bloom.footer, bloom.type_code).might_contain(keys).all()

    column = read_base_file(storage, written.path, ["_hoodie_record_key"]).column(0)
    found = dict(record_locations(column, "region=eu", file_id, instant))
    assert found == dict.fromkeys(["k1", "k2", "k3"], RecordLocation.at("region=eu", file_id, instant))
