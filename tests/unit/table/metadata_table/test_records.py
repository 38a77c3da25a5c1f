"""Records of the metadata table: their bytes are the JVM's, and two records of one key merge."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.exceptions import CorruptTableError, UnsupportedTableError
from airflow_provider.table.files.log_file import BlockType, LogFileName, read_log_blocks
from airflow_provider.table.files.log_records import WrappedValue, block_hfile
from airflow_provider.table.hfile import HFileReader
from airflow_provider.table.metadata_table.records import (
    ColumnStats,
    FileInfo,
    FileList,
    Payload,
    RecordDecoder,
    RecordLocation,
    RecordType,
    SecondaryKey,
    StoredBloomFilter,
    ValueType,
    encode_payload,
    merge,
    schema_text,
)
from airflow_provider.table.storage.byte_range import ByteRange
from tests.unit.table.conftest import JvmTables

_decode = RecordDecoder(schema_text())


def _hfiles(root: Path) -> Iterator[HFileReader]:
    for path in sorted(root.rglob("*.hfile")):
        yield HFileReader(ByteRange.of_bytes(path.read_bytes(), str(path)))
    for path in sorted(root.rglob(".*.log.*")):
        if LogFileName.parse(path.name) is not None:
            for block in read_log_blocks(ByteRange.of_bytes(path.read_bytes(), str(path))):
                if block.block_type is BlockType.HFILE_DATA:
                    yield block_hfile(block)


def _without_docs(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {key: _without_docs(value) for key, value in schema.items() if key != "doc"}
    return [_without_docs(each) for each in schema] if isinstance(schema, list) else schema


def test_the_schema_is_the_jvms(jvm_tables: JvmTables) -> None:
    table = jvm_tables.table("rs_cow_v9_txns_simple_meta") / ".hoodie/metadata"
    schemas = {reader.file_info["schema"] for reader in _hfiles(table)}
    assert [_without_docs(json.loads(schema)) for schema in schemas] == [json.loads(schema_text())]


def test_every_record_of_the_jvm_keeps_its_bytes(jvm_tables: JvmTables) -> None:
    types = set()
    table = jvm_tables.table("rs_cow_v9_txns_simple_meta") / ".hoodie/metadata"
    for reader in _hfiles(table):
        for _, value in reader.scan():
            payload = _decode(value)
            types.add(type(payload))
            ours = encode_payload(payload)
            # A compaction of the JVM puts the file's name into each record, after four null columns.
            theirs = value if value[4] == 0 else value[:4] + b"\0" + value[6 + value[5] // 2 :]
            assert ours == theirs
    assert types == {FileList, ColumnStats, RecordLocation, SecondaryKey}


def test_records_of_older_schemas_are_read(jvm_tables: JvmTables) -> None:
    count = 0
    for archive in ("jvm_mor_v6_archived", "jvm_mor_v9_mdt_legacy_hfile"):
        for reader in _hfiles(jvm_tables.table(archive) / ".hoodie/metadata"):
            decode = RecordDecoder(reader.file_info["schema"].decode())
            for _, value in reader.scan():
                payload = decode(value)
                assert _decode(encode_payload(payload)) == payload
                count += 1
    assert count > 400


_names = st.text(min_size=1, max_size=12)
_counts = st.integers(0, 2**40)
_wrapped = st.one_of(
    st.none(),
    st.builds(WrappedValue, st.just("LongWrapper"), st.integers(-(2**63), 2**63 - 1)),
    st.builds(WrappedValue, st.just("StringWrapper"), st.text(max_size=10)),
    st.builds(WrappedValue, st.just("BytesWrapper"), st.binary(max_size=10)),
    st.builds(WrappedValue, st.just("DoubleWrapper"), st.floats(allow_nan=False)),
    st.builds(WrappedValue, st.just("BooleanWrapper"), st.booleans()),
)
_file_ids = st.one_of(
    st.uuids().map(str),
    st.builds(lambda value, index: f"{value}-{index}", st.uuids(), st.integers(0, 2**31 - 1)),
    st.text(max_size=50),
)
_file_infos = st.builds(FileInfo, _counts, st.booleans())
_files = st.dictionaries(_names, _file_infos, max_size=5)
_payloads = st.one_of(
    st.builds(FileList, _files, st.sampled_from([RecordType.FILES, RecordType.ALL_PARTITIONS])),
    st.builds(
        ColumnStats,
        _names,
        _names,
        _wrapped,
        _wrapped,
        _counts,
        _counts,
        _counts,
        _counts,
        st.booleans(),
        st.booleans(),
        st.sampled_from([None, ValueType.LONG, ValueType.DECIMAL]),
        record_type=st.sampled_from([RecordType.COLUMN_STATS, RecordType.PARTITION_STATS]),
    ),
    st.builds(
        StoredBloomFilter,
        st.just("DYNAMIC_V0"),
        _names,
        st.text("abcdefgh=", max_size=20),
        st.booleans(),
    ),
    st.builds(RecordLocation, _names, _file_ids, _counts, st.one_of(st.none(), _counts)),
    st.builds(SecondaryKey, st.booleans()),
)


@given(_payloads)
def test_what_was_written_is_read(payload: Payload) -> None:
    if isinstance(payload, ColumnStats) and payload.value_type is None:
        assert payload.type_info is None
    assert _decode(encode_payload(payload)) == payload


def test_a_location_knows_its_instant() -> None:
    location = RecordLocation.at("region=eu", "07838327-b037-4532-a9df-3c5b05dd823d-0", "20260307222434124")
    assert location.instant_millis == 1_772_922_274_124
    assert location.instant == "20260307222434124"


@given(st.lists(_files, max_size=6))
def test_lists_of_files_add_up(changes: list[dict[str, FileInfo]]) -> None:
    """The merged list is the same with any compactions in between."""
    whole = _merged([FileList(each) for each in changes])
    for cut in range(len(changes)):
        compacted = _merged([FileList(each) for each in changes[:cut]])
        base = [] if compacted is None else [compacted]
        assert _merged([*base, *(FileList(each) for each in changes[cut:])]) == whole


def _merged(payloads: list[Payload]) -> Payload | None:
    merged: Payload | None = None
    for each in payloads:
        merged = merge(merged, each)
    return merged


def test_files_come_and_go() -> None:
    first = FileList({"a": FileInfo(10), "b": FileInfo(20)})
    second = FileList(
        {"a": FileInfo(0, is_deleted=True), "c": FileInfo(30), "x": FileInfo(0, is_deleted=True)}
    )
    merged = merge(first, second)
    assert merged == FileList({"b": FileInfo(20), "c": FileInfo(30), "x": FileInfo(0, is_deleted=True)})
    assert isinstance(merged, FileList)
    assert merged.sizes() == {"b": 20, "c": 30}
    again = merge(merged, FileList({"b": FileInfo(25), "a": FileInfo(11)}))
    assert isinstance(again, FileList)
    assert again.sizes() == {"a": 11, "b": 25, "c": 30}  # a log file that has grown has its larger size


def _stats(low: Any, high: Any, *, tight: bool = False, deleted: bool = False, **other: Any) -> ColumnStats:
    return ColumnStats(
        "region=eu",
        "price",
        low,
        high,
        value_count=2,
        null_count=1,
        is_tight_bound=tight,
        is_deleted=deleted,
        **other,
    )


def test_statistics_of_a_partition_widen_unless_they_are_tight() -> None:
    long = {each: WrappedValue("LongWrapper", each) for each in (1, 5, 9)}
    kind = {"record_type": RecordType.PARTITION_STATS}
    older = _stats(long[5], long[9], **kind)
    widened = merge(older, _stats(long[1], long[5], **kind))
    assert isinstance(widened, ColumnStats)
    assert (widened.min_value, widened.max_value) == (long[1], long[9])
    assert (widened.value_count, widened.null_count) == (4, 2)
    tight = _stats(long[1], long[5], tight=True, **kind)
    assert merge(older, tight) == tight
    unknown = merge(older, _stats(None, None, **kind))
    assert isinstance(unknown, ColumnStats)
    assert (unknown.min_value, unknown.max_value) == (long[5], long[9])
    gone = _stats(None, None, deleted=True, **kind)
    assert merge(older, gone) == gone
    assert merge(gone, older) == older


def test_a_decimals_bytes_are_a_signed_number() -> None:
    def decimal(value: int) -> WrappedValue:
        return WrappedValue("BytesWrapper", value.to_bytes(2, "big", signed=True))

    kind = {"record_type": RecordType.PARTITION_STATS, "value_type": ValueType.DECIMAL, "type_info": "4,2"}
    widened = merge(_stats(decimal(-5), decimal(7), **kind), _stats(decimal(3), decimal(300), **kind))
    assert isinstance(widened, ColumnStats)
    assert (widened.min_value, widened.max_value) == (decimal(-5), decimal(300))


def test_of_all_else_the_newer_counts() -> None:
    newer = _stats(None, None)
    assert merge(_stats(WrappedValue("LongWrapper", 1), None), newer) == newer
    location = RecordLocation.at("p", "f", "20260307222434124")
    assert merge(RecordLocation.at("q", "g", "20260307222434123"), location) == location


def test_what_is_no_record_is_named() -> None:
    with pytest.raises(CorruptTableError, match="FileList and a RecordLocation of one key"):
        merge(RecordLocation.at("p", "f", "20260307222434124"), FileList({}))
    with pytest.raises(CorruptTableError, match="drop the index, build it again"):
        _decode(b"\0\0")
    with pytest.raises(CorruptTableError, match="drop the index"):
        _decode(b"\0\0\0\0\0\0\x06\0\0\0\0\0")  # statistics of a column, without them
    with pytest.raises(UnsupportedTableError, match="unknown type 9"):
        _decode(b"\0\0\0\0\0\0\x12\0\0\0\0\0")


def test_the_bounds_of_a_column_whose_type_has_changed_are_not_known_any_more() -> None:
    def stats(value: int, kind: ValueType) -> ColumnStats:
        low = WrappedValue("LongWrapper", value)
        return ColumnStats("p", "at", low, low, 1, 0, value_type=kind, record_type=RecordType.PARTITION_STATS)

    millis = stats(1_704_067_200_000, ValueType.TIMESTAMP_MILLIS)
    micros = stats(1_704_067_200_000_000, ValueType.TIMESTAMP_MICROS)
    merged = merge(millis, micros)
    for later in (merged, merge(merged, micros), merge(merge(micros, millis), micros)):
        assert isinstance(later, ColumnStats)
        assert (later.min_value, later.max_value, later.value_type) == (None, None, None)
        assert _decode(encode_payload(later)) == later
