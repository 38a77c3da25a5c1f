"""Copy-on-write merge: which rows of a batch and of a base file make the next base file.

Everything is vectorised; the batch is in memory, the base file passes by row group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider.table.schema import META_COLUMNS

Mask = npt.NDArray[np.bool_]

_RECORD_KEY = META_COLUMNS[2]


@dataclass(frozen=True)
class Batch:
    """Incoming rows of one file group, and what decides between two versions of a record.

    :param rows: the rows.
    :param keys: their record keys.
    :param ordering: their values of the ordering column; None where the later write wins.
    """

    rows: pa.Table
    keys: pa.Array
    ordering: pa.Array | None

    def filter(self, chosen: Mask) -> Batch:
        """The rows where the mask is true, in their order."""
        mask = pa.array(chosen)
        ordering = None if self.ordering is None else self.ordering.filter(mask)
        return Batch(self.rows.filter(mask), self.keys.filter(mask), ordering)


def latest_versions(batch: Batch, arrival: pa.Array) -> Batch:
    """One row a record key: the one with the largest ordering value, the last of equals.

    A null ordering value is smaller than any other.

    :param batch: rows, keys may repeat.
    :param arrival: numbers that grow in the order in which the rows came.
    """
    encoded = batch.keys.dictionary_encode()
    if len(encoded.dictionary) == len(batch.keys):
        return batch
    columns = {"key": encoded.indices, "arrival": arrival}
    if batch.ordering is not None:
        columns["known"] = batch.ordering.is_valid().cast(pa.int8())
        columns["ordering"] = _comparable(batch.ordering)
    order = [(name, "ascending") for name in ("key", "known", "ordering", "arrival") if name in columns]
    positions = pc.sort_indices(pa.table(columns), sort_keys=order).to_numpy()
    codes = encoded.indices.to_numpy()[positions]
    chosen = np.zeros(len(codes), np.bool_)
    chosen[positions[np.append(codes[1:] != codes[:-1], True)]] = True
    return batch.filter(chosen)


@dataclass
class Matches:
    """What became of a batch's rows while a base file passed by.

    :param found: rows whose key is in the base file.
    :param beaten: rows that are older than the version in the base file.
    """

    found: Mask
    beaten: Mask

    @classmethod
    def none(cls, batch: Batch) -> Matches:
        """Before the first row group."""
        return cls(np.zeros(len(batch.keys), np.bool_), np.zeros(len(batch.keys), np.bool_))


def surviving(batch: Batch, old: pa.Table, ordering_field: str | None, matches: Matches) -> pa.Table:
    """The rows of a row group that the batch does not replace.

    :param batch: one row a key.
    :param old: rows of the base file, with Hudi's columns.
    :param ordering_field: the ordering column in ``old``; None where the batch always wins.
    :param matches: is updated.
    """
    position = pc.index_in(old[_RECORD_KEY], value_set=batch.keys).combine_chunks()
    hit = _mask(position.is_valid())
    if not hit.any():
        return old
    where = position.drop_null().to_numpy()
    matches.found[where] = True
    replaced = hit
    if ordering_field is not None and batch.ordering is not None:
        stored = old[ordering_field].combine_chunks().filter(pa.array(hit))
        wins = _at_least(batch.ordering.take(pa.array(where)), stored)
        matches.beaten[where[~wins]] = True
        replaced = hit.copy()
        replaced[hit] = wins
    return old.filter(pa.array(~replaced))


def _at_least(new: pa.Array, old: pa.Array) -> Mask:
    """Where ``new >= old``; null is smaller than any value, and equal to itself."""
    new, old = _comparable(new), _comparable(old)
    larger = pc.fill_null(pc.greater_equal(new, old.cast(new.type)), False)
    return _mask(pc.or_(larger, old.is_null()))


def _mask(values: pa.Array) -> Mask:
    mask: Mask = values.to_numpy(zero_copy_only=False)
    return mask


def _comparable(values: pa.Array) -> pa.Array:
    # NaN is the largest number (Java's Double.compareTo); Arrow finds it neither small nor large.
    if pa.types.is_floating(values.type):
        return pc.if_else(pc.is_nan(values), pa.scalar(float("inf"), values.type), values)
    return values
