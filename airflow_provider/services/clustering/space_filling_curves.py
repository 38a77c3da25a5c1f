"""Space-filling curves: one number for several coordinates; neighbours in all coordinates stay close.

Vectorised over rows. A cell is a position in a grid of as many dimensions as there are columns, each with
``2**bits`` steps; a curve numbers all cells of the grid.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Cells = npt.NDArray[np.uint64]
"""Coordinates: one row of the array for each dimension, one column for each row of the table."""

MOST_BITS = 63
"""The most bits of a position on a curve: those of all dimensions together."""


def z_order(cells: Cells, bits: int) -> npt.NDArray[np.uint64]:
    """Positions of cells on the Z-order curve (Morton order): their bits, interleaved.

    :param cells: coordinates below ``2**bits``; the first dimension has the highest bit.
    :param bits: number of bits of a dimension.
    :raises ValueError: when the dimensions have more than :data:`MOST_BITS` bits together.
    """
    dimensions = _check(cells, bits)
    spread = _spread_bytes(dimensions)
    places = np.zeros(cells.shape[1], np.uint64)
    for dimension, coordinates in enumerate(cells):
        for byte in range(0, bits, 8):
            found = spread[((coordinates >> np.uint64(byte)) & np.uint64(0xFF)).astype(np.uint8)]
            places |= found << np.uint64(byte * dimensions + dimensions - 1 - dimension)
    return places


def hilbert(cells: Cells, bits: int) -> npt.NDArray[np.uint64]:
    """Positions of cells on the Hilbert curve: consecutive positions are neighbours in the grid.

    The axes are turned and mirrored from the highest bit to the lowest, until the Gray code of the
    interleaved bits is the position (J. Skilling, "Programming the Hilbert curve", 2004).

    :param cells: coordinates below ``2**bits``.
    :param bits: number of bits of a dimension.
    :raises ValueError: when the dimensions have more than :data:`MOST_BITS` bits together.
    """
    dimensions = _check(cells, bits)
    axes = cells.astype(np.uint32 if bits <= 32 else np.uint64, copy=True)
    one, nothing = axes.dtype.type(1), axes.dtype.type(0)
    for bit in range(bits - 1, 0, -1):
        below = axes.dtype.type((1 << bit) - 1)
        for dimension in range(dimensions):
            mirrors = below * (axes[dimension] >> axes.dtype.type(bit) & one)
            exchanges = (axes[0] ^ axes[dimension]) & (below ^ mirrors)
            axes[0] ^= mirrors | exchanges
            axes[dimension] ^= exchanges
    np.bitwise_xor.accumulate(axes, axis=0, out=axes)
    turned = np.full(axes.shape[1], nothing)
    for bit in range(bits - 1, 0, -1):
        turned ^= (axes[-1] >> axes.dtype.type(bit) & one) * axes.dtype.type((1 << bit) - 1)
    return z_order((axes ^ turned).astype(np.uint64), bits)


def _check(cells: Cells, bits: int) -> int:
    if len(cells) * bits > MOST_BITS:
        raise ValueError(f"{len(cells)} dimensions of {bits} bits are more than {MOST_BITS} bits")
    return len(cells)


def _spread_bytes(dimensions: int) -> npt.NDArray[np.uint64]:
    """For every byte value, its bits with ``dimensions - 1`` zeros between them."""
    values = np.arange(256, dtype=np.uint64)
    spread = np.zeros(256, np.uint64)
    for bit in range(min(8, -(-64 // dimensions))):
        spread |= (values >> np.uint64(bit) & np.uint64(1)) << np.uint64(bit * dimensions)
    return spread
