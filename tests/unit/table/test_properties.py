from __future__ import annotations

import zlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_provider.exceptions import CorruptTableError, NotATableError, UnsupportedTableError
from airflow_provider.table.keys import partition_values
from airflow_provider.table.properties import (
    TableConfig,
    dump_properties,
    parse_properties,
    table_checksum,
)
from tests.unit.table.conftest import JvmTables

NOMETA = "rs_cow_v9_txns_simple_nometa"

any_text = st.text(st.characters(exclude_categories=["Cs"]))


def test_what_java_writes_is_read() -> None:
    # The output of java.util.Properties.store for these pairs, and other forms that load accepts.
    text = (
        "#a comment\n! another\n\n"
        "with\\ space=\\ leading and trailing \n"
        "colon\\:equals\\=hash\\#bang\\!=a\\=b\\:c\n"
        "controls=\\t\\n\\r\\f\\\\\n"
        "unicode=\\u00FC\\uD83D\\uDE00\n"
        "  indented : value\n"
        "spaced   value with spaces\n"
        "continued=one \\\n    two\\\n    three\n"
        "empty=\nalone\n"
        "even\\\\\\\\=x\n"
        "again=1\nagain=2"
    )
    assert parse_properties(text) == {
        "with space": " leading and trailing ",
        "colon:equals=hash#bang!": "a=b:c",
        "controls": "\t\n\r\f\\",
        "unicode": "ü😀",
        "indented": "value",
        "spaced": "value with spaces",
        "continued": "one twothree",
        "empty": "",
        "alone": "",
        "even\\\\": "x",
        "again": "2",
    }


@given(st.dictionaries(any_text, any_text, max_size=5))
@example({"": ""})
@example({"\\": "\\", "a\\": "b\\\\", " ": "  ", "\x0b\x85\u2028": "\x0b\x85\u2028", "#": "!", "ü": "😀"})
def test_any_text_survives_writing_and_reading(props: dict[str, str]) -> None:
    text = dump_properties(props)
    assert text.isascii()
    assert parse_properties(text) == props


def test_jvm_properties_survive_writing_and_reading(jvm_tables: JvmTables) -> None:
    for path in jvm_tables.properties_files():
        props = parse_properties(path.read_text())
        assert "hoodie.table.name" in props, path
        assert parse_properties(dump_properties(props)) == props, path


def test_checksum_is_that_of_the_jvm_in_every_table(jvm_tables: JvmTables) -> None:
    tables = [parse_properties(path.read_text()) for path in jvm_tables.properties_files()]
    assert len(tables) >= 9
    for props in tables:
        checksum = table_checksum(props.get("hoodie.database.name", ""), props["hoodie.table.name"])
        assert str(checksum) == props["hoodie.table.checksum"], props["hoodie.table.name"]


def test_config_of_a_jvm_table(jvm_tables: JvmTables) -> None:
    props = parse_properties((jvm_tables.table(NOMETA) / ".hoodie/hoodie.properties").read_text())
    config = TableConfig.from_properties(props)
    assert config.name == "v9_txns_cow_simple_nometa"
    assert config.database == "default"
    assert (config.version, config.layout) == (9, 2)
    assert config.record_key_fields == ("txn_id",)
    assert config.partition_fields == ("region",)
    assert config.ordering_fields == ("txn_ts",)
    assert (config.hive_style, config.url_encode) == (True, False)
    assert config.timezone == "LOCAL"
    assert (config.key_generator, config.prefixed_record_key) == ("SIMPLE", False)
    assert config.metadata_partitions == ()
    # Writing the properties back loses or changes nothing that the JVM wrote.
    assert props.items() <= config.to_properties().items()


def test_a_new_table_has_every_property_of_a_jvm_table(jvm_tables: JvmTables) -> None:
    theirs = parse_properties((jvm_tables.table(NOMETA) / ".hoodie/hoodie.properties").read_text())
    config = TableConfig(
        name=theirs["hoodie.table.name"],
        database="default",
        record_key_fields=("txn_id",),
        partition_fields=("region",),
        ordering_fields=("txn_ts",),
        url_encode=False,
        create_schema=theirs["hoodie.table.create.schema"],
    )
    ours = config.to_properties()
    assert theirs.items() <= ours.items()
    assert ours["hoodie.table.timeline.timezone"] == "UTC"
    assert TableConfig.from_properties(ours) == config


def test_metadata_partitions_are_told(jvm_tables: JvmTables) -> None:
    path = jvm_tables.table("rs_cow_v9_txns_simple_meta") / ".hoodie/hoodie.properties"
    config = TableConfig.from_properties(parse_properties(path.read_text()))
    assert {"files", "column_stats", "record_index"} <= set(config.metadata_partitions)


@pytest.mark.parametrize(
    ("keys", "partitions", "generator", "prefixed"),
    [
        (("a",), (), "NON_PARTITION", False),
        (("a",), ("p",), "SIMPLE", False),
        (("a",), ("p", "q"), "COMPLEX", True),
        (("a", "b"), ("p",), "COMPLEX", True),
        (("a", "b"), (), "NON_PARTITION", True),
    ],
)
def test_key_generator_is_inferred_as_hudi_does(
    keys: tuple[str, ...], partitions: tuple[str, ...], generator: str, prefixed: bool
) -> None:
    config = TableConfig(name="t", record_key_fields=keys, partition_fields=partitions)
    assert (config.key_generator, config.prefixed_record_key) == (generator, prefixed)
    again = TableConfig.from_properties(config.to_properties())
    assert (again.key_generator, again.prefixed_record_key) == (generator, prefixed)


VALID = TableConfig(name="flights", database="lake", record_key_fields=("id",)).to_properties()


@pytest.mark.parametrize("key", ["hoodie.table.name", "hoodie.table.type", "hoodie.table.version"])
def test_a_missing_property_is_named(key: str) -> None:
    with pytest.raises(CorruptTableError, match=key):
        TableConfig.from_properties({name: value for name, value in VALID.items() if name != key})


def test_a_version_that_is_no_number_is_corrupt() -> None:
    with pytest.raises(CorruptTableError, match=r"hoodie\.table\.version='nine'"):
        TableConfig.from_properties(VALID | {"hoodie.table.version": "nine"})


def test_a_renamed_table_fails_its_checksum() -> None:
    assert VALID["hoodie.table.checksum"] == str(zlib.crc32(b"lake.flights"))
    with pytest.raises(CorruptTableError, match=r"hoodie\.table\.checksum"):
        TableConfig.from_properties(VALID | {"hoodie.table.name": "flightz"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hoodie.table.type", "MERGE_ON_WRITE"),
        ("hoodie.table.version", "5"),
        ("hoodie.table.version", "10"),
        ("hoodie.timeline.layout.version", "1"),
        ("hoodie.table.base.file.format", "ORC"),
    ],
)
def test_tables_of_another_kind_are_refused(key: str, value: str) -> None:
    with pytest.raises(UnsupportedTableError, match=f"{key}={value}"):
        TableConfig.from_properties(VALID | {key: value})


def test_what_a_custom_key_generator_says_of_its_columns_is_kept() -> None:
    written = {
        "hoodie.table.keygenerator.type": "CUSTOM",
        "hoodie.table.partition.fields": "city:SIMPLE,day:TIMESTAMP",
    }
    config = TableConfig.from_properties(VALID | written)
    assert config.partition_fields == ("city", "day")
    assert not config.folders_hold_values
    assert config.to_properties()["hoodie.table.partition.fields"] == "city:SIMPLE,day:TIMESTAMP"
    with pytest.raises(NotATableError, match=r"says no values.*CUSTOM"):
        partition_values("city=a/day=20240101", config)


@pytest.mark.parametrize(
    ("class_name", "generator"),
    [
        ("org.apache.hudi.keygen.SimpleKeyGenerator", "SIMPLE"),
        ("org.apache.hudi.keygen.ComplexAvroKeyGenerator", "COMPLEX"),
        ("org.apache.hudi.keygen.NonpartitionedKeyGenerator", "NON_PARTITION"),
    ],
)
def test_key_generator_class_of_older_tables(class_name: str, generator: str) -> None:
    props = {key: value for key, value in VALID.items() if key != "hoodie.table.keygenerator.type"}
    config = TableConfig.from_properties(props | {"hoodie.table.keygenerator.class": class_name})
    assert config.key_generator == generator
