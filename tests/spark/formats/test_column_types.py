"""Every column type, through every reader."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.spark.lake import SparkLake

MOMENT = datetime.datetime(2013, 1, 31, 23, 59, 59, 999_999, tzinfo=datetime.UTC)

TYPES: dict[str, tuple[pa.DataType, Any]] = {
    "flag": (pa.bool_(), True),
    "small": (pa.int32(), -(2**31)),
    "large": (pa.int64(), 2**63 - 1),
    "single": (pa.float32(), 0.5),
    "double": (pa.float64(), 1e300),
    "price": (pa.decimal128(12, 3), Decimal("-123456789.001")),
    "huge": (pa.decimal128(38, 0), Decimal(10**38 - 1)),
    "text": (pa.string(), "Zürich 東京 \U0001f600 \n'\"\\"),
    "raw": (pa.binary(), b"\x00\xff"),
    "day": (pa.date32(), datetime.date(1900, 2, 28)),
    "at": (pa.timestamp("us", tz="UTC"), MOMENT),
    "coarse": (pa.timestamp("ms", tz="UTC"), MOMENT.replace(microsecond=1000)),
    "point": (
        pa.struct([("x", pa.float64()), ("inner", pa.struct([("when", pa.timestamp("us", tz="UTC"))]))]),
        {"x": 1.5, "inner": {"when": MOMENT}},
    ),
    "tags": (pa.list_(pa.field("element", pa.string())), ["a", None, ""]),
    "deep": (
        pa.list_(pa.field("element", pa.struct([("n", pa.int32()), ("l", pa.list_(pa.int64()))]))),
        [{"n": 1, "l": [1, None]}, {"n": None, "l": None}, None],
    ),
    "counts": (pa.map_(pa.string(), pa.int64()), [("k", 1), ("none", None)]),
}
SCHEMA = pa.schema({"id": pa.int64()} | {name: kind for name, (kind, _) in TYPES.items()})

FULL = {name: value for name, (_, value) in TYPES.items()}
NULLS: dict[str, Any] = dict.fromkeys(TYPES)


def test_every_type_and_null(lake: SparkLake) -> None:
    table = lake.create(SCHEMA)
    rows = [{"id": 1} | FULL, {"id": 2} | NULLS]
    table.ingest("bulk_insert", pa.Table.from_pylist(rows, SCHEMA))
    table.check(rows)
    # Once more through a merge, which copies one row and replaces the other.
    table.ingest("upsert", pa.Table.from_pylist([{"id": 2} | FULL, {"id": 3} | NULLS], SCHEMA))
    table.check([{"id": 1} | FULL, {"id": 2} | FULL, {"id": 3} | NULLS])


def test_local_timestamps(lake: SparkLake) -> None:
    # hudi-rs 0.5.0 panics on these types, so the test uses only this package and Spark.
    schema = pa.schema({"id": pa.int64(), "local": pa.timestamp("us"), "coarse": pa.timestamp("ms")})
    table = lake.create(schema)
    naive = MOMENT.replace(tzinfo=None)
    rows = [
        {"id": 1, "local": naive, "coarse": naive.replace(microsecond=0)},
        {"id": 2, "local": None, "coarse": None},
    ]
    table.ingest("upsert", pa.Table.from_pylist(rows, schema))
    table.ingest("upsert", pa.Table.from_pylist(rows[1:], schema))
    assert table.rows() == rows
    assert table.spark_rows() == rows


def test_the_sessions_time_zone_does_not_matter(lake: SparkLake) -> None:
    schema = pa.schema(
        {"at": pa.timestamp("us", tz="UTC"), "part": pa.timestamp("us", tz="UTC"), "n": pa.int64()}
    )
    table = lake.create(schema, record_key=["at"], partition_by=["part"])
    rows = [{"at": MOMENT, "part": MOMENT, "n": 1}]
    table.ingest("upsert", pa.Table.from_pylist(rows, schema))
    lake.spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        result = table.ingest("upsert", pa.Table.from_pylist([rows[0] | {"n": 2}], schema))
        assert table.spark_rows() == [rows[0] | {"n": 2}]
    finally:
        lake.spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert (result["rows_updated"], result["rows_inserted"]) == (1, 0)
    assert table.rows() == [rows[0] | {"n": 2}]


def test_narrower_columns_and_missing_ones(lake: SparkLake) -> None:
    schema = pa.schema(
        {
            "id": pa.int64(),
            "f": pa.float64(),
            "d": pa.decimal128(10, 2),
            "k": pa.decimal128(8, 3),
            "t": pa.string(),
        }
    )
    table = lake.create(schema, record_key=["id", "k"], partition_by=["d"])
    narrow = pa.schema({"id": pa.int32(), "f": pa.float32(), "d": pa.decimal128(5, 1), "k": pa.int16()})
    rows = [{"id": 1, "f": 0.5, "d": Decimal("1.5"), "k": 7}]
    table.ingest("upsert", pa.Table.from_pylist(rows, narrow), set_null_for_missing_columns=True)
    wide = [{"id": 1, "f": 0.25, "d": Decimal("1.50"), "k": Decimal("7.000"), "t": "x"}]
    # Key and folder name come from the table's types, so this is the same record.
    assert table.ingest("upsert", pa.Table.from_pylist(wide, schema))["rows_updated"] == 1
    second = pa.Table.from_pylist([rows[0] | {"id": 2}], narrow)
    table.ingest("upsert", second, set_null_for_missing_columns=True)
    table.check([wide[0], {"id": 2, "f": 0.5, "d": Decimal("1.50"), "k": Decimal("7.000"), "t": None}])


def test_hudis_columns_in_the_source_are_ignored(lake: SparkLake) -> None:
    schema = pa.schema({"id": pa.int64(), "n": pa.int64()})
    table = lake.create(schema)
    table.ingest("insert", [{"id": 1, "n": 1}])
    (file,) = table.table.view().base_files("")
    copy = lake.create(schema)
    copy.load("insert", f"{table.location}/{file.path}")
    copy.check([{"id": 1, "n": 1}])
