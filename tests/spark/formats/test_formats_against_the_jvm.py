"""The formats of this package agree with the JVM's classes, and Spark reads its files.

Spark has Hadoop's bloom filter, of which Hudi's filters are copies, and Hive's path escaping.
"""

from __future__ import annotations

import base64
import datetime
import io
import json
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from pyspark.sql import SparkSession

from airflow_provider.table.file_names import new_file_id
from airflow_provider.table.files.base_file_writer import BaseFileWriter
from airflow_provider.table.files.bloom_filter import DYNAMIC_V0, SIMPLE, BloomFilter
from airflow_provider.table.keys import escape_path_name, record_keys, unescape_path_name
from airflow_provider.table.properties import dump_properties, parse_properties
from airflow_provider.table.schema.arrow_avro import arrow_to_avro
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.metadata import decode, encode
from tests.unit.table.arrow_data import schemas
from tests.unit.table.conftest import JvmTables, jvm_tables

__all__ = ["jvm_tables"]  # a fixture, used by its name

RECORDS = {
    "HoodieCommitMetadata",
    "HoodieReplaceCommitMetadata",
    "HoodieRequestedReplaceMetadata",
    "HoodieRollbackPlan",
    "HoodieRollbackMetadata",
    "HoodieCleanerPlan",
    "HoodieCleanMetadata",
    "HoodieIndexPlan",
    "HoodieIndexCommitMetadata",
}

_RANDOM = random.Random(20240101)
_ALPHABET = [chr(code) for code in (*range(0x80), 0xE4, 0xFF, 0x3A9, 0x2028, 0xFFFD, 0x1F600)]


def _texts(count: int, longest: int = 24) -> list[str]:
    lengths = [_RANDOM.randint(1, longest) for _ in range(count)]
    return ["".join(_RANDOM.choices(_ALPHABET, k=length)) for length in lengths]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    shared = SparkSession.getActiveSession()
    session = (
        shared or SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    )
    yield session
    if shared is None:
        session.stop()


@pytest.fixture(scope="module")
def jvm(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm


def _written(jvm: Any, hadoop_filter: Any, keys: list[str]) -> bytes:
    for key in keys:
        hadoop_filter.add(jvm.org.apache.hadoop.util.bloom.Key(bytearray(key.encode())))
    out = jvm.java.io.ByteArrayOutputStream()
    hadoop_filter.write(jvm.java.io.DataOutputStream(out))
    return bytes(out.toByteArray())


def test_simple_bloom_filter_is_hadoops(jvm: Any) -> None:
    for entries, rate in [(1, 0.5), (100, 1e-3), (60_000, 1e-9)]:
        keys = _texts(200)
        ours = BloomFilter.build(pa.array(keys), type_code=SIMPLE, entries=entries, false_positives=rate)
        theirs = jvm.org.apache.hadoop.util.bloom.BloomFilter(ours.bits, ours.hashes, 1)
        assert base64.b64decode(ours.to_footer()[0]) == _written(jvm, theirs, keys)


def test_dynamic_bloom_filter_is_hadoops_until_it_is_full(jvm: Any) -> None:
    for count in (0, 1, 49, 50, 51, 100, 320):
        keys = _texts(count)
        ours = BloomFilter.build(
            pa.array(keys, pa.string()),
            type_code=DYNAMIC_V0,
            entries=50,
            max_entries=10_000,
            false_positives=1e-4,
        )
        theirs = jvm.org.apache.hadoop.util.bloom.DynamicBloomFilter(ours.bits, ours.hashes, 1, 50)
        assert base64.b64decode(ours.to_footer()[0]) == _written(jvm, theirs, keys)


def test_java_reads_our_properties_and_we_read_javas(jvm: Any) -> None:
    props = {
        "": "",
        " a ": " b ",
        "#": "!",
        "tab\t": "line\nfeed",
        **dict(zip(_texts(200), _texts(200), strict=True)),
    }
    java = jvm.java.util.Properties()
    java.load(jvm.java.io.ByteArrayInputStream(bytearray(dump_properties(props).encode())))
    assert {str(key): java.getProperty(key) for key in java.stringPropertyNames()} == props
    out = jvm.java.io.ByteArrayOutputStream()
    java.store(out, "written by Java")
    assert parse_properties(bytes(out.toByteArray()).decode("latin-1")) == props


@settings(max_examples=100)
@given(schema=schemas())
def test_java_parses_every_schema_of_ours(jvm: Any, schema: pa.Schema) -> None:
    avro = jvm.org.apache.avro.Schema.Parser().parse(arrow_to_avro(schema, "flights"))
    assert [field.name() for field in avro.getFields()] == schema.names


def test_java_reads_our_records_by_the_jvms_schemas(jvm: Any, jvm_tables: JvmTables) -> None:
    # Hudi's JVM side reads with the schema it was compiled with, so Avro has to resolve ours against it.
    def read(content: bytes, reader: Any) -> str:
        seekable = jvm.org.apache.avro.file.SeekableByteArrayInput(bytearray(content))
        opened = jvm.org.apache.avro.file.DataFileReader(
            seekable, jvm.org.apache.avro.generic.GenericDatumReader(None, reader)
        )
        return str(opened.next().toString())

    names = set()
    for _, content in jvm_tables.avro_files():
        written = fastavro.reader(io.BytesIO(content)).metadata["avro.schema"]
        name = json.loads(written)["name"]
        if name in names or name not in RECORDS:
            continue
        names.add(name)
        reader = jvm.org.apache.avro.Schema.Parser().parse(written)
        assert read(encode(name, decode(content)), reader) == read(content, reader)
    assert names == RECORDS


def test_paths_are_escaped_as_hive_does(jvm: Any) -> None:
    hive = jvm.org.apache.hadoop.hive.common.FileUtils
    for text in [*_ALPHABET, *_texts(300)]:
        escaped = escape_path_name(text)
        if "\0" not in text:  # Hudi escapes it, Hive leaves it
            assert escaped == hive.escapePathName(text)
        assert hive.unescapePathName(escaped) == text
        assert unescape_path_name(escaped) == text


def test_decimal_keys_read_as_in_java(jvm: Any) -> None:
    java = jvm.java.math.BigDecimal
    for scale in (0, 1, 6, 7, 12):
        values = [Decimal((0, (digit,), -scale)) for digit in range(10)] + [Decimal(-12345).scaleb(-scale)]
        keys = record_keys(pa.table({"id": pa.array(values, pa.decimal128(20, scale))}), ["id"]).to_pylist()
        unscaled = [int(value.scaleb(scale)) for value in values]
        # valueOf(...) comes back as a Python Decimal; the text of it is made on Java's side.
        assert keys == [str(jvm.java.lang.String.valueOf(java.valueOf(number, scale))) for number in unscaled]


def test_spark_reads_every_type_that_we_write(spark: SparkSession, tmp_path: Path) -> None:
    moment = datetime.datetime(2024, 2, 3, 4, 5, 6, 789_012)
    schema = pa.schema(
        {
            "i": pa.int32(),
            "l": pa.int64(),
            "f": pa.float32(),
            "d": pa.float64(),
            "b": pa.bool_(),
            "s": pa.string(),
            "raw": pa.binary(),
            "day": pa.date32(),
            "at": pa.timestamp("us", tz="UTC"),
            "at_millis": pa.timestamp("ms", tz="UTC"),
            "local": pa.timestamp("us"),
            "small": pa.decimal128(7, 2),
            "large": pa.decimal128(38, 18),
            "list": pa.list_(
                pa.field("element", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]))
            ),
            "map": pa.map_(pa.string(), pa.field("value", pa.struct([("x", pa.float64())]))),
            "struct": pa.struct([("a", pa.struct([("b", pa.decimal128(5, 1))]))]),
        }
    )
    row = {
        "i": -(2**31),
        "l": 2**63 - 1,
        "f": 1.5,
        "d": 0.1,
        "b": True,
        "s": "größe 😀",
        "raw": b"\0\xff",
        "day": moment.date(),
        "at": moment.replace(tzinfo=datetime.UTC),
        "at_millis": moment.replace(microsecond=5_000, tzinfo=datetime.UTC),
        "local": moment,
        "small": Decimal("-12345.67"),
        "large": Decimal("12345678901234567890.123456789012345678"),
        "list": [{"a": 1, "b": ["x", None]}, None, {"a": None, "b": []}],
        "map": [("k", {"x": 1.5}), ("none", None)],
        "struct": {"a": {"b": Decimal("1.5")}},
    }
    data = pa.Table.from_pylist([row, dict.fromkeys(schema.names)], schema=schema)
    storage = Storage(str(tmp_path))
    with BaseFileWriter(
        storage,
        partition_path="",
        file_id=new_file_id(),
        write_token="0-0-0",
        instant="20240101000000000",
        schema=schema,
    ) as writer:
        writer.write(data, pa.array(["a", "b"]))
        path = writer.close().path
    frame = spark.read.parquet(f"{tmp_path}/{path}")
    assert dict(frame.dtypes)["local"] == "timestamp_ntz"
    assert [row["_hoodie_record_key"] for row in frame.collect()] == ["a", "b"]
    assert frame.select(schema.names).toArrow().cast(schema).to_pylist() == data.to_pylist()
