from __future__ import annotations

import datetime
import json
from decimal import Decimal
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_provider.exceptions import CorruptTableError, IncompatibleSchemaError, UnsupportedTableError
from airflow_provider.table.files.base_file_reader import BaseFileFooter
from airflow_provider.table.schema.arrow_avro import (
    META_COLUMNS,
    arrow_to_avro,
    avro_to_arrow,
    conform,
    with_meta_columns,
    without_meta_columns,
)
from airflow_provider.table.schema.evolution import evolved
from airflow_provider.table.timeline.metadata import decode_commit_metadata
from tests.unit.table.arrow_data import schemas, tables
from tests.unit.table.conftest import JvmTables


@given(schemas())
def test_columns_survive_avro(schema: pa.Schema) -> None:
    text = arrow_to_avro(schema, "flights")
    assert avro_to_arrow(text).equals(schema, check_metadata=True)
    # Avro refuses a name that is defined twice, and defaults that do not fit.
    fastavro.parse_schema(json.loads(text))


def test_jvm_schemas_are_reproduced_letter_by_letter(jvm_tables: JvmTables) -> None:
    texts = set()
    for path in jvm_tables.base_files():
        texts.add(BaseFileFooter(pa.parquet.read_metadata(path)).avro_schema)
    for path, content in jvm_tables.avro_files():
        if path.name.endswith(("commit",)) and "metadata" not in path.parts:
            texts.add(decode_commit_metadata(content).extra_metadata["schema"])
    texts -= {None, ""}
    assert len(texts) >= 10
    for text in texts:
        table_name = json.loads(text)["namespace"].removeprefix("hoodie.")
        assert arrow_to_avro(avro_to_arrow(text), table_name) == text


def test_types_of_a_jvm_table(jvm_tables: JvmTables) -> None:
    path = next(jvm_tables.table("rs_cow_v8_simple").glob("10/*.parquet"))
    schema = avro_to_arrow(BaseFileFooter(pa.parquet.read_metadata(path)).avro_schema or "")
    assert schema.names[:5] == list(META_COLUMNS)
    assert schema.field("decimalField").type == pa.decimal128(10, 5)
    assert schema.field("timestampField").type == pa.timestamp("us", tz="UTC")
    assert schema.field("arrayField").type.value_type.names == ["arr_struct_f1", "arr_struct_f2"]
    assert (
        schema.field("structField").type.field("child_struct").type.field("child_field2").type == pa.bool_()
    )
    # Avro's schema describes the columns of the Parquet file.
    stored = pa.parquet.read_table(path, partitioning=None)
    assert conform(stored, schema).schema.equals(schema)


def test_types_without_an_avro_counterpart_become_wider() -> None:
    schema = pa.schema(
        {
            "tiny": pa.int8(),
            "short": pa.uint16(),
            "unsigned": pa.uint32(),
            "half": pa.float16(),
            "nanos": pa.timestamp("ns", tz="Europe/Paris"),
            "seconds": pa.timestamp("s"),
            "category": pa.dictionary(pa.int8(), pa.large_string()),
            "digest": pa.binary(16),
            "pair": pa.list_(pa.int64(), 2),
            "day": pa.date64(),
        }
    )
    stored = avro_to_arrow(arrow_to_avro(schema, "t"))
    assert stored.types == [
        pa.int32(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.timestamp("us", tz="UTC"),
        pa.timestamp("ms"),
        pa.string(),
        pa.binary(),
        pa.list_(pa.field("element", pa.int64())),
        pa.date32(),
    ]
    assert evolved(stored, schema) == (stored, ())


def test_record_name_is_made_of_letters() -> None:
    avro = json.loads(arrow_to_avro(pa.schema({"id": pa.int64()}), "hudi-v6.flights"))
    assert (avro["name"], avro["namespace"]) == ("hudi__v6__flights_record", "hoodie.hudi__v6__flights")


@pytest.mark.parametrize(
    "kind",
    [
        pa.uint64(),
        pa.time64("us"),
        pa.duration("s"),
        pa.decimal256(40, 2),
        pa.null(),
        pa.struct([]),
        pa.map_(pa.int32(), pa.string()),
    ],
)
def test_types_that_no_table_stores_are_named(kind: pa.DataType) -> None:
    nested = pa.struct([pa.field("inner", pa.list_(kind))])
    with pytest.raises(IncompatibleSchemaError, match=r"'outer\.inner' has type") as caught:
        arrow_to_avro(pa.schema({"outer": nested}), "t")
    assert caught.value.details["column"] == "outer.inner"


@pytest.mark.parametrize("name", ["dep delay", "1st", "größe", "", "a.b"])
def test_column_names_that_avro_cannot_have_are_named(name: str) -> None:
    with pytest.raises(IncompatibleSchemaError, match="letters, digits and underscores"):
        arrow_to_avro(pa.schema([(name, pa.int32())]), "t")


@pytest.mark.parametrize("name", ["id", "ID"])
def test_a_column_twice_is_refused(name: str) -> None:
    with pytest.raises(IncompatibleSchemaError, match=f"'{name}' comes more than once"):
        arrow_to_avro(pa.schema([("id", pa.int32()), (name, pa.int64())]), "t")


@pytest.mark.parametrize(
    "text", ["", "no json", '"string"', "[]", '{"type": "enum", "name": "x"}', '{"type":"record"}']
)
def test_what_is_no_record_schema_is_corrupt(text: str) -> None:
    with pytest.raises(CorruptTableError, match="not an Avro record schema"):
        avro_to_arrow(text)


def test_unions_of_types_are_refused() -> None:
    text = '{"type":"record","name":"r","fields":[{"name":"x","type":["null","int","string"]}]}'
    with pytest.raises(UnsupportedTableError, match="'x' is an Avro union"):
        avro_to_arrow(text)


def test_named_types_are_resolved() -> None:
    point = {"type": "record", "name": "point", "fields": [{"name": "x", "type": "double"}]}
    fields = [
        {"name": "from", "type": point},
        {"name": "to", "type": ["null", "point"]},
        {"name": "also", "type": "a.b.point"},
        {"name": "hash", "type": {"type": "fixed", "name": "md5", "size": 16}},
    ]
    schema = avro_to_arrow(json.dumps({"type": "record", "name": "r", "namespace": "a.b", "fields": fields}))
    struct = pa.struct([pa.field("x", pa.float64(), nullable=False)])
    assert schema.types == [struct, struct, struct, pa.binary(16)]
    assert [field.nullable for field in schema] == [False, True, False, False]


@given(schemas())
def test_meta_columns_come_and_go(schema: pa.Schema) -> None:
    whole = with_meta_columns(schema)
    assert whole.names[:5] == list(META_COLUMNS)
    assert without_meta_columns(whole).equals(schema)
    assert with_meta_columns(whole).equals(whole)
    assert evolved(schema, whole) == (schema, ())


FITS = [
    (pa.int8(), pa.int32()),
    (pa.uint8(), pa.int32()),
    (pa.int32(), pa.int64()),
    (pa.uint32(), pa.int64()),
    (pa.int16(), pa.float32()),
    (pa.int32(), pa.float64()),
    (pa.float32(), pa.float64()),
    (pa.int32(), pa.decimal128(10, 0)),
    (pa.int64(), pa.float32()),
    (pa.float64(), pa.decimal128(38, 10)),
    (pa.int64(), pa.string()),
    (pa.float32(), pa.string()),
    (pa.decimal128(10, 2), pa.string()),
    (pa.date32(), pa.string()),
    (pa.binary(), pa.string()),
    (pa.string(), pa.binary()),
    (pa.int64(), pa.decimal128(21, 2)),
    (pa.decimal128(10, 2), pa.decimal128(12, 3)),
    (pa.large_string(), pa.string()),
    (pa.string_view(), pa.string()),
    (pa.binary(4), pa.binary()),
    (pa.date64(), pa.date32()),
    (pa.null(), pa.string()),
    (pa.dictionary(pa.int32(), pa.int16()), pa.int64()),
    (pa.timestamp("s", tz="Asia/Tokyo"), pa.timestamp("us", tz="UTC")),
    (pa.timestamp("ns"), pa.timestamp("us")),
    (pa.large_list(pa.int32()), pa.list_(pa.int64())),
    (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int64())),
    (pa.struct([("b", pa.int32())]), pa.struct([("a", pa.string()), ("b", pa.int64())])),
]

REFUSED = [
    (pa.decimal128(10, 3), pa.int64()),
    (pa.string(), pa.date32()),
    (pa.string(), pa.decimal128(10, 2)),
    (pa.string(), pa.bool_()),
    (pa.binary(), pa.binary(4)),
    (pa.bool_(), pa.int32()),
    (pa.bool_(), pa.string()),
    (pa.int64(), pa.bool_()),
    (pa.int64(), pa.timestamp("us", tz="UTC")),
    (pa.timestamp("us", tz="UTC"), pa.int64()),
    (pa.timestamp("us", tz="UTC"), pa.string()),
    (pa.date32(), pa.int32()),
    (pa.int32(), pa.date32()),
    (pa.date32(), pa.timestamp("us")),
    (pa.timestamp("us"), pa.date32()),
    (pa.timestamp("us"), pa.timestamp("us", tz="UTC")),
    (pa.timestamp("us", tz="UTC"), pa.timestamp("us")),
    (pa.timestamp("us"), pa.timestamp("ms")),
    (pa.list_(pa.int32()), pa.int32()),
    (pa.int32(), pa.list_(pa.int32())),
    (pa.struct([("a", pa.int32())]), pa.map_(pa.string(), pa.int32())),
    (pa.map_(pa.int32(), pa.int32()), pa.map_(pa.string(), pa.int32())),
]


@pytest.mark.parametrize(("source", "target"), FITS, ids=str)
def test_narrower_types_are_written(source: pa.DataType, target: pa.DataType) -> None:
    data, table = pa.schema({"x": source}), pa.schema({"x": target})
    assert evolved(table, data, fills_missing=True) == (table, ())
    assert conform(data.empty_table(), table).schema.equals(table)


@pytest.mark.parametrize(("source", "target"), REFUSED, ids=str)
def test_types_that_would_lose_are_refused(source: pa.DataType, target: pa.DataType) -> None:
    with pytest.raises(IncompatibleSchemaError, match="column 'x' is") as caught:
        evolved(pa.schema({"x": target}), pa.schema({"x": source}))
    assert caught.value.details == {"column": "x", "found": str(source), "expected": str(target)}


@given(st.integers(-(2**63), 2**63 - 1), st.data())
def test_what_fits_keeps_its_value(number: int, data: st.DataObject) -> None:
    kinds = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(38, 8)]
    source = data.draw(
        st.sampled_from([kind for kind in kinds[:4] if abs(number) < 2 ** (kind.bit_width - 1)] or [kinds[3]])
    )
    target = data.draw(st.sampled_from(kinds[2:]))
    table = pa.table({"x": pa.array([number], source)})
    wanted, _ = evolved(pa.schema({"x": target}), table.schema)
    try:
        found = conform(table, wanted)
    except IncompatibleSchemaError:
        assert not pa.types.is_integer(wanted.field("x").type)
    else:
        assert found["x"].to_pylist() == [number]


def test_a_column_twice_in_the_data_is_refused() -> None:
    data = pa.schema([("id", pa.int64()), ("id", pa.int64())])
    with pytest.raises(IncompatibleSchemaError, match="more than once in the data"):
        evolved(pa.schema({"id": pa.int64()}), data)


def test_nulls_in_a_required_column_are_counted() -> None:
    table = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    with pytest.raises(IncompatibleSchemaError, match="2 nulls"):
        conform(pa.table({"id": [1, None, None]}), table)


_NOT_NULL = pa.field("a", pa.int64(), nullable=False)


@pytest.mark.parametrize(
    ("kind", "fits", "fits_not"),
    [
        (pa.struct([_NOT_NULL]), {"a": 1}, {"a": None}),
        (pa.list_(_NOT_NULL), [1], [1, None]),
        (pa.map_(pa.string(), _NOT_NULL), [("k", 1)], [("k", 1), ("l", None)]),
        (pa.struct({"in": pa.list_(pa.struct([_NOT_NULL]))}), {"in": [{"a": 1}]}, {"in": [{"a": None}]}),
    ],
    ids=str,
)
def test_nulls_inside_a_required_member_are_refused(kind: pa.DataType, fits: Any, fits_not: Any) -> None:
    table = pa.schema({"s": kind})
    data = pa.table({"s": pa.array([fits_not, fits, None], _all_nullable(kind))})
    assert conform(data.slice(1), table) == pa.table({"s": pa.array([fits, None], kind)}, table)
    with pytest.raises(IncompatibleSchemaError, match=r"column 's'.* must not be null, and is 1 times"):
        conform(data, table)


def _all_nullable(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(child.name, _all_nullable(child.type)) for child in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, pa.field("other", _all_nullable(kind.item_type)))
    return pa.list_(pa.field("other", _all_nullable(kind.value_type))) if pa.types.is_list(kind) else kind


def test_digits_that_do_not_fit_are_refused() -> None:
    moment = pa.array([1_000_000_001], pa.timestamp("ns"))
    table = pa.schema({"at": pa.timestamp("us")})
    assert evolved(table, pa.schema({"at": moment.type})) == (table, ())
    with pytest.raises(IncompatibleSchemaError, match=r"column 'at'.*would lose data"):
        conform(pa.table({"at": moment}), table)


@given(tables(), st.randoms(use_true_random=False))
def test_conforming_orders_and_drops_columns(table: pa.Table, random: Random) -> None:
    shuffled = table.column_names
    random.shuffle(shuffled)
    data = table.select(shuffled).append_column("_hoodie_commit_time", pa.nulls(table.num_rows, pa.string()))
    assert conform(data, table.schema).equals(table)


def test_conforming_keeps_values() -> None:
    data = pa.table(
        {
            "n": pa.array([1, None], pa.int16()),
            "price": pa.array([Decimal("1.50"), None]),
            "at": pa.array(
                [datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC), None], pa.timestamp("s", tz="UTC")
            ),
            "tags": pa.array([[{"b": "x"}], None]),
        }
    )
    schema = pa.schema(
        {
            "tags": pa.list_(pa.field("element", pa.struct([("a", pa.int32()), ("b", pa.string())]))),
            "at": pa.timestamp("us", tz="UTC"),
            "price": pa.decimal128(10, 4),
            "n": pa.int64(),
        }
    )
    assert evolved(schema, data.schema, fills_missing=True) == (schema, ())
    assert conform(data, schema).to_pylist() == [
        {
            "tags": [{"a": None, "b": "x"}],
            "at": datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC),
            "price": Decimal("1.5000"),
            "n": 1,
        },
        {"tags": None, "at": None, "price": None, "n": None},
    ]
    assert conform(data.to_batches()[0], schema).num_rows == 2


_FLAGS = pa.list_(pa.field("element", pa.bool_(), nullable=False))
_NAMED = pa.map_(pa.string(), pa.field("value", pa.bool_(), nullable=False))
NEVER_NULL = pa.struct([pa.field("flags", _FLAGS, nullable=False), pa.field("named", _NAMED, nullable=False)])


@given(tables(), st.integers(0, 3))
@example(
    pa.Table.from_pylist(
        [{"nothing": None}],
        schema=pa.schema({"nothing": pa.struct([pa.field("inner", NEVER_NULL, nullable=False)])}),
    ),
    0,
)
def test_what_parquet_names_otherwise_conforms(table: pa.Table, first: int) -> None:
    """This also holds if a member that must not be null has no parent."""
    file = pa.BufferOutputStream()
    pq.write_table(table, file, store_schema=False)
    given_back = pq.read_table(pa.BufferReader(file.getvalue())).slice(first)
    conformed = conform(given_back, table.schema)
    conformed.validate(full=True)
    assert conformed == table.slice(first)
