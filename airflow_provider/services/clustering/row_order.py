"""The order of rows in a layout, from columns of any type that can be ordered."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider.services.clustering.space_filling_curves import MOST_BITS, hilbert, z_order

LAYOUTS = {"linear": "LINEAR", "z-order": "ZORDER", "hilbert": "HILBERT"}
"""How rows are ordered by several columns, and Hudi's name for it (``LayoutOptimizationStrategy``)."""

MOST_COLUMNS = 16

_CURVES = {"z-order": z_order, "hilbert": hilbert}
_BITS = 16  # bits of a dimension: 65,536 steps separate more files than a group ever has
_SAMPLE_ROWS = 16_384

_Numbers = npt.NDArray[np.int64]


def row_order(layout: str, columns: Sequence[pa.ChunkedArray]) -> _Numbers:
    """Positions of the rows in the order of a layout; the sort is stable.

    :param layout: one of :data:`LAYOUTS`.
    :param columns: the columns to order by, the most important one first.
    """
    ranked = [ranks(column) for column in columns]
    rows, dimensions = len(ranked[0]), len(ranked)
    if layout == "linear" or dimensions == 1:
        bits = rows.bit_length()
        if bits * dimensions > MOST_BITS:
            return np.lexsort(ranked[::-1])
        places = functools.reduce(lambda high, low: high << bits | low, ranked)
    else:
        # Each step has about the same number of rows. So a column with few values divides the rows as much as
        # one with many, and outliers do not push all other values into one step.
        bits = min(_BITS, MOST_BITS // dimensions)
        steps = np.stack([(each << bits) // max(1, rows) for each in ranked]).astype(np.uint64)
        places = _CURVES[layout](steps, bits).astype(np.int64)
    order: _Numbers = np.argsort(places, kind="stable")
    return order


def can_order(kind: pa.DataType) -> bool:
    """Whether rows can be ordered by a column of this type."""
    return not pa.types.is_nested(kind) and not pa.types.is_null(kind)


def ranks(column: pa.ChunkedArray) -> _Numbers:
    """For every row, the number of rows with a smaller value; null is the smallest value, NaN the largest.

    :param column: values of a type that :func:`can_order` allows.
    """
    values = pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)
    if pa.types.is_dictionary(values.type):
        return _ranks_of_codes(values)
    if pa.types.is_floating(values.type):
        # Zero and NaN get one bit pattern each.
        nan, zero = (pa.scalar(each, values.type) for each in (math.nan, 0.0))
        values = pc.if_else(pc.is_nan(values), nan, pc.add(values, zero))
    sample = values.slice(0, _SAMPLE_ROWS).drop_null()
    if 2 * pc.count_distinct(sample).as_py() > len(sample):
        after_nulls: _Numbers = (
            pc.rank(values, tiebreaker="min").to_numpy().astype(np.int64) - 1 + values.null_count
        )
        after_nulls[values.is_null().to_numpy(zero_copy_only=False)] = 0
        return after_nulls
    # The column seems to have few distinct values, so these are compared, instead of all rows.
    return _ranks_of_codes(values.dictionary_encode())


def _ranks_of_codes(encoded: pa.DictionaryArray) -> _Numbers:
    codes = encoded.indices.fill_null(-1).to_numpy() + 1
    in_order = np.concatenate(
        [[0], pc.array_sort_indices(encoded.dictionary).to_numpy().astype(np.int64) + 1]
    )
    counts = np.bincount(codes, minlength=len(in_order))[in_order]
    smaller = np.empty(len(in_order), np.int64)
    smaller[in_order] = np.cumsum(counts) - counts
    found: _Numbers = smaller[codes]
    return found
