"""Sources of text: their columns take their types from the table."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from tests.spark.lake import SparkLake

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "day": pa.date32(),
        "price": pa.decimal128(8, 2),
        "note": pa.string(),
        "at": pa.timestamp("us", tz="UTC"),
    }
)
ROWS = [
    {
        "id": 1,
        "day": datetime.date(2013, 1, 2),
        "price": Decimal("1.50"),
        "note": "a, b",
        "at": datetime.datetime(2013, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
    },
    {"id": 2, "day": None, "price": None, "note": None, "at": None},
]


def test_csv(lake: SparkLake, tmp_path: Path) -> None:
    source = tmp_path / "rows.csv"
    source.write_text('note,id,price,day,at\n"a, b",1,1.5,2013-01-02,2013-01-02T03:04:05Z\n,2,,,\n')
    table = lake.create(SCHEMA)
    table.load("upsert", source, source_format="csv", source_options={"header": "true"})
    table.check(ROWS)


def test_csv_with_a_word_for_null(lake: SparkLake, tmp_path: Path) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id,price\n2,NA\n")
    table = lake.create(SCHEMA)
    options = {"header": "true", "nullValue": "NA"}
    table.load(
        "upsert", source, source_format="csv", source_options=options, set_null_for_missing_columns=True
    )
    table.check([ROWS[1]])


def test_json(lake: SparkLake, tmp_path: Path) -> None:
    source = tmp_path / "rows.json"
    rows = [
        {"id": 1, "day": "2013-01-02", "price": 1.5, "note": "a, b", "at": "2013-01-02T03:04:05Z"},
        {"id": 2},
    ]
    source.write_text("\n".join(map(json.dumps, rows)))
    table = lake.create(SCHEMA)
    table.load("upsert", source, source_format="json")
    table.check(ROWS)
