"""Keys of all types, and partition values that look like other things."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.table import snapshot
from airflow_provider.table.keys import partition_path, partition_values, record_keys
from tests.ingestion_contract.lake import KIB, Lake

KEYS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.string(), ["a", "a,b:1", "ä/ö", "%41", "__null__", "\U0001f600", " "]),
    (pa.int32(), [0, -1, 2**31 - 1]),
    (pa.int64(), [0, -(2**63), 2**63 - 1]),
    (pa.bool_(), [True, False]),
    (pa.date32(), [datetime.date(1969, 12, 31), datetime.date(2024, 2, 29)]),
    (
        pa.timestamp("us", tz="UTC"),
        [
            datetime.datetime(1969, 1, 1, tzinfo=datetime.UTC),
            datetime.datetime(2024, 1, 1, 1, 1, 1, 7, datetime.UTC),
        ],
    ),
    (pa.timestamp("us"), [datetime.datetime(1969, 1, 1), datetime.datetime(2024, 1, 1, 1, 1, 1, 7)]),
    (pa.decimal128(10, 3), [Decimal("-1.500"), Decimal("0.000"), Decimal("1234567.891")]),
]


@pytest.mark.parametrize(
    ("kind", "values"), KEYS, ids=lambda found: str(found) if isinstance(found, pa.DataType) else ""
)
@pytest.mark.parametrize("several", [False, True], ids=["one column", "two columns"])
def test_keys_of_every_type(lake: Lake, kind: pa.DataType, values: list[Any], several: bool) -> None:
    schema = pa.schema({"k": kind, "other": pa.string(), "n": pa.int64()})
    if several:
        values = [value for value in values if value != "__null__"]
    table = lake.create(schema, record_key=["k", "other"] if several else ["k"])
    rows = pa.Table.from_pylist([{"k": value, "other": "o", "n": 0} for value in values], schema)
    # The partition has two file groups, so that a write looks keys up and does not only merge.
    small = {"target_file_size": 8 * KIB, "small_file_limit": 0}
    table.ingest("bulk_insert", rows.slice(0, 1), **small)
    table.ingest("bulk_insert", rows.slice(1), **small)
    stored = snapshot(table.table, meta_columns=True).to_table()
    assert set(stored["_hoodie_record_key"].to_pylist()) == set(
        record_keys(rows, table.table.config).to_pylist()
    )
    result = table.ingest("upsert", rows.set_column(2, "n", pa.array([1] * len(values))), **small)
    assert (result["rows_updated"], result["rows_inserted"]) == (len(values), 0)
    assert table.ingest("delete", rows.slice(0, 1), **small)["rows_deleted"] == 1
    assert len(table.rows()) == len(values) - 1


NASTY = [
    "a/b",
    "..",
    ".",
    "a%2Fb",
    "%",
    "x=y",
    "Zürich",
    "東京\U0001f600",
    " leading and trailing ",
    "{a,b}[c]*?",
    "\\",
    "a:b#c\"d'",
    "tab\tnewline\n",
    "__HIVE_DEFAULT_PARTITION__",
    ".hoodie",
    "",
    None,
]


@pytest.mark.parametrize("hive_style", [True, False])
def test_partition_values_that_are_no_folder_names(lake: Lake, hive_style: bool) -> None:
    schema = pa.schema({"id": pa.int64(), "part": pa.string(), "n": pa.int64()})
    table = lake.create(schema, partition_by=["part"], hive_style=hive_style)
    rows = [{"id": n, "part": value, "n": 0} for n, value in enumerate(NASTY)]
    result = table.ingest("upsert", rows)
    config = table.table.config
    assert result["partitions"] == sorted({partition_path([value], config) for value in NASTY})
    assert {partition_values(path, config)[0] for path in result["partitions"]} == {
        value or None for value in NASTY
    }
    updated = [row | {"n": 1} for row in rows]
    assert table.ingest("upsert", updated)["rows_updated"] == len(NASTY)
    table.check(updated)
    gone = [row for row in updated if row["part"] in ("..", "%")]
    table.ingest("delete", gone)
    table.check([row for row in updated if row not in gone])


@pytest.mark.parametrize(
    ("kind", "value", "folder"),
    [
        (pa.int64(), 7, "p=7"),
        (pa.bool_(), True, "p=true"),
        (pa.date32(), datetime.date(2024, 2, 29), "p=2024-02-29"),
        (pa.decimal128(6, 2), Decimal("1.50"), "p=1.50"),
        (
            pa.timestamp("us", tz="UTC"),
            datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC),
            "p=1000000",
        ),
    ],
    ids=str,
)
def test_partition_values_of_every_type(lake: Lake, kind: pa.DataType, value: Any, folder: str) -> None:
    schema = pa.schema({"id": pa.int64(), "p": kind})
    table = lake.create(schema, partition_by=["p"])
    rows = [{"id": 1, "p": value}, {"id": 2, "p": None}]
    table.ingest("insert", rows)
    assert set(table.files()) == {folder, "p=__HIVE_DEFAULT_PARTITION__"}
    table.ingest("insert_overwrite", [{"id": 3, "p": value}])
    table.check([{"id": 3, "p": value}, {"id": 2, "p": None}])
