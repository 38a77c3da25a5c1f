import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.table.schema.arrow_avro import arrow_to_avro
from airflow_provider.table.schema.column_types import to_schema, type_name

NAMES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "decimal(10,2)": pa.decimal128(10, 2),
    "decimal(38,38)": pa.decimal128(38, 38),
    "array<string>": pa.list_(pa.string()),
    "map<string,array<bigint>>": pa.map_(pa.string(), pa.list_(pa.int64())),
    "struct<a:int,b:struct<c:decimal(5,0),d:array<date>>>": pa.struct(
        [("a", pa.int32()), ("b", pa.struct([("c", pa.decimal128(5, 0)), ("d", pa.list_(pa.date32()))]))]
    ),
}


@pytest.mark.parametrize(("name", "expected"), NAMES.items())
def test_a_type_name_reads_as_its_arrow_type_and_writes_back_the_same(name, expected):
    assert to_schema({"column": name}) == pa.schema([("column", expected)])
    assert type_name(expected) == name


def _containers(inner):
    fields = st.lists(
        st.tuples(st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True), inner),
        min_size=1,
        max_size=3,
        unique_by=lambda f: f[0],
    )
    return st.one_of(
        inner.map(pa.list_),
        inner.map(lambda item: pa.map_(pa.string(), item)),
        fields.map(pa.struct),
    )


_simple = st.sampled_from([NAMES[name] for name in NAMES if "<" not in name])


@given(st.recursive(_simple, _containers, max_leaves=8))
def test_every_nested_type_survives_writing_and_reading(data_type):
    assert to_schema({"column": type_name(data_type)}).field("column").type == data_type


@pytest.mark.parametrize(
    ("spelled", "expected"),
    [
        (" ARRAY < Struct< A : Int , `odd name`: STRING > > ", "array<struct<A:int,odd name:string>>"),
        ("decimal", "decimal(10,0)"),
        ("numeric(7)", "decimal(7,0)"),
        ("integer", "int"),
        ("long", "bigint"),
        ("timestamp_ltz", "timestamp"),
        ("struct<a int, b string>", "struct<a:int,b:string>"),
    ],
)
def test_spellings_of_spark_and_hive_are_taken(spelled, expected):
    assert type_name(to_schema({"column": spelled}).field("column").type) == expected


def test_ddl_avro_and_arrow_say_the_same_as_a_dict():
    expected = to_schema({"id": "bigint not null", "name": "string", "at": "timestamp"})
    assert [field.nullable for field in expected] == [False, True, True]
    assert to_schema("id bigint NOT NULL, `name` string, at timestamp") == expected
    assert to_schema(arrow_to_avro(expected, "flights")) == expected
    assert to_schema(expected) is expected


@pytest.mark.parametrize(
    ("given_schema", "message"),
    [
        ({"a": "tinyint"}, "column 'a': 'tinyint': type 'tinyint' is not known; known: boolean"),
        ({"a": "decimal(39,2)"}, "precision must be 1 to 38"),
        ({"a": "decimal(4,5)"}, "scale 0 to precision"),
        ({"a": "decimal(x)"}, "expected a number, found 'x'"),
        ({"a": "array<int"}, "it ends too early"),
        ({"a": "array<int>>"}, "unexpected '>'"),
        ({"a": "map<int,int>"}, "keys of a map must be of type string"),
        ({"a": "struct<>"}, "expected a name, found '>'"),
        ({"a": "int; drop table"}, "unexpected ';'"),
        ({"a": ""}, "it ends too early"),
        ({"a": 7}, "type must be text such as 'bigint', not 7"),
        ({"a": "int", "A": "int"}, "column 'A' twice"),
        ({}, "schema has no column"),
        ("", "schema has no column"),
        ("a int,", "a column is missing at the end"),
        ("a int b int", "expected ',', found 'b'"),
        ("{not json", "neither a list of columns nor JSON"),
        ('{"type": "string"}', "Avro schema must be a record, not 'string'"),
        (
            json.dumps({"type": "record", "name": "r", "fields": [{"name": "a"}]}),
            "Avro schema cannot be used",
        ),
    ],
)
def test_what_cannot_be_a_schema_is_refused_and_says_why(given_schema, message):
    with pytest.raises(InvalidInputError) as raised:
        to_schema(given_schema)
    assert message in str(raised.value)


def test_an_arrow_type_without_a_name_is_refused():
    with pytest.raises(InvalidInputError, match="has no Spark or Hive name"):
        type_name(pa.duration("s"))
