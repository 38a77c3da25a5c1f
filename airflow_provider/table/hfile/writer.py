"""Writing HFiles."""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider.table.hfile import format as hfile
from airflow_provider.table.hfile.format import Compression, IndexEntry, Trailer

BLOCK_SIZE = 64 * 1024
_INDEX_BLOCK_SIZE = 128 * 1024  # HBase's default
_PAIRS_AT_ONCE = 100_000


class HFileWriter:
    """Writes pairs in the order of their keys, and then the indexes by which readers find them.

    The blocks equal those of Hudi's writer. The index of Hudi's writer always has one level. This writer adds
    levels, as HBase does, so that one look-up never has to read a large index.

    :param sink: receives the file from its current position on; the writer leaves it open.
    :param compression: the compression of all blocks.
    :param block_size: bytes of uncompressed pairs that fill a data block.
    :param index_block_size: bytes that fill an index block.
    :param created: the time of creation in milliseconds since the epoch, for the file info.
    """

    def __init__(
        self,
        sink: BinaryIO,
        *,
        compression: Compression = Compression.GZ,
        block_size: int = BLOCK_SIZE,
        index_block_size: int = _INDEX_BLOCK_SIZE,
        created: int = 0,
    ) -> None:
        self._sink = sink
        self._compression = compression
        self._block_size = block_size
        self._index_block_size = index_block_size
        self._offset = 0
        self._pairs: list[bytes | memoryview] = []
        self._pending = 0
        self._first_key = b""
        self._last_key: bytes | None = None
        self._count = self._key_bytes = self._data_bytes = 0
        self._index: list[IndexEntry] = []
        self._meta: dict[bytes, bytes] = {}
        self._info = {
            b"hfile.CREATE_TIME_TS": struct.pack(">q", created),
            b"KEY_VALUE_VERSION": struct.pack(">i", 1),
            b"MAX_MEMSTORE_TS_KEY": struct.pack(">q", 0),
        }

    def append(self, key: bytes, value: bytes) -> None:
        """Write a pair.

        :param key: the key; larger, byte by byte, than all keys before.
        :raises ValueError: when the key is not larger, or longer than 32,767 bytes.
        """
        self._check(key, self._last_key)
        pair = hfile.encode_pair(key, value)
        if self._pending + len(pair) > self._block_size:
            self._end_data_block()
        self._add(key, pair, 1)
        self._last_key = key
        self._key_bytes += len(key)

    def append_all(self, keys: pa.Array, values: pa.Array) -> None:
        """Write many pairs, in a fraction of the time that :meth:`append` takes for one after the other.

        :param keys: strings or bytes without nulls, ordered as :meth:`append` asks for.
        :param values: as many values, as bytes or as a dictionary of bytes.
        :raises ValueError: as :meth:`append`.
        """
        for start in range(0, len(keys), _PAIRS_AT_ONCE):
            some = (each.slice(start, _PAIRS_AT_ONCE).cast(pa.large_binary()) for each in (keys, values))
            self._append_some(*some)

    def _append_some(self, keys: pa.LargeBinaryArray, values: pa.LargeBinaryArray) -> None:
        self._check(keys[0].as_py(), self._last_key)
        lengths = pc.binary_length(keys)
        wrong = pc.or_(pc.less_equal(keys[1:], keys[:-1]), pc.greater(lengths[1:], hfile.MAX_KEY_LENGTH))
        if (position := pc.index(wrong, True).as_py()) >= 0:
            self._check(keys[position + 1].as_py(), keys[position].as_py())
        data, ends = hfile.encode_pairs(keys, values)
        offsets, begin = ends.tolist(), 0
        while begin < len(keys):
            room = self._block_size - self._pending
            end = bisect_right(offsets, offsets[begin] + room, begin) - 1
            if end <= begin and self._pairs:
                self._end_data_block()
                continue
            end = max(end, begin + 1)
            self._add(keys[begin].as_py(), data[offsets[begin] : offsets[end]], end - begin)
            begin = end
        self._last_key = keys[-1].as_py()
        self._key_bytes += pc.sum(lengths).as_py()

    def _check(self, key: bytes, before: bytes | None) -> None:
        if before is not None and key <= before:
            raise ValueError(f"key {key!r} comes after {before!r}; an HFile is sorted by its keys")
        if len(key) > hfile.MAX_KEY_LENGTH:
            raise ValueError(f"a key has {len(key)} bytes, an HFile's at most {hfile.MAX_KEY_LENGTH}")

    def _add(self, first_key: bytes, pairs: bytes | memoryview, count: int) -> None:
        if not self._pairs:
            self._first_key = first_key
        self._pairs.append(pairs)
        self._pending += len(pairs)
        self._count += count

    def add_meta_block(self, name: str, data: bytes) -> None:
        """Store bytes in a meta block, which readers find by its name."""
        self._meta[name.encode()] = data

    def add_file_info(self, name: str, value: bytes) -> None:
        """Store a few bytes in the file info, which a reader reads when it opens the file."""
        self._info[name.encode()] = value

    def finish(self) -> int:
        """Write the indexes, the file info and the trailer.

        :return: the size of the whole file in bytes.
        """
        self._end_data_block()
        data_blocks = self._index
        root, levels = self._lower_levels()
        meta = [IndexEntry(name, *self._block(hfile.META, self._meta[name])) for name in sorted(self._meta)]
        load_on_open, _ = self._block(hfile.ROOT_INDEX, hfile.encode_root_index(root, of_data=True))
        self._block(hfile.ROOT_INDEX, hfile.encode_root_index(meta, of_data=False))
        file_info, _ = self._block(hfile.FILE_INFO, hfile.encode_file_info(self._info | self._measures()))
        trailer = Trailer(
            file_info_offset=file_info,
            load_on_open_offset=load_on_open,
            data_bytes=self._data_bytes,
            data_index_count=len(root),
            meta_index_count=len(meta),
            entry_count=self._count,
            index_levels=levels,
            first_data_block=data_blocks[0].offset if data_blocks else -1,
            last_data_block=data_blocks[-1].offset if data_blocks else 0,
            compression=self._compression,
        )
        self._sink.write(trailer.encode())
        return self._offset + hfile.TRAILER_SIZE

    def _measures(self) -> dict[bytes, bytes]:
        last = b"" if self._last_key is None else hfile.encode_index_key(self._last_key)
        count = max(1, self._count)
        value_bytes = self._data_bytes - self._key_bytes - self._count * hfile.PAIR_OVERHEAD
        return {
            b"hfile.LASTKEY": last,
            b"hfile.AVG_KEY_LEN": struct.pack(">i", self._key_bytes // count),
            b"hfile.AVG_VALUE_LEN": struct.pack(">i", value_bytes // count),
        }

    def _end_data_block(self) -> None:
        if not self._pairs:
            return
        self._data_bytes += self._pending
        data = b"".join(self._pairs) if len(self._pairs) > 1 else self._pairs[0]
        self._index.append(IndexEntry(self._first_key, *self._block(hfile.DATA, data)))
        self._pairs, self._pending = [], 0

    def _lower_levels(self) -> tuple[list[IndexEntry], int]:
        entries, levels, magic = self._index, 1, hfile.LEAF_INDEX
        while len(portions := self._portions(entries)) > 1:
            entries = [
                IndexEntry(portion[0].key, *self._block(magic, hfile.encode_lower_index(portion)))
                for portion in portions
            ]
            levels, magic = levels + 1, hfile.INTERMEDIATE_INDEX
        return entries, levels

    def _portions(self, entries: list[IndexEntry]) -> list[list[IndexEntry]]:
        portions: list[list[IndexEntry]] = []
        room = 0
        for entry in entries:
            size = 18 + len(entry.key)  # its place in the list of offsets, pointer, key with length
            # A portion has two entries at least. Otherwise another level would not reduce their number.
            if not portions or (size > room and len(portions[-1]) > 1):
                portions.append([])
                room = self._index_block_size
            portions[-1].append(entry)
            room -= size
        return portions

    def _block(self, magic: bytes, data: bytes | memoryview) -> tuple[int, int]:
        block = hfile.encode_block(magic, data, self._compression)
        self._sink.write(block)
        offset, self._offset = self._offset, self._offset + len(block)
        return offset, len(block)
