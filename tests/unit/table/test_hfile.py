"""HFiles: compared with those of the JVM's Hudi, written and read back, and damaged."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider.exceptions import CorruptTableError, UnsupportedTableError
from airflow_provider.table.hfile import Compression, HFileReader, HFileWriter
from airflow_provider.table.hfile import format as hfile
from airflow_provider.table.hfile.pair_arrays import pairs_in_blocks
from airflow_provider.table.storage.byte_range import ByteRange
from airflow_provider.table.storage.storage import Storage
from tests.unit.table.conftest import JvmTables

_PAIRS = st.dictionaries(st.binary(max_size=300), st.binary(max_size=300), max_size=60)
_COMPRESSION = st.sampled_from(Compression)


def _write(
    pairs: dict[bytes, bytes],
    compression: Compression = Compression.GZ,
    block_size: int = 200,
    index_block_size: int = 100,
) -> bytes:
    sink = io.BytesIO()
    writer = HFileWriter(
        sink, compression=compression, block_size=block_size, index_block_size=index_block_size
    )
    for key in sorted(pairs):
        writer.append(key, pairs[key])
    writer.add_meta_block("bloomFilter", b"a filter")
    writer.add_file_info("schema", b"a schema")
    assert writer.finish() == len(sink.getvalue())
    return sink.getvalue()


@given(
    _PAIRS, st.integers(0, 60), _COMPRESSION, st.sampled_from([20, 200, 10_000]), st.sampled_from([1, 7, 100])
)
def test_many_pairs_at_once_are_written_as_one_after_the_other(
    pairs: dict[bytes, bytes], first: int, compression: Compression, block_size: int, at_once: int
) -> None:
    ordered = sorted(pairs)
    sink = io.BytesIO()
    writer = HFileWriter(sink, compression=compression, block_size=block_size, index_block_size=100)
    for key in ordered[:first]:
        writer.append(key, pairs[key])
    for start in range(first, len(ordered), at_once):
        keys = ordered[start : start + at_once]
        values = pa.array([pairs[key] for key in keys], pa.binary())
        writer.append_all(pa.array(keys, pa.binary()), values.dictionary_encode())
    writer.add_meta_block("bloomFilter", b"a filter")
    writer.add_file_info("schema", b"a schema")
    writer.finish()
    assert sink.getvalue() == _write(pairs, compression, block_size)


@pytest.mark.parametrize("keys", [["b", "b"], ["b", "a"], ["c" * 40_000], ["a", "c" * 40_000], ["0"]])
def test_many_pairs_are_refused_as_one_is(keys: list[str]) -> None:
    def refused(write: Callable[[HFileWriter], None]) -> str:
        writer = HFileWriter(io.BytesIO())
        writer.append(b"1", b"")
        with pytest.raises(ValueError, match="key") as error:
            write(writer)
        return str(error.value)

    def one_by_one(writer: HFileWriter) -> None:
        for key in keys:
            writer.append(key.encode(), b"")

    values = pa.array([b""] * len(keys))
    assert refused(lambda writer: writer.append_all(pa.array(keys), values)) == refused(one_by_one)


def _open(content: bytes) -> HFileReader:
    return HFileReader(ByteRange.of_bytes(content, "some.hfile"))


def _jvm_files(jvm_tables: JvmTables) -> list[Path]:
    found = sorted(jvm_tables.root.rglob("*.hfile"))
    assert len(found) > 30
    return found


def test_every_pair_of_the_jvms_files_is_found(jvm_tables: JvmTables) -> None:
    for path in _jvm_files(jvm_tables):  # of Hudi's own writer, and of HBase's before it
        reader = _open(path.read_bytes())
        pairs = list(reader.scan())
        assert len(pairs) == len(reader), path
        assert sorted(pairs) == pairs
        assert [reader.get(key) for key, _ in pairs] == [value for _, value in pairs]
        assert list(reader.get_all(key for key, _ in pairs)) == pairs
        assert reader.get(b"\0") is None
        assert reader.get(b"\xff") is None
        assert reader.file_info["schema"].startswith(b'{"type":"record","name":"HoodieMetadataRecord"')
        if pairs:
            assert reader.file_info["minRecordKey"] == pairs[0][0]
            assert reader.file_info["hfile.LASTKEY"].startswith(hfile.encode_index_key(pairs[-1][0]))
        assert (reader.meta_block("bloomFilter") or b"").startswith(b"/////w")


def test_what_is_written_has_the_jvms_bytes(jvm_tables: JvmTables) -> None:
    """Data, file info and trailer are equal; a compressor of another version may pack differently."""
    compared = 0
    for path in _jvm_files(jvm_tables):
        theirs = path.read_bytes()
        reader = _open(theirs)
        if "V9" not in path.parts[-5].upper() or "KEY_VALUE_VERSION" not in reader.file_info:
            continue  # written by HBase's writer (Hudi 0.x), or by a snapshot of Hudi 1.1
        sink = io.BytesIO()
        (created,) = struct.unpack(">q", reader.file_info["hfile.CREATE_TIME_TS"])
        writer = HFileWriter(sink, created=created)
        for key, value in reader.scan():
            writer.append(key, value)
        writer.add_meta_block("bloomFilter", reader.meta_block("bloomFilter") or b"")
        for name, info in reader.file_info.items():
            writer.add_file_info(name, info)
        writer.finish()
        ours = sink.getvalue()
        assert _blocks(ours) == _blocks(theirs), path
        assert dict(_open(ours).file_info) == dict(reader.file_info)
        assert _lasting(_open(ours)) == _lasting(reader)
        compared += 1
    assert compared > 20


def _blocks(content: bytes) -> list[tuple[bytes, bytes]]:
    """Kind and content of each block; of index blocks only the keys: offsets depend on the compressor."""
    trailer = _open(content).trailer
    found, position = [], 0
    while position < trailer.file_info_offset:
        magic, size = hfile.block_size(content[position:])
        data = hfile.decode_block(content[position : position + size], (magic,), trailer.compression)
        if magic == hfile.ROOT_INDEX:
            is_meta = any(kind == hfile.ROOT_INDEX for kind, _ in found)
            count = trailer.meta_index_count if is_meta else trailer.data_index_count
            data = b",".join(entry.key for entry in hfile.decode_root_index(data, count, of_data=not is_meta))
        found.append((magic, data))
        position += size
    return found


def _lasting(reader: HFileReader) -> tuple[int, ...]:
    trailer = reader.trailer
    return (
        trailer.data_bytes,
        trailer.data_index_count,
        trailer.meta_index_count,
        trailer.entry_count,
        trailer.index_levels,
        trailer.first_data_block,
        trailer.compression,
    )


@given(_PAIRS, _COMPRESSION, st.binary(max_size=300))
def test_what_was_written_is_read(pairs: dict[bytes, bytes], compression: Compression, other: bytes) -> None:
    reader = _open(_write(pairs, compression))
    assert list(reader.scan()) == sorted(pairs.items())
    assert len(reader) == len(pairs)
    for key, value in pairs.items():
        assert reader.get(key) == value
    assert reader.get(other) == pairs.get(other)
    assert dict(reader.get_all([*pairs, other])) == pairs
    assert list(reader.scan(other)) == sorted(pair for pair in pairs.items() if pair[0] >= other)
    prefix = other[:1]
    assert list(reader.with_prefix(prefix)) == sorted(p for p in pairs.items() if p[0].startswith(prefix))
    assert reader.meta_block("bloomFilter") == b"a filter"
    assert reader.meta_block("another") is None
    assert reader.file_info["schema"] == b"a schema"


def test_a_large_index_gets_lower_levels() -> None:
    pairs = {b"%06d" % number: b"value" for number in range(3_000)}
    reader = _open(_write(pairs))
    assert reader.trailer.index_levels > 2
    assert dict(reader.scan()) == pairs
    assert reader.get(b"001234") == b"value"
    assert reader.get(b"001234x") is None
    assert [key for key, _ in reader.with_prefix(b"00123")] == [b"%06d" % n for n in range(1230, 1240)]


class _WatchedStorage(Storage):
    """A storage that records the parts of files that were read."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.reads: list[tuple[int, int]] = []

    def read_range(self, path: str, start: int, end: int) -> bytes:
        self.reads.append((start, end))
        return super().read_range(path, start, end)


def test_a_look_up_reads_the_one_block_that_it_needs(tmp_path: Path) -> None:
    pairs = {b"%06d" % number: number.to_bytes(100, "big") for number in range(20_000)}
    content = _write(pairs, Compression.NONE, 64 * 1024, 128 * 1024)
    (tmp_path / "some.hfile").write_bytes(content)
    storage = _WatchedStorage(str(tmp_path))
    reader = HFileReader.open(storage, "some.hfile", size=len(content))
    assert len(storage.reads) == 1  # trailer, indexes and file info together
    storage.reads.clear()

    assert reader.get(b"012345") == pairs[b"012345"]
    (only,) = storage.reads
    assert only[1] - only[0] < 70_000
    storage.reads.clear()

    neighbours = [b"000001", b"000002", b"000500", b"000700", b"015000"]
    assert len(list(reader.get_all(neighbours))) == 5
    assert len(storage.reads) == 2  # the first blocks in one request, the last one in another
    storage.reads.clear()

    assert len(list(reader.with_prefix(b"01234"))) == 10
    (only,) = storage.reads
    assert only[1] - only[0] < 140_000  # the block before may end with the first of them
    storage.reads.clear()

    assert reader.get(b"!") is None
    assert storage.reads == []
    assert sum(1 for _ in reader.scan()) == len(pairs)
    assert len(storage.reads) == 1


def test_a_file_elsewhere_is_read_by_its_parts(tmp_path: Path) -> None:
    storage = Storage(f"memory://{tmp_path}")
    pairs = {b"%04d" % number: bytes(50) for number in range(2_000)}
    storage.put("some.hfile", _write(pairs, block_size=5_000))
    reader = HFileReader.open(storage, "some.hfile")
    assert dict(reader.scan()) == pairs
    assert reader.get(b"0123") == bytes(50)
    with pytest.raises(FileNotFoundError, match="another"):
        HFileReader.open(storage, "another.hfile")


def test_a_lower_index_is_read_where_a_look_up_goes_and_once(tmp_path: Path) -> None:
    pairs = {b"%06d" % number: bytes(100) for number in range(20_000)}
    content = _write(pairs, Compression.NONE, 1_000, 1_000)
    (tmp_path / "some.hfile").write_bytes(content)
    storage = _WatchedStorage(str(tmp_path))
    reader = HFileReader.open(storage, "some.hfile")
    assert reader.trailer.index_levels == 3
    storage.reads.clear()
    assert reader.get(b"000123") == bytes(100)
    assert len(storage.reads) <= 3  # an index block for each level, if not cached, and the data
    storage.reads.clear()
    assert reader.get(b"000124") == bytes(100)
    assert len(storage.reads) == 1


@pytest.mark.parametrize("compression", Compression)
def test_a_file_that_is_cut_off_anywhere_says_so(compression: Compression) -> None:
    content = _write({b"%03d" % number: b"value" for number in range(100)}, compression)
    for size in [0, 10, len(content) // 2, len(content) - 4096, len(content) - 1]:
        with pytest.raises(CorruptTableError, match=r"some\.hfile"):
            list(_open(content[:size]).scan())


@given(st.data(), _COMPRESSION)
def test_damage_is_a_corrupt_table_or_harms_no_more_than_a_value(
    data: st.DataObject, compression: Compression
) -> None:
    content = bytearray(_write({b"%03d" % number: b"value" for number in range(50)}, compression))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with suppress(CorruptTableError, UnsupportedTableError):
        reader = _open(bytes(content))
        list(reader.scan())
        reader.get(b"025")
        reader.meta_block("bloomFilter")


def test_a_damaged_compressed_block_is_never_read_wrongly() -> None:
    pairs = {b"%03d" % number: b"value" for number in range(100)}
    content = bytearray(_write(pairs, Compression.GZ, 64 * 1024))
    content[hfile.BLOCK_HEADER_SIZE + 40] ^= 0xFF
    with pytest.raises(CorruptTableError, match="build the index again"):
        _open(bytes(content)).get(b"050")


def test_another_codec_or_version_is_named() -> None:
    content = bytearray(_write({b"a": b"b"}))
    codec = content.rindex(b"`\x01", 0, len(content))
    content[codec + 1] = 4
    with pytest.raises(UnsupportedTableError, match=r"codec 4; read are GZ \(1\), NONE \(2\)"):
        _open(bytes(content))
    content = bytearray(_write({b"a": b"b"}))
    content[-1] = 2
    with pytest.raises(UnsupportedTableError, match="HFile of version 2"):
        _open(bytes(content))


def test_keys_out_of_order_are_refused() -> None:
    writer = HFileWriter(io.BytesIO())
    writer.append(b"b", b"")
    with pytest.raises(ValueError, match="sorted by its keys"):
        writer.append(b"b", b"")
    with pytest.raises(ValueError, match="sorted by its keys"):
        writer.append(b"a", b"")
    with pytest.raises(ValueError, match="at most 32767"):
        writer.append(b"c" * 40_000, b"")


@settings(max_examples=30)
@given(st.integers(0, 2**32), _COMPRESSION, st.sampled_from([100, 700]), st.integers(300, 1500))
def test_many_keys_are_found_in_arrays_as_one_after_the_other(
    seed: int, compression: Compression, block_size: int, count: int
) -> None:
    random = Random(seed)
    pairs = {b"%d" % n: random.randbytes(random.choice([0, 3, 60])) for n in random.sample(range(4000), 2500)}
    reader = _open(_write(pairs, compression, block_size, 1000))
    # Some keys do not exist; some of these come before the first pair, or after the last one.
    wanted = {b"", b"%", b"~", *(b"%d" % number for number in random.sample(range(4000), count))}
    expected = {key: pairs[key] for key in wanted & pairs.keys()}
    assert dict(reader.get_all(wanted)) == expected
    keys, values = reader.get_arrays(wanted)
    assert dict(zip(keys.to_pylist(), values.to_pylist(), strict=True)) == expected


_TAILS = [
    b"too few",
    struct.pack(">iiH", 30, -1, 2) + bytes(40),
    struct.pack(">iiH", 9, 1, 8) + bytes(40),
    struct.pack(">iiH", 60, 0, 2) + bytes(8),
]


@pytest.mark.parametrize("tail", _TAILS)
def test_pairs_in_arrays_do_not_leave_their_block(tail: bytes) -> None:
    block = hfile.encode_pair(b"a", b"1")
    keys, values = pairs_in_blocks([block] * 3, [b"a"])
    assert (keys.to_pylist(), values.to_pylist()) == ([b"a"] * 3, [b"1"] * 3)
    with pytest.raises(ValueError, match="of a data block"):
        pairs_in_blocks([block, block + tail, block], [b"a"])


@given(
    numbers=st.lists(st.integers(0, 60), min_size=1, unique=True),
    wanted=st.sets(st.integers(0, 60), max_size=20),
    values=st.lists(st.binary(max_size=30), min_size=1),
)
def test_searched_keys_are_those_that_are_there(
    numbers: list[int], wanted: set[int], values: list[bytes]
) -> None:
    # Keys that are suffixes of each other, and are parts of values.
    pairs = {b"k" * (number % 7) + b"%d" % number: b"%d|" % number + values[0] for number in numbers}
    keys = {b"k" * (number % 7) + b"%d" % number for number in wanted} | {b"%d" % number for number in wanted}
    block = b"".join(hfile.encode_pair(key, pairs[key]) for key in sorted(pairs))
    expected = [(key, pairs[key]) for key in sorted(keys & pairs.keys())]
    assert list(hfile.find_pairs(block, sorted(keys))) == expected
    assert list(hfile.decode_pairs(block, keys)) == expected
