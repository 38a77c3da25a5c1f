"""Log files: compared with those of the JVM's Hudi, written and read back, and after dead writers."""

from __future__ import annotations

import io
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_provider.exceptions import CorruptTableError, UnsupportedTableError
from airflow_provider.table.files.log_file import (
    MAGIC,
    BlockType,
    HeaderKey,
    LogBlock,
    LogFileName,
    encode_log_block,
    encode_rollback_block,
    read_log_blocks,
    valid_log_blocks,
)
from airflow_provider.table.files.log_records import (
    DeletedRecord,
    WrappedValue,
    avro_records,
    block_hfile,
    deleted_records,
    encode_avro_records,
    encode_deletes,
    parsed_schema,
)
from airflow_provider.table.files.log_rows import avro_rows, block_rows
from airflow_provider.table.hfile import HFileWriter
from airflow_provider.table.schema import arrow_to_avro
from airflow_provider.table.storage.byte_range import ByteRange
from airflow_provider.table.storage.storage import Storage
from tests.unit.table.arrow_data import tables
from tests.unit.table.conftest import JvmTables

_SCHEMA = {"type": "record", "name": "row", "fields": [{"name": "id", "type": "string"}]}


def _blocks(content: bytes) -> list[LogBlock]:
    return list(read_log_blocks(ByteRange.of_bytes(content, "some.log")))


def _avro_block(instant: str, *ids: str) -> bytes:
    content = encode_avro_records(fastavro.parse_schema(_SCHEMA), [{"id": each} for each in ids])
    header = {HeaderKey.SCHEMA: fastavro.schema.to_parsing_canonical_form(_SCHEMA)}
    return encode_log_block(BlockType.AVRO_DATA, content, instant=instant, header=header)


def _ids(blocks: list[LogBlock]) -> list[str]:
    return [record["id"] for block in blocks for record in avro_records(block)]


def _log_files(tables: JvmTables, table: str) -> list[Path]:
    return sorted(
        path for path in (tables.root / table).rglob(".*.log.*") if LogFileName.parse(path.name) is not None
    )


def test_names() -> None:
    name = ".files-0000-0_20260307162434124.log.1_3-34-96"
    parsed = LogFileName.parse(name)
    assert parsed == LogFileName("files-0000-0", "20260307162434124", 1, "3-34-96")
    assert str(parsed) == name
    old = ".07838327-b037-4532-a9df-3c5b05dd823d-0_20230101000000000.log.12"
    assert str(LogFileName.parse(old)) == old
    for other in ["files-0000-0_1-2-3_20260307162434124.hfile", f".{name}.crc", ".hoodie_partition_metadata"]:
        assert LogFileName.parse(other) is None


def test_blocks_of_every_kind_that_the_jvm_wrote(jvm_tables: JvmTables) -> None:
    kinds: dict[BlockType, int] = {}
    for path in sorted(jvm_tables.root.rglob(".*.log.*")):
        if LogFileName.parse(path.name) is None:
            continue
        content = path.read_bytes()
        blocks = _blocks(content)
        for block in blocks:
            kinds[block.block_type] = kinds.get(block.block_type, 0) + 1
            assert block.instant.isdecimal()
            if block.block_type is BlockType.DELETE:
                assert all(each.record_key for each in deleted_records(block))
            elif block.block_type is BlockType.AVRO_DATA:
                assert all(each["_hoodie_record_key"] for each in avro_records(block))
            elif block.block_type is BlockType.HFILE_DATA:
                assert len(list(block_hfile(block).scan())) > 0
        # Written again, each file is byte for byte the same: order of the header, sizes, all.
        again = b"".join(_written_again(block) for block in blocks)
        assert again == content, path
    assert min(kinds[each] for each in (BlockType.COMMAND, BlockType.AVRO_DATA)) >= 1
    assert kinds[BlockType.DELETE] > 40
    assert kinds[BlockType.HFILE_DATA] > 100


def _written_again(block: LogBlock) -> bytes:
    content = block.read()
    if block.block_type is BlockType.DELETE:
        assert encode_deletes(deleted_records(block)) == content
    elif block.block_type is BlockType.AVRO_DATA:
        schema = parsed_schema(block.header[HeaderKey.SCHEMA])
        assert encode_avro_records(schema, avro_records(block)) == content
    elif rolled_back := block.rolled_back_instant:
        assert _same_headers(encode_rollback_block(block.instant, rolled_back), block)
    return encode_log_block(block.block_type, content, instant=block.instant, header=block.header)


def _same_headers(ours: bytes, block: LogBlock) -> bool:
    (found,) = _blocks(ours)
    return dict(found.header) == dict(block.header)


def test_a_log_file_with_an_empty_delete_block_begins_each_file_group(jvm_tables: JvmTables) -> None:
    (path,) = (jvm_tables.table("rs_cow_v9_txns_simple_meta") / ".hoodie/metadata/files").glob(
        ".files-0000-0_00000000000000000.log.1_0-0-0"
    )
    ours = encode_log_block(BlockType.DELETE, encode_deletes([]), instant="00000000000000000")
    assert ours == path.read_bytes()


def test_rolled_back_blocks_of_the_jvms_table_do_not_count(jvm_tables: JvmTables) -> None:
    files = _log_files(jvm_tables, "rs_mor_v6_nonpart_rollback")
    blocks = [block for path in files for block in _blocks(path.read_bytes())]
    rolled_back = {block.rolled_back_instant for block in blocks} - {None}
    assert rolled_back
    written = {block.instant for block in blocks if block.rolled_back_instant is None}
    assert {block.instant for block in valid_log_blocks(blocks)} == written - rolled_back


def test_the_archived_timeline_of_old_tables_is_a_log_file(jvm_tables: JvmTables) -> None:
    folder = jvm_tables.table("jvm_mor_v6_archived") / ".hoodie/archived"
    entries = []
    for path in sorted(folder.glob(".commits_.archive.*")):
        content = ByteRange.of_bytes(path.read_bytes(), path.name)
        entries += [
            entry for block in valid_log_blocks(read_log_blocks(content)) for entry in avro_records(block)
        ]
    assert {entry["actionType"] for entry in entries} >= {"deltacommit", "commit"}
    assert all(entry["commitTime"].isdecimal() for entry in entries)
    assert any(entry["hoodieCommitMetadata"] for entry in entries)


def test_a_rollback_voids_what_was_before_it() -> None:
    log = _avro_block("1", "a") + _avro_block("2", "b") + encode_rollback_block("3", "1")
    assert _ids(valid_log_blocks(_blocks(log))) == ["b"]
    tried_again = log + _avro_block("1", "c")
    assert _ids(valid_log_blocks(_blocks(tried_again))) == ["b", "c"]
    assert _ids(valid_log_blocks(_blocks(tried_again), lambda instant: instant != "2")) == ["c"]


@given(st.integers(1, 300))
@example(5)  # all but the last byte of the magic, which begins and ends with the same bytes
def test_a_writer_that_died_leaves_a_corrupt_block_and_no_more(cut: int) -> None:
    whole, torn = _avro_block("1", "a"), _avro_block("2", "b" * 200)
    cut = min(cut, len(torn) - 1)
    left = torn[:cut]
    # The broken block is at the end of the file, or another writer has appended after it.
    for after, ids in ((b"", ["a"]), (_avro_block("3", "c"), ["a", "c"])):
        blocks = _blocks(whole + left + after)
        assert _ids(valid_log_blocks(blocks)) == ids
        corrupt = [block for block in blocks if block.block_type is BlockType.CORRUPT]
        assert [block.read() for block in corrupt] == ([left] if after or cut >= len(MAGIC) else [])


@given(st.lists(st.lists(st.text(max_size=20), max_size=5), max_size=6))
def test_what_was_written_is_read(written: list[list[str]]) -> None:
    log = b"".join(_avro_block(str(number), *ids) for number, ids in enumerate(written))
    blocks = _blocks(log)
    assert [[record["id"] for record in avro_records(block)] for block in blocks] == written
    assert [block.instant for block in blocks] == [str(number) for number in range(len(written))]


def test_deleted_keys_keep_their_ordering_values() -> None:
    deleted = [
        DeletedRecord("k1", "region=eu"),
        DeletedRecord("k2", "", None),
        DeletedRecord("k3", "", WrappedValue("StringWrapper", "later")),
        DeletedRecord(
            "k4",
            "",
            WrappedValue(
                "ArrayWrapper", (WrappedValue("LongWrapper", 5), WrappedValue("DoubleWrapper", 0.5))
            ),
        ),
    ]
    (block,) = _blocks(encode_log_block(BlockType.DELETE, encode_deletes(deleted), instant="1"))
    assert deleted_records(block) == deleted


def test_a_block_is_read_only_where_it_is_needed(tmp_path: Path) -> None:
    sink = io.BytesIO()
    writer = HFileWriter(sink)
    for number in range(30_000):
        writer.append(b"%08d" % number, number.to_bytes(40, "big"))
    writer.finish()
    log = encode_log_block(BlockType.HFILE_DATA, sink.getvalue(), instant="1") + _avro_block("2", "a")
    (tmp_path / "some.log").write_bytes(log)
    storage = _CountingStorage(str(tmp_path))
    blocks = list(read_log_blocks(ByteRange.of_file(storage, "some.log")))
    assert block_hfile(blocks[0]).get(b"%08d" % 12_345) == (12_345).to_bytes(40, "big")
    assert _ids(blocks[1:]) == ["a"]
    assert storage.bytes_read < len(log)


class _CountingStorage(Storage):
    bytes_read = 0

    def read_range(self, path: str, start: int, end: int) -> bytes:
        data = super().read_range(path, start, end)
        self.bytes_read += len(data)
        return data


@given(tables())
@example(pa.table({"day": pa.array([2**31 - 1, -(2**31)], pa.date32())}))
@example(
    pa.table({"at": pa.array([2**63 - 1, -(2**63)], pa.timestamp("us", "UTC"))})
)  # far beyond Python's years
def test_rows_of_every_type_come_back_from_an_avro_block(rows: pa.Table) -> None:
    schema = arrow_to_avro(rows.schema, "t")
    header = {HeaderKey.SCHEMA: schema}
    log = encode_log_block(BlockType.AVRO_DATA, avro_rows(rows, schema), instant="1", header=header)
    (block,) = _blocks(log)
    assert block_rows(block).equals(rows)


def test_damage_is_named() -> None:
    with pytest.raises(CorruptTableError, match=r"some\.log is no log file"):
        _blocks(b"something else")
    block = _avro_block("1", "a")
    with pytest.raises(UnsupportedTableError, match="format version 7"):
        _blocks(block[:17] + b"\x07" + block[18:])
    with pytest.raises(UnsupportedTableError, match="unknown type 99"):
        _blocks(block[:21] + b"\x63" + block[22:])
    old = encode_log_block(BlockType.DELETE, b"\0\0\0\2" + b"java", instant="1")
    with pytest.raises(UnsupportedTableError, match="delete block of version 2; read are 3 to 3"):
        deleted_records(_blocks(old)[0])
    torn = encode_log_block(BlockType.DELETE, encode_deletes([DeletedRecord("k", "p")])[:-3], instant="1")
    with pytest.raises(CorruptTableError, match=r"delete block of version 3 in some\.log is damaged"):
        deleted_records(_blocks(torn)[0])
