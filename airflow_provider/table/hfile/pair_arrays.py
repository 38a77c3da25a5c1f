"""The pairs of many data blocks at once, in arrays.

An HFile has no table of its pairs: each pair begins where the one before ends. So the pairs of a block are
found one after the other. But the first pairs of all blocks are found in one step, then all second pairs, and
so on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider.table.hfile.format import KEY_LENGTH_SIZE, MVCC_SIZE, PAIR_LENGTHS

_Places = npt.NDArray[np.int64]


def pairs_in_blocks(blocks: Sequence[bytes], wanted: Sequence[bytes]) -> tuple[pa.Array, pa.Array]:
    """The pairs of some keys in data blocks, in the order of the blocks and of the pairs in them.

    :param blocks: the data of the blocks, uncompressed; at least one.
    :param wanted: the keys.
    :return: the keys and the values, as large binaries.
    :raises ValueError: when the pairs of a block do not fill it exactly.
    """
    data = np.frombuffer(b"".join(blocks), np.uint8)
    key_at, key_length, value_at, value_length = _pairs(data, blocks)
    order = np.argsort(key_at)
    keys = _taken(data, key_at[order], key_length[order])
    found = pc.is_in(keys, value_set=pa.array(wanted, pa.large_binary()))
    hits = order[np.asarray(found)]
    return keys.filter(found), _taken(data, value_at[hits], value_length[hits])


def _pairs(data: npt.NDArray[np.uint8], blocks: Sequence[bytes]) -> tuple[_Places, _Places, _Places, _Places]:
    """The begins and lengths of the keys, and those of the values."""
    lengths = np.fromiter(map(len, blocks), np.int64, len(blocks))
    ends = np.cumsum(lengths)
    positions = ends - lengths
    head = np.arange(PAIR_LENGTHS.itemsize)
    found: list[tuple[_Places, _Places, _Places, _Places]] = []
    while True:
        is_left = positions < ends
        if not is_left.all():
            positions, ends = positions[is_left], ends[is_left]
        if not len(positions):
            break
        if (ends - positions < PAIR_LENGTHS.itemsize).any():
            raise ValueError("the bytes at the end of a data block are no pair")
        said = np.ascontiguousarray(data[positions[:, None] + head]).view(PAIR_LENGTHS)[:, 0]
        key_at = positions + PAIR_LENGTHS.itemsize
        key_length, value_length = said["key"].astype(np.int64), said["value"].astype(np.int64)
        whole = said["whole"].astype(np.int64)
        value_at = key_at - KEY_LENGTH_SIZE + whole
        positions = value_at + value_length + MVCC_SIZE
        if ((value_length < 0) | (key_length + KEY_LENGTH_SIZE > whole) | (positions > ends)).any():
            raise ValueError("a pair of a data block does not fit into it")
        found.append((key_at, key_length, value_at, value_length))
    key_at, key_length, value_at, value_length = (np.concatenate(each) for each in zip(*found, strict=True))
    return key_at, key_length, value_at, value_length


def _taken(data: npt.NDArray[np.uint8], begins: _Places, lengths: _Places) -> pa.LargeBinaryArray:
    """Parts of the data, in the data's order, as an array."""
    # Arrow copies whole elements. So the parts and the gaps between them make one array, and Arrow takes the
    # parts from it.
    borders = np.empty(2 * len(begins), np.int64)
    borders[0::2], borders[1::2] = begins, begins + lengths
    buffers = [None, pa.py_buffer(borders), pa.py_buffer(data)]
    with_gaps = pa.Array.from_buffers(pa.large_binary(), max(0, len(borders) - 1), buffers)
    return with_gaps.take(pa.array(np.arange(0, len(borders), 2)))
