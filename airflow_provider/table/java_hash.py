"""Java's ``String.hashCode``, by which Hudi spreads record keys over file groups."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_WORTH_ARRAYS = 64  # from so many texts on; arrays take dozens of calls, whatever the number of texts


def java_hash(text: str) -> int:
    """The hash code of a text over its UTF-16 units, modulo 2**32.

    :param text: may hold lone surrogates.
    """
    code = 0
    units = text.encode("utf-16-le", "surrogatepass")
    for low, high in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    return code


def java_hashes(texts: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.uint32]:
    """:func:`java_hash` of many texts at once.

    :param texts: strings without nulls.
    """
    array = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    if len(array) < _WORTH_ARRAYS:
        return np.array([java_hash(text) for text in array.to_pylist()], np.uint32)
    array = array.cast(pa.large_string())
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets or bytes(8), np.int64)[array.offset : array.offset + len(array) + 1]
    starts, lengths = ends[:-1], np.diff(ends)
    content = np.frombuffer(data or b"", np.uint8)
    codes = np.zeros(len(array), np.uint32)
    shortest = int(lengths.min())
    for position in range(shortest):
        codes *= np.uint32(31)
        codes += content[starts + position]
    for position in range(shortest, int(lengths.max(initial=0))):
        longer = np.flatnonzero(lengths > position)
        codes[longer] = codes[longer] * np.uint32(31) + content[starts[longer] + position]
    # For characters beyond ASCII the bytes are not Java's UTF-16 units.
    for other in np.flatnonzero(~pc.string_is_ascii(array).to_numpy(zero_copy_only=False)):
        codes[other] = java_hash(array[int(other)].as_py())
    return codes
