"""Hudi's bloom filter of the record keys in a base file, bit for bit, vectorised.

Sources: ``InternalBloomFilter`` (``SIMPLE``), ``InternalDynamicBloomFilter``
(``DYNAMIC_V0``), ``HashFunction`` and ``MurmurHash`` of Apache Hudi, after Hadoop's.
"""

from __future__ import annotations

import base64
import itertools
import math
import struct
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider.exceptions import CorruptTableError, UnsupportedTableError

SIMPLE = "SIMPLE"
DYNAMIC_V0 = "DYNAMIC_V0"

_VERSION = -1
_MURMUR = 1
_HEADER = struct.Struct(">iibi")  # version, hashes, hash type, bits
_DYNAMIC = struct.Struct(">iii")  # keys a row may hold, keys in the last row, rows

# Arrays without dimensions: numpy converts any other number anew at each operation, which takes longer than
# the operation on a few keys.
_MULTIPLIER = np.array(0x5BD1E995, np.uint32)
_13, _15, _24 = (np.array(bits, np.uint32) for bits in (13, 15, 24))
_WORTH_THREADS, _THREADS = 262_144, 2  # from so many keys on; more threads would wait for memory
_WORTH_ARRAYS = 10  # from so many keys on; a call of numpy takes as long as the hashes of one key
_WORTH_SINGLE_HASHES = 2048  # from so many keys on; with fewer, the call of numpy costs more than its work
_CHUNK = 16_384  # keys hashed at a time, so that the working arrays stay in the CPU's cache

_MASK = 0xFFFF_FFFF

_Bits = npt.NDArray[np.uint8]
_Words = npt.NDArray[np.uint32]
_Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class BloomFilter:
    """A set of record keys with false positives, but without false negatives.

    :param bits: bits of one row.
    :param hashes: bits set for a key.
    :param rows: the rows, packed eight bits to a byte, lowest first; a ``SIMPLE`` filter has one row.
    :param row_entries: number of keys after which a ``DYNAMIC_V0`` filter begins another row; None for
        ``SIMPLE``.
    :param last_row_entries: keys counted in the last row.
    """

    bits: int
    hashes: int
    rows: tuple[_Bits, ...]
    row_entries: int | None = None
    last_row_entries: int = 0

    @classmethod
    def build(
        cls,
        keys: pa.Array | pa.ChunkedArray,
        *,
        type_code: str = DYNAMIC_V0,
        entries: int = 60_000,
        false_positives: float = 1e-9,
        max_entries: int = 100_000,
    ) -> BloomFilter:
        """Build the filter of these keys; the defaults are Hudi's.

        :param keys: strings without nulls.
        :param type_code: ``SIMPLE`` or ``DYNAMIC_V0``.
        :param entries: keys for which a row is sized (``hoodie.index.bloom.num_entries``).
        :param false_positives: rate of false positives of a row with that many keys
            (``hoodie.index.bloom.fpp``).
        :param max_entries: number of keys from which on a dynamic filter gets no more rows
            (``hoodie.bloom.index.filter.dynamic.max.entries``).
        :raises UnsupportedTableError: when the type code is unknown.
        """
        _verify_type_code(type_code)
        bits = math.ceil(entries * (-math.log(false_positives) / math.log(2) ** 2))
        hashes = math.ceil(math.log(2) * bits / entries)
        if len(keys) < min(_WORTH_ARRAYS, entries + 1):
            _verify_no_null(keys)
            row = _row_of_few(keys.to_pylist(), bits, hashes)
            is_simple = type_code == SIMPLE
            return cls(bits, hashes, (row,), *(() if is_simple else (entries, len(keys))))
        view = _Keys(keys)
        if type_code == SIMPLE:
            return cls(bits, hashes, (_fill(view, np.arange(view.count), bits, hashes),))
        most_rows = max(1, math.ceil(max_entries / entries))
        row_count = min(most_rows, max(1, math.ceil(view.count / entries)))
        rows = tuple(
            _fill(view, _row_members(row, view.count, entries, most_rows), bits, hashes)
            for row in range(row_count)
        )
        return cls(bits, hashes, rows, entries, view.count - (row_count - 1) * entries)

    def extended(self, keys: pa.Array | pa.ChunkedArray, *, false_positives: float) -> BloomFilter | None:
        """This filter with further keys, at a tenth of the cost of building a filter of all keys.

        :param keys: strings without nulls; keys that the filter has already do no harm.
        :param false_positives: highest rate of false positives afterwards.
        :return: the filter; None when it has several rows or would be too full: build a new one.
        """
        if len(self.rows) != 1:
            return None
        if not len(keys):
            return self
        view = _Keys(keys)
        unpacked = np.unpackbits(self.rows[0], bitorder="little")
        _set_bits(unpacked, view, np.arange(view.count), self.bits, self.hashes)
        if (np.count_nonzero(unpacked) / self.bits) ** self.hashes > false_positives:
            return None
        row = np.packbits(unpacked, bitorder="little")
        entries = self.last_row_entries + view.count if self.row_entries else 0
        return BloomFilter(self.bits, self.hashes, (row,), self.row_entries, entries)

    def to_footer(self) -> tuple[str, str]:
        """The value of footer ``org.apache.hudi.bloomfilter``, and its type code."""
        header = _HEADER.pack(_VERSION, self.hashes, _MURMUR, self.bits)
        rows = b"".join(header + row.tobytes() for row in self.rows)
        if self.row_entries is None:
            return base64.b64encode(rows).decode("ascii"), SIMPLE
        dynamic = header + _DYNAMIC.pack(self.row_entries, self.last_row_entries, len(self.rows))
        return base64.b64encode(dynamic + rows).decode("ascii"), DYNAMIC_V0

    @classmethod
    def from_footer(cls, value: str, type_code: str) -> BloomFilter:
        """Read a value that :meth:`to_footer` or the JVM made.

        :raises CorruptTableError: when the value is not a filter of that type.
        :raises UnsupportedTableError: when the type or the hash function is unknown.
        """
        _verify_type_code(type_code)
        try:
            data = base64.b64decode(value, validate=True)
            bits, hashes = _read_header(data, 0)
            if type_code == SIMPLE:
                return cls(bits, hashes, (_read_row(data, 0)[0],))
            row_entries, last, count = _DYNAMIC.unpack_from(data, _HEADER.size)
            rows, position = [], _HEADER.size + _DYNAMIC.size
            for _ in range(count):
                row, position = _read_row(data, position)
                rows.append(row)
        except (ValueError, struct.error) as error:
            raise CorruptTableError(f"a base file's bloom filter cannot be read: {error}") from error
        return cls(bits, hashes, tuple(rows), row_entries, last)

    def might_contain(self, keys: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
        """Which keys may be in the set; every key of the set is among them.

        :param keys: strings without nulls.
        :return: one boolean for each key.
        """
        view = _Keys(keys)
        found = np.zeros(view.count, np.bool_)
        if view.count < _WORTH_ARRAYS:
            for number, key in enumerate(view.texts(range(view.count))):
                found[number] = self._might_contain(key)
            return found
        for members, hashed in view.hashed(np.arange(view.count)):
            # alive[r]: the keys that so far have all their bits in row r.
            alive = np.ones((len(self.rows), len(members)), np.bool_)
            for _ in range(self.hashes):
                positions = _positions(hashed.next(), self.bits)
                byte, bit = positions >> 3, (positions & 7).astype(np.uint8)
                for row, bitmap in enumerate(self.rows):
                    alive[row] &= (bitmap[byte] >> bit) & 1 != 0
                keep: npt.NDArray[np.bool_] = np.any(alive, axis=0, keepdims=True)[0]
                # Most absent keys are gone after a few of the hashes.
                if np.count_nonzero(keep) < 0.7 * len(keep):
                    members, alive = members[keep], alive[:, keep]
                    hashed.keep(keep)
                if not len(members):
                    break
            found[members[alive.any(axis=0)]] = True
        return found

    def _might_contain(self, key: bytes) -> bool:
        rows = self.rows
        for position in _positions_of(key, self.bits, self.hashes):
            rows = tuple(row for row in rows if row[position >> 3] >> (position & 7) & 1)
            if not rows:
                return False
        return True


class _Murmur:
    """The chain of hashes of keys of one length: each is the seed of the next."""

    def __init__(self, length: int, blocks: list[_Words], tail: _Words | None) -> None:
        self._length = np.array(length, np.uint32)
        self._blocks = blocks  # four bytes each, already mixed, which does not depend on the seed
        self._tail = tail
        count = len(blocks[0]) if blocks else len(tail) if tail is not None else 0
        self._state: _Words = np.zeros(count, np.uint32)
        self._scratch: _Words = np.empty(count, np.uint32)

    def next(self) -> _Words:
        """The next hash; valid until the next call."""
        state, scratch = self._state, self._scratch
        state ^= self._length
        for block in self._blocks:
            state *= _MULTIPLIER
            state ^= block
        if self._tail is not None:
            state ^= self._tail
            state *= _MULTIPLIER
        np.right_shift(state, _13, scratch)
        state ^= scratch
        state *= _MULTIPLIER
        np.right_shift(state, _15, scratch)
        state ^= scratch
        return state

    def keep(self, kept: npt.NDArray[np.bool_]) -> None:
        """Continue with some of the keys only."""
        self._blocks = [block[kept] for block in self._blocks]
        self._tail = None if self._tail is None else self._tail[kept]
        self._state = self._state[kept]
        self._scratch = np.empty_like(self._state)


def _verify_no_null(keys: pa.Array | pa.ChunkedArray) -> None:
    if keys.null_count:
        raise ValueError(f"{keys.null_count} of {len(keys)} record keys are null")


class _Keys:
    """Strings as the buffers in which Arrow stores them."""

    def __init__(self, keys: pa.Array | pa.ChunkedArray) -> None:
        array = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
        if isinstance(array, pa.ChunkedArray):  # more than 2 GiB of text
            array = pa.concat_arrays([chunk.cast(pa.large_string()) for chunk in array.chunks])
        _verify_no_null(array)
        self.count = len(array)
        _, offsets, data = array.buffers()
        width = np.int64 if pa.types.is_large_string(array.type) else np.int32
        ends = np.frombuffer(offsets or b"\0" * 8, width)[array.offset : array.offset + self.count + 1]
        self._starts: _Longs = ends[:-1].astype(np.int64)
        self._lengths: _Longs = np.diff(ends).astype(np.int64)
        self._bytes: _Bits = np.frombuffer(data or b"", np.uint8)
        # For each position, the four bytes from there on as one little-endian number.
        words = max(0, len(self._bytes) - 3)
        self._words = np.ndarray((words,), "<u4", self._bytes, strides=(1,))

    def hashed(self, members: _Longs) -> Iterator[tuple[_Longs, _Murmur]]:
        """The chosen keys in portions of one length each, ready to be hashed."""
        lengths = self._lengths[members]
        if not len(members):
            return
        if lengths.min() != lengths.max():
            order = np.argsort(lengths, kind="stable")
            members, lengths = members[order], lengths[order]
        borders = [0, *(np.flatnonzero(np.diff(lengths)) + 1).tolist(), len(members)]
        for begin, end in itertools.pairwise(borders):
            for first in range(begin, end, _CHUNK):
                portion = members[first : min(first + _CHUNK, end)]
                yield portion, self._murmur(self._starts[portion], int(lengths[begin]))

    def texts(self, members: Iterable[int]) -> Iterator[bytes]:
        """The chosen keys, one by one."""
        for member in members:
            start = int(self._starts[member])
            yield self._bytes[start : start + int(self._lengths[member])].tobytes()

    def _murmur(self, starts: _Longs, length: int) -> _Murmur:
        whole = length - length % 4
        blocks = []
        for offset in range(0, whole, 4):
            block = self._words[starts + offset].astype(np.uint32, copy=False)
            block *= _MULTIPLIER
            block ^= block >> _24
            block *= _MULTIPLIER
            blocks.append(block)
        if length == whole:
            tail = None if length else np.zeros(len(starts), np.uint32)
            return _Murmur(length, blocks, tail)
        # Unlike Murmur's reference, Hadoop takes the last byte as the lowest, and Java's bytes
        # have a sign that it does not mask away.
        tail = np.zeros(len(starts), np.uint32)
        for offset in range(whole, length):
            signed = self._bytes[starts + offset].view(np.int8).astype(np.int32).view(np.uint32)
            tail ^= signed << np.uint32(8 * (length - 1 - offset))
        return _Murmur(length, blocks, tail)


def _positions(hashed: _Words, bits: int) -> _Longs:
    # abs(hash % bits) in Java, where % keeps the sign.
    magnitude = np.abs(hashed.view(np.int32)).view(np.uint32)
    # Division by a scalar is vectorised in numpy, the remainder is not.
    quotient = magnitude // np.uint32(bits)
    quotient *= np.uint32(bits)
    magnitude -= quotient
    return magnitude.astype(np.int64)  # numpy takes twice as long to index by any other type


def _positions_of(key: bytes, bits: int, hashes: int) -> Iterator[int]:
    """The bits of one key: :class:`_Murmur` and :func:`_positions` without arrays."""
    multiplier, length = int(_MULTIPLIER), len(key)
    whole = length - length % 4
    blocks, tail, state = [], 0, 0
    for offset in range(0, whole, 4):
        block = int.from_bytes(key[offset : offset + 4], "little") * multiplier & _MASK
        blocks.append((block ^ block >> 24) * multiplier & _MASK)
    for byte in key[whole:]:
        tail = (tail << 8 & _MASK) ^ (byte if byte < 0x80 else byte | ~0xFF & _MASK)
    for _ in range(hashes):
        state ^= length
        for block in blocks:
            state = state * multiplier & _MASK ^ block
        if length != whole:
            state = (state ^ tail) * multiplier & _MASK
        state = (state ^ state >> 13) * multiplier & _MASK
        state ^= state >> 15
        yield min(state, (1 << 32) - state) % bits  # abs() of a Java int


def _row_of_few(keys: Iterable[str], bits: int, hashes: int) -> _Bits:
    row = bytearray((bits + 7) // 8)
    for key in keys:
        for position in _positions_of(key.encode(), bits, hashes):
            row[position >> 3] |= 1 << (position & 7)
    return np.frombuffer(bytes(row), np.uint8)


def _fill(keys: _Keys, members: _Longs, bits: int, hashes: int) -> _Bits:
    unpacked = np.zeros((bits + 7) // 8 * 8, np.uint8)
    _set_bits(unpacked, keys, members, bits, hashes)
    return np.packbits(unpacked, bitorder="little")


def _set_bits(unpacked: _Bits, keys: _Keys, members: _Longs, bits: int, hashes: int) -> None:
    def set_those_of(some: _Longs) -> None:
        for portion, hashed in keys.hashed(some):
            if len(portion) < _WORTH_SINGLE_HASHES:
                chain = np.concatenate([hashed.next().copy() for _ in range(hashes)])
                unpacked[_positions(chain, bits)] = 1
                continue
            for _ in range(hashes):
                unpacked[_positions(hashed.next(), bits)] = 1

    if len(members) < _WORTH_THREADS:
        set_those_of(members)
        return
    with ThreadPoolExecutor(_THREADS, "bloom-filter") as pool:  # threads only set bits, so no order matters
        list(pool.map(set_those_of, np.array_split(members, _THREADS)))


def _row_members(row: int, count: int, entries: int, most_rows: int) -> _Longs:
    """The positions of the keys that a dynamic filter puts into a row.

    The rows are filled one after the other. When the last row is full, the next key goes to the first row.
    The keys after it go to each row in turn, beginning again with the first.
    """
    own = np.arange(row * entries, min((row + 1) * entries, count))
    full = entries * most_rows
    if count <= full:
        return own
    extra = [np.arange(full, full + 1)] if row == 0 else []
    return np.concatenate([own, *extra, np.arange(full + 1 + row, count, most_rows)])


def _read_header(data: bytes, position: int) -> tuple[int, int]:
    version, hashes, hash_type, bits = _HEADER.unpack_from(data, position)
    if version != _VERSION or hash_type != _MURMUR:
        raise UnsupportedTableError(
            f"a base file's bloom filter has version {version} and hash type {hash_type}, supported are "
            f"{_VERSION} and {_MURMUR} (Murmur): rewrite the file, for example by clustering it"
        )
    if bits <= 0 or hashes <= 0:
        raise ValueError(f"{bits} bits, {hashes} hashes")
    return bits, hashes


def _read_row(data: bytes, position: int) -> tuple[_Bits, int]:
    bits, _ = _read_header(data, position)
    begin = position + _HEADER.size
    end = begin + (bits + 7) // 8
    if end > len(data):
        raise ValueError(f"cut off at byte {len(data)} of {end}")
    return np.frombuffer(data, np.uint8, end - begin, begin), end


def _verify_type_code(type_code: str) -> None:
    if type_code not in (SIMPLE, DYNAMIC_V0):
        raise UnsupportedTableError(
            f"bloom filter type {type_code!r} is not known; known are {SIMPLE} and {DYNAMIC_V0}"
        )
