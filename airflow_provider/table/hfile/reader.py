"""Reading HFiles."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from types import TracebackType

import pyarrow as pa

from airflow_provider.exceptions import CorruptTableError, UnsupportedTableError
from airflow_provider.table.hfile import format as hfile
from airflow_provider.table.hfile.format import BlockIndex, IndexEntry, Trailer
from airflow_provider.table.hfile.pair_arrays import pairs_in_blocks
from airflow_provider.table.storage import ByteRange, Storage

_TAIL = 32 * 1024  # bytes of the first request: enough for the trailer and the indexes of most files
_FEW = 16  # up to so many keys of one block, a search is faster than decoding
# From so many keys on, in so many blocks, arrays of all pairs are faster than one key after the other.
_MANY = 256
_MANY_BLOCKS = 64
_MANY_OF_A_BLOCK = 3
_DECODED = 16 * 1024 * 1024  # bytes of blocks that are decoded together
_READ_AHEAD = 8 * 1024 * 1024  # bytes of a request for consecutive blocks


class HFileReader:
    """Finds pairs by their keys, and reads only the blocks that this takes.

    The reader opens a file by reading the trailer, the root index and the file info. A look-up reads one data
    block. The first look-up in a part of the file also reads one index block for each level below the root.

    :param content: the file's bytes.
    :raises CorruptTableError: when the bytes are not an HFile, cut off or damaged.
    :raises UnsupportedTableError: when the file has another version or an unknown compression, or keeps
        several versions of a pair.
    """

    def __init__(self, content: ByteRange) -> None:
        if content.size < hfile.TRAILER_SIZE:
            raise CorruptTableError(
                f"{content.name} is no HFile, or cut off: it has {content.size} bytes and a trailer takes "
                f"{hfile.TRAILER_SIZE}"
            )
        self._content = content
        self._naming_the_file = _NamingTheFile(content.name)
        self._lower: dict[int, BlockIndex] = {}
        content.keep(max(0, content.size - _TAIL), content.size)
        self._end = content.size - hfile.TRAILER_SIZE
        self._trailer = Trailer.decode(content.read(self._end, content.size), content.name)
        self._load_on_open()

    @classmethod
    def open(cls, storage: Storage, path: str, *, size: int | None = None) -> HFileReader:
        """Open a file.

        :param size: bytes of the file, if known; otherwise the reader asks the storage.
        :raises FileNotFoundError: when there is no such file.
        """
        return cls(ByteRange.of_file(storage, path, size=size))

    @property
    def file_info(self) -> Mapping[str, bytes]:
        """The writer's entries about the file, for example its Avro ``schema``."""
        return self._info

    @property
    def trailer(self) -> Trailer:
        """The places of all parts of the file."""
        return self._trailer

    def __len__(self) -> int:
        """Pairs in the file."""
        return self._trailer.entry_count

    def get(self, key: bytes) -> bytes | None:
        """The value of a key; None when the file does not have it."""
        for _, value in self.get_all((key,)):
            return value
        return None

    def get_all(self, keys: Iterable[bytes], *, search: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """The pairs of keys that the file has, in the order of the keys. The reader reads no block twice.

        :param keys: the keys, in any order.
        :param search: whether to search a block for the bytes of a few keys, which is faster than to decode
            all its pairs. The result is wrong if a value can hold bytes that look like a pair.
        """
        ordered = sorted(set(keys))
        wanted = self._blocks_of(ordered)
        if _are_many(ordered, wanted):
            for found, values in self._pairs_of_many(wanted):
                yield from zip(found.to_pylist(), values.to_pylist(), strict=True)
            return
        for entry, block in self._data_blocks(wanted):
            few = search and len(wanted[entry]) <= _FEW
            find = self._found if few else self._pairs
            yield from find(block, wanted[entry])

    def get_arrays(self, keys: Iterable[bytes], *, search: bool = False) -> tuple[pa.Array, pa.Array]:
        """The pairs of keys that the file has, as two arrays of large binaries: keys and values.

        :param keys: the keys, in any order.
        :param search: see :meth:`get_all`.
        """
        ordered = sorted(set(keys))
        wanted = self._blocks_of(ordered)
        if _are_many(ordered, wanted):
            parts = list(self._pairs_of_many(wanted))
            found, values = ([each[part] for each in parts] for part in (0, 1))
            return pa.concat_arrays(found), pa.concat_arrays(values)
        pairs = dict(self.get_all(ordered, search=search))
        return pa.array(pairs, pa.large_binary()), pa.array(pairs.values(), pa.large_binary())

    def with_prefix(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The pairs whose keys begin with a prefix, in the order of the keys."""
        blocks = takewhile(
            lambda entry: entry.key <= prefix or entry.key.startswith(prefix), self._blocks_from(prefix)
        )
        for _, block in self._data_blocks(blocks):
            yield from (pair for pair in self._pairs(block) if pair[0].startswith(prefix))

    def scan(self, begin: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """All pairs from a key on, in the order of the keys."""
        for _, block in self._data_blocks(self._blocks_from(begin)):
            yield from (pair for pair in self._pairs(block) if pair[0] >= begin)

    def meta_block(self, name: str) -> bytes | None:
        """The content of a meta block; None when the file has no block of this name."""
        for entry in self._meta:
            if entry.key == name.encode():
                return self._block(entry, hfile.META)
        return None

    def _load_on_open(self) -> None:
        position = self._trailer.load_on_open_offset
        # One request up to the trailer, unless the bytes are here already.
        self._content.keep(min(position, self._end), self._content.size)
        data, position = self._block_at(position, hfile.ROOT_INDEX)
        meta, position = self._block_at(position, hfile.ROOT_INDEX)
        info, _ = self._block_at(position, hfile.FILE_INFO)
        with self._naming_the_file:
            self._root = hfile.decode_root_index(data, self._trailer.data_index_count, of_data=True)
            self._meta = hfile.decode_root_index(meta, self._trailer.meta_index_count, of_data=False)
            pairs = hfile.decode_file_info(info)
        self._info = {key.decode(errors="replace"): value for key, value in pairs.items()}
        versions = int.from_bytes(self._info.get("MAX_MEMSTORE_TS_KEY", b""), "big")
        if versions:
            raise UnsupportedTableError(
                f"{self._content.name} keeps several versions of a pair (up to {versions}), as HBase does; "
                "Hudi's files do not"
            )

    def _block_at(self, position: int, magic: bytes) -> tuple[bytes, int]:
        header = self._content.read(position, position + hfile.BLOCK_HEADER_SIZE)
        with self._naming_the_file:
            _, size = hfile.block_size(header)
        return self._block(IndexEntry(b"", position, size), magic), position + size

    def _block(self, entry: IndexEntry, *magic: bytes) -> bytes:
        return self._decoded(self._content.read(entry.offset, entry.offset + entry.size), magic)

    def _decoded(self, block: bytes, magic: tuple[bytes, ...]) -> bytes:
        with self._naming_the_file:
            return hfile.decode_block(block, magic, self._trailer.compression)

    def _blocks_of(self, ordered: Sequence[bytes]) -> dict[IndexEntry, Sequence[bytes]]:
        """The data blocks that can hold some keys, each with the keys that it can hold.

        :param ordered: the keys, in their order.
        """
        wanted: dict[IndexEntry, Sequence[bytes]] = {}
        if len(ordered) * _MANY_BLOCKS < max(len(self), _MANY * _MANY_BLOCKS):
            of_entry: dict[IndexEntry, list[bytes]] = {}
            for key in ordered:
                if (entry := self._block_of(key)) is not None:
                    of_entry.setdefault(entry, []).append(key)
            wanted.update(of_entry)
            return wanted
        # So many keys are in most blocks: the reader looks up the first key of each block among them.
        last, begin = None, 0
        for entry in self._blocks_from(ordered[0]):
            end = bisect_left(ordered, entry.key, begin)
            if last is not None and end > begin:
                wanted[last] = ordered[begin:end]
            last, begin = entry, end
            if begin == len(ordered):
                break
        else:
            if last is not None:
                wanted[last] = ordered[begin:]
        return wanted

    def _block_of(self, key: bytes) -> IndexEntry | None:
        """The only data block that can hold a key."""
        index = self._root
        for level in range(self._trailer.index_levels, 0, -1):
            found = bisect_right(index.keys, key) - 1
            if found < 0:
                return None
            if level == 1:
                return index[found]
            index = self._index_below(index[found])
        return None

    def _blocks_from(self, key: bytes) -> Iterator[IndexEntry]:
        """The data blocks from the one of a key on."""
        yield from self._descend(self._root, self._trailer.index_levels, key)

    def _descend(self, index: BlockIndex, level: int, key: bytes) -> Iterator[IndexEntry]:
        for number in range(max(0, bisect_right(index.keys, key) - 1), len(index)):
            if level == 1:
                yield index[number]
            else:
                yield from self._descend(self._index_below(index[number]), level - 1, key)

    def _index_below(self, entry: IndexEntry) -> BlockIndex:
        if entry.offset not in self._lower:
            block = self._block(entry, hfile.LEAF_INDEX, hfile.INTERMEDIATE_INDEX)
            with self._naming_the_file:
                self._lower[entry.offset] = hfile.decode_lower_index(block)
        return self._lower[entry.offset]

    def _data_blocks(self, entries: Iterable[IndexEntry]) -> Iterator[tuple[IndexEntry, bytes]]:
        for group in _neighbours(entries, self._content.worth_skipping):
            start = group[0].offset
            blocks = self._content.read(start, group[-1].offset + group[-1].size)
            for entry in group:
                begin = entry.offset - start
                yield entry, self._decoded(blocks[begin : begin + entry.size], (hfile.DATA,))

    def _pairs(self, block: bytes, wanted: Sequence[bytes] | None = None) -> list[tuple[bytes, bytes]]:
        with self._naming_the_file:
            return list(hfile.decode_pairs(block, None if wanted is None else set(wanted)))

    def _found(self, block: bytes, wanted: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
        with self._naming_the_file:
            return list(hfile.find_pairs(block, wanted))

    def _pairs_of_many(
        self, wanted: Mapping[IndexEntry, Sequence[bytes]]
    ) -> Iterator[tuple[pa.Array, pa.Array]]:
        together: list[bytes] = []
        keys: list[bytes] = []
        size = 0
        for entry, block in self._data_blocks(wanted):
            together.append(block)
            keys.extend(wanted[entry])
            size += len(block)
            if size >= _DECODED:
                with self._naming_the_file:
                    yield pairs_in_blocks(together, keys)
                together, keys, size = [], [], 0
        if together:
            with self._naming_the_file:
                yield pairs_in_blocks(together, keys)


def _are_many(keys: Sequence[bytes], blocks: Mapping[IndexEntry, Sequence[bytes]]) -> bool:
    return len(keys) >= _MANY and _MANY_BLOCKS <= len(blocks) <= len(keys) // _MANY_OF_A_BLOCK


class _NamingTheFile:
    """Adds the file's name to an error."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, ValueError | struct.error | hfile.CompressionError):
            raise CorruptTableError(
                f"HFile {self._name} is damaged: {error}; restore it, or build the index again"
            ) from error


def _neighbours(entries: Iterable[IndexEntry], worth_skipping: int) -> Iterator[list[IndexEntry]]:
    """Groups of blocks that are so close together that one request for a group is cheapest."""
    group: list[IndexEntry] = []
    for entry in entries:
        if group:
            gap = entry.offset - group[-1].offset - group[-1].size
            if not 0 <= gap <= worth_skipping or entry.offset + entry.size - group[0].offset > _READ_AHEAD:
                yield group
                group = []
        group.append(entry)
    if group:
        yield group
