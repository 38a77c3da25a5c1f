"""The parts of an HFile of version 3: blocks, index entries, file info, trailer.

Source: ``hudi-io/hfile_format.md`` and ``org.apache.hudi.io.hfile`` of Apache Hudi, which follow
HBase. Numbers are big-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from isal import isal_zlib

from airflow_provider.exceptions import CorruptTableError, UnsupportedTableError
from airflow_provider.table.hfile.protobuf import (
    decode_delimited,
    decode_message,
    encode_delimited,
    encode_message,
)

DATA = b"DATABLK*"
META = b"METABLKc"
ROOT_INDEX = b"IDXROOT2"
INTERMEDIATE_INDEX = b"IDXINTE2"
LEAF_INDEX = b"IDXLEAF2"
FILE_INFO = b"FILEINF2"
_TRAILER = b'TRABLK"$'

TRAILER_SIZE = 4096
BLOCK_HEADER_SIZE = 33

_PBUF = b"PBUF"
_VERSION = 3
_MOST_LEVELS = 16  # levels of an index; each multiplies the number of blocks
_COMPARATOR = b"org.apache.hudi.io.storage.HoodieHBaseKVComparator"  # the name that Hudi's writer stores

# Magic, bytes on disk and uncompressed without this header, offset of the previous block,
# checksum type, bytes per checksum, bytes of header and data without checksums.
_HEADER = struct.Struct(">8siiqBii")
_NO_CHECKSUM = 0
_BYTES_PER_CHECKSUM = 16_384
_NO_PREVIOUS = -1

_LENGTHS = struct.Struct(">iiH")  # lengths of the whole key, the value, and the key's own bytes
PAIR_LENGTHS = np.dtype([("whole", ">i4"), ("value", ">i4"), ("key", ">u2")])
_KEY_LENGTH = struct.Struct(">H")
# HBase's key goes on with the column family (none), the timestamp (the newest) and the type (Put).
_KEY_REST = struct.pack(">BqB", 0, 2**63 - 1, 4)
_MVCC = b"\0"  # the version that HBase keeps of each pair; Hudi has none
PAIR_OVERHEAD = _LENGTHS.size + len(_KEY_REST) + len(_MVCC)

_POINTER = struct.Struct(">qi")

KEY_LENGTH_SIZE, MVCC_SIZE = _KEY_LENGTH.size, len(_MVCC)
MAX_KEY_LENGTH = 0x7FFF  # Java reads it as a signed number


class Compression(IntEnum):
    """How blocks are compressed (``HFileCompressionCodec``)."""

    GZ = 1
    NONE = 2


_CODECS = frozenset(Compression)


class IndexEntry(NamedTuple):
    """The place of a block in the file.

    :param key: the first key in the block, or a meta block's name.
    :param offset: position of the block's header.
    :param size: bytes of the block, with its header.
    """

    key: bytes
    offset: int
    size: int


class BlockIndex:
    """The entries of an index block, in the order of their keys.

    :param data: the block's data.
    :param keys: the keys of all entries.
    :param positions: the positions of their pointers in the data.
    """

    def __init__(self, data: bytes, keys: list[bytes], positions: list[int]) -> None:
        self.keys = keys
        self._data = data
        self._positions = positions

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[IndexEntry]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, number: int) -> IndexEntry:
        # A look-up needs a few of thousands of entries.
        return IndexEntry(self.keys[number], *_POINTER.unpack_from(self._data, self._positions[number]))


@dataclass(frozen=True)
class Trailer:
    """The end of an HFile, which tells the places of all other parts.

    :param file_info_offset: position of the file info block.
    :param load_on_open_offset: position of the root index block.
    :param data_bytes: bytes in data blocks, uncompressed.
    :param data_index_count: entries of the root index.
    :param meta_index_count: entries of the meta index.
    :param entry_count: pairs in the file.
    :param index_levels: 1 when the root index points to data blocks.
    :param first_data_block: position of the first data block; -1 when the file has none.
    :param last_data_block: position of the last data block; -1 when the file has none.
    :param compression: the compression of all blocks.
    """

    file_info_offset: int
    load_on_open_offset: int
    data_bytes: int
    data_index_count: int
    meta_index_count: int
    entry_count: int
    index_levels: int
    first_data_block: int
    last_data_block: int
    compression: Compression

    def encode(self) -> bytes:
        """The trailer's bytes, always 4096."""
        message = encode_message(
            [
                (1, self.file_info_offset),
                (2, self.load_on_open_offset),
                (3, self.data_bytes),
                (5, self.data_index_count),
                (6, self.meta_index_count),
                (7, self.entry_count),
                (8, self.index_levels),
                (9, self.first_data_block),
                (10, self.last_data_block),
                (11, _COMPARATOR),
                (12, int(self.compression)),
            ]
        )
        content = _TRAILER + encode_delimited(message)
        return content.ljust(TRAILER_SIZE - 4, b"\0") + struct.pack(">i", _VERSION)

    @classmethod
    def decode(cls, data: bytes, name: str) -> Trailer:
        """Read a trailer.

        :param data: the last 4096 bytes of a file.
        :param name: the file's name in errors.
        :raises CorruptTableError: when the bytes are not a trailer.
        :raises UnsupportedTableError: when the file has another version or an unknown compression.
        """
        if not data.startswith(_TRAILER):
            raise CorruptTableError(f"{name} is no HFile, or cut off: it does not end with a trailer")
        version = int.from_bytes(data[-3:], "big")
        if version != _VERSION:
            raise UnsupportedTableError(
                f"{name} is an HFile of version {version}; read is version {_VERSION}"
            )
        try:
            fields = dict(decode_message(decode_delimited(data, len(_TRAILER))))
        except ValueError as error:
            raise CorruptTableError(f"the trailer of {name} cannot be read: {error}") from error
        codec = _number(fields, 12, Compression.NONE)
        if codec not in _CODECS:
            known = ", ".join(f"{each.name} ({each})" for each in Compression)
            raise UnsupportedTableError(f"{name} is compressed with codec {codec}; read are {known}")
        levels = _number(fields, 8, 1)
        if not 1 <= levels <= _MOST_LEVELS:
            raise CorruptTableError(f"the trailer of {name} says that its index has {levels} levels")
        return cls(
            file_info_offset=_number(fields, 1),
            load_on_open_offset=_number(fields, 2),
            data_bytes=_number(fields, 3),
            data_index_count=_number(fields, 5),
            meta_index_count=_number(fields, 6),
            entry_count=_number(fields, 7),
            index_levels=levels,
            first_data_block=_number(fields, 9),
            last_data_block=_number(fields, 10),
            compression=Compression(codec),
        )


def _number(fields: Mapping[int, int | bytes], field: int, default: int = 0) -> int:
    value = fields.get(field, default)
    if isinstance(value, bytes):
        value = int.from_bytes(value, "big")
    return value - 2**64 if value >= 2**63 else value


def encode_block(magic: bytes, data: bytes | memoryview, compression: Compression) -> bytes:
    """A block with its header.

    Its checksums have the type "none": four zero bytes for every 16 KiB. The readers of HBase and hudi-rs
    expect these bytes.
    """
    stored = _gzip(data) if compression is Compression.GZ else data
    with_header = BLOCK_HEADER_SIZE + len(stored)
    checksums = bytes(4 * -(-with_header // _BYTES_PER_CHECKSUM))
    header = _HEADER.pack(
        magic,
        len(stored) + len(checksums),
        len(data),
        _NO_PREVIOUS,
        _NO_CHECKSUM,
        _BYTES_PER_CHECKSUM,
        with_header,
    )
    return header + stored + checksums


def decode_block(block: bytes, expected: tuple[bytes, ...], compression: Compression) -> bytes:
    """The data in a block, uncompressed.

    :param block: the bytes from the block's header on; more bytes may follow the block.
    :param expected: the kinds of block that may be here.
    :raises ValueError: when the block has another kind, is cut off or damaged.
    :raises CompressionError: when the compressed data are damaged.
    """
    magic, on_disk, uncompressed, _, _, _, with_header = _HEADER.unpack_from(block)
    if magic not in expected:
        wanted = " or ".join(each.decode() for each in expected)
        raise ValueError(f"a block begins with {magic!r}, expected is {wanted}")
    size = BLOCK_HEADER_SIZE + on_disk
    if not BLOCK_HEADER_SIZE <= with_header <= size <= len(block):
        raise ValueError(f"a block of {size} bytes with {with_header} bytes of data is cut off or damaged")
    stored = block[BLOCK_HEADER_SIZE:with_header]
    data = _gunzip(stored, uncompressed) if compression is Compression.GZ else stored
    if len(data) != uncompressed:
        raise ValueError(f"a block holds {len(data)} bytes and says {uncompressed}")
    return data


def block_size(header: bytes) -> tuple[bytes, int]:
    """Kind and size of a block by its header; the size is in bytes and includes the header."""
    magic, on_disk, *_ = _HEADER.unpack_from(header)
    if on_disk < 0:
        raise ValueError(f"a block of kind {magic!r} says that it has {on_disk} bytes")
    return magic, BLOCK_HEADER_SIZE + on_disk


CompressionError = isal_zlib.error
"""Raised when compressed bytes are damaged."""

_GZIP = 16 + isal_zlib.MAX_WBITS
_MOST_FORESEEN = 1024 * 1024  # bytes to reserve at most for a block, because a damaged header may claim more


def _gzip(data: bytes | memoryview) -> bytes:
    return isal_zlib.compress(data, wbits=_GZIP)


def _gunzip(data: bytes, size: int) -> bytes:
    return isal_zlib.decompress(data, wbits=_GZIP, bufsize=min(max(1, size), _MOST_FORESEEN))


def encode_pair(key: bytes, value: bytes) -> bytes:
    """A key with its value, as a data block stores them."""
    whole = _KEY_LENGTH.size + len(key) + len(_KEY_REST)
    return b"".join((_LENGTHS.pack(whole, len(value), len(key)), key, _KEY_REST, value, _MVCC))


def encode_pairs(
    keys: pa.LargeBinaryArray, values: pa.LargeBinaryArray
) -> tuple[memoryview, npt.NDArray[np.int64]]:
    """Many keys with their values, one after the other, as :func:`encode_pair` encodes each.

    :return: the bytes, and where each pair begins in them, with the end of the last one.
    """
    lengths = pc.binary_length(keys).to_numpy()
    heads = np.empty(len(keys), PAIR_LENGTHS)
    heads["whole"] = _KEY_LENGTH.size + lengths + len(_KEY_REST)
    heads["value"] = pc.binary_length(values).to_numpy()
    heads["key"] = lengths
    first = pa.Array.from_buffers(pa.binary(_LENGTHS.size), len(keys), [None, pa.py_buffer(heads)])
    rest, last, nothing = (pa.scalar(each, pa.large_binary()) for each in (_KEY_REST, _MVCC, b""))
    pairs = pc.binary_join_element_wise(first.cast(pa.large_binary()), keys, rest, values, last, nothing)
    _, offsets, data = pairs.buffers()
    return memoryview(data), np.frombuffer(offsets, np.int64)[: len(keys) + 1]


def decode_pairs(data: bytes, wanted: Container[bytes] | None = None) -> Iterator[tuple[bytes, bytes]]:
    """The pairs of a data block, in the order of their keys.

    :param wanted: returns only the pairs of these keys; all when None.
    :raises ValueError: when the pairs do not fill the block exactly.
    """
    position, end = 0, len(data)
    unpack, first = _LENGTHS.unpack_from, _LENGTHS.size
    while position < end:
        if end - position < first:
            raise ValueError(f"{end - position} bytes at the end of a data block are no pair")
        whole, value_length, key_length = unpack(data, position)
        value_at = position + first - _KEY_LENGTH.size + whole
        after = value_at + value_length + len(_MVCC)
        if value_length < 0 or key_length + _KEY_LENGTH.size > whole or after > end:
            raise ValueError(f"a pair at byte {position} of a data block does not fit into it")
        key_at = position + first
        key = data[key_at : key_at + key_length]
        if wanted is None or key in wanted:
            yield key, data[value_at : value_at + value_length]
        position = after


def find_pairs(data: bytes, wanted: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Find the pairs of a few keys in a data block, without decoding the other pairs.

    The result is in the order of the keys. It is right only if no value holds bytes that look like the pair
    of a wanted key.

    :param wanted: the keys.
    :raises ValueError: when the block does not begin with a pair.
    """
    first = _LENGTHS.size
    if len(data) < first:
        raise ValueError(f"{len(data)} bytes of a data block are no pair")
    whole, _, key_length = _LENGTHS.unpack_from(data)
    rest = whole - key_length  # every whole key has this many bytes besides the key's own
    for key in sorted(wanted):
        searched = _KEY_LENGTH.pack(len(key)) + key
        found = data.find(searched)
        while found >= 0:
            begin = found + _KEY_LENGTH.size - first
            # Otherwise the bytes are the end of a longer key, or part of a value.
            if begin >= 0:
                whole, value_length, _ = _LENGTHS.unpack_from(data, begin)
                value_at = begin + first - _KEY_LENGTH.size + whole
                after = value_at + value_length + len(_MVCC)
                if whole == len(key) + rest and value_length >= 0 and after <= len(data):
                    yield key, data[value_at : value_at + value_length]
                    break
            found = data.find(searched, found + 1)


def encode_index_key(key: bytes) -> bytes:
    """A key as indexes and the file info store it: with its length before it."""
    return _KEY_LENGTH.pack(len(key)) + key


def _index_key(data: bytes, begin: int, end: int) -> bytes:
    # HBase stores more than the key here.
    key_at = begin + _KEY_LENGTH.size
    if key_at > end:
        raise ValueError(f"an index key has {end - begin} bytes, and its length takes {_KEY_LENGTH.size}")
    key_end = key_at + (data[begin] << 8 | data[begin + 1])
    if key_end > end:
        raise ValueError(f"an index key of {key_end - key_at} bytes is cut off at byte {end - begin}")
    return data[key_at:key_end]


def encode_root_index(entries: list[IndexEntry], *, of_data: bool) -> bytes:
    """The data of a root index block.

    :param of_data: whether the index is of data blocks; the meta index has names instead of keys.
    """
    out = bytearray()
    for entry in entries:
        key = encode_index_key(entry.key) if of_data else entry.key
        out += _POINTER.pack(entry.offset, entry.size) + _encode_vint(len(key)) + key
    return bytes(out)


def decode_root_index(data: bytes, count: int, *, of_data: bool) -> BlockIndex:
    """Read the data of a root index block; see :func:`encode_root_index`.

    :param count: the number of entries, from the trailer.
    :raises ValueError: when the block has fewer entries.
    """
    keys: list[bytes] = []
    positions: list[int] = []
    position, before_key = 0, _POINTER.size + 1
    try:
        # A file has thousands of entries, and a function call for each would double the time to open it.
        for _ in range(count):
            positions.append(position)
            begin = position + before_key
            length = data[begin - 1]
            if length > 127:
                length, begin = _decode_vint(data, begin - 1)
                if length < 0:
                    raise ValueError(f"the key of entry {len(keys)} of an index has {length} bytes")
            position = begin + length
            if not of_data:
                keys.append(data[begin:position])
            elif data[begin + 1] == length - 2:
                keys.append(data[begin + 2 : position])
            else:
                keys.append(_index_key(data, begin, position))
    except IndexError:
        position = len(data) + 1
    if position > len(data):
        raise ValueError(f"an index of {count} entries is cut off in entry {len(positions) - 1}")
    return BlockIndex(data, keys, positions)


def encode_lower_index(entries: list[IndexEntry]) -> bytes:
    """The data of an index block below the root."""
    records = [_POINTER.pack(e.offset, e.size) + encode_index_key(e.key) for e in entries]
    ends, position = [0], 0
    for record in records:
        position += len(record)
        ends.append(position)
    return struct.pack(f">{len(ends) + 1}i", len(entries), *ends) + b"".join(records)


def decode_lower_index(data: bytes) -> BlockIndex:
    """Read the data of an index block below the root; see :func:`encode_lower_index`.

    :raises ValueError: when the block is cut off or damaged.
    """
    (count,) = struct.unpack_from(">i", data)
    if not 0 <= count <= len(data) // 4 - 2:
        raise ValueError(f"an index block of {len(data)} bytes cannot hold {count} entries")
    base = 4 * (count + 2)
    ends = [base + each for each in struct.unpack_from(f">{count + 1}i", data, 4)]
    keys: list[bytes] = []
    for begin, end in pairwise(ends):
        if not base <= begin <= end - _POINTER.size or end > len(data):
            raise ValueError(f"entry {len(keys)} of an index block is cut off")
        keys.append(_index_key(data, begin + _POINTER.size, end))
    return BlockIndex(data, keys, ends[:-1])


def encode_file_info(info: Mapping[bytes, bytes]) -> bytes:
    """The data of a file info block."""
    pairs = (encode_message([(1, key), (2, info[key])]) for key in sorted(info))
    return _PBUF + encode_delimited(encode_message((1, pair) for pair in pairs))


def decode_file_info(data: bytes) -> dict[bytes, bytes]:
    """Read the data of a file info block; see :func:`encode_file_info`.

    :raises ValueError: when the block is damaged.
    """
    if not data.startswith(_PBUF):
        raise ValueError(f"a file info block begins with {data[:4]!r}, expected is {_PBUF!r}")
    info = {}
    for _, pair in decode_message(decode_delimited(data, len(_PBUF))):
        if not isinstance(pair, bytes):
            raise ValueError("a file info block holds something else than pairs")  # noqa: TRY004
        fields = dict(decode_message(pair))
        key, value = fields.get(1), fields.get(2)
        if not isinstance(key, bytes) or not isinstance(value, bytes):
            raise ValueError("a pair of a file info block has no key or no value")  # noqa: TRY004
        info[key] = value
    return info


def _encode_vint(value: int) -> bytes:
    # Hadoop's WritableUtils.writeVLong. Lengths are never negative.
    if value <= 127:
        return struct.pack(">b", value)
    size = (value.bit_length() + 7) // 8
    return struct.pack(">b", -112 - size) + value.to_bytes(size, "big")


def _decode_vint(data: bytes, position: int) -> tuple[int, int]:
    (first,) = struct.unpack_from(">b", data, position)
    if first >= -112:
        return first, position + 1
    negative = first < -120
    end = position + 1 + (-first - 120 if negative else -first - 112)
    if end > len(data):
        raise ValueError("a variable-length number is cut off")
    value = int.from_bytes(data[position + 1 : end], "big")
    return (~value if negative else value), end
