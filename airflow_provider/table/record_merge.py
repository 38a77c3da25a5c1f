"""Merging versions of records: a base file and newer versions become one row per record.

A copy-on-write merge writes the result as the next base file; a merge-on-read snapshot shows it. The merge is
vectorised. It holds the newer versions in memory, and the base file one row group at a time. The table's
:class:`~airflow_provider.table.merge_semantics.MergeSemantics` decide between two versions of a record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider.table.merge_semantics import Mask, MergeSemantics, as_mask
from airflow_provider.table.schema import META_COLUMNS

Positions = npt.NDArray[np.int64]

_RECORD_KEY = META_COLUMNS[2]


@dataclass(frozen=True)
class Batch:
    """Versions of records, with the values that decide between two versions of one record.

    :param rows: the rows.
    :param keys: the rows' record keys.
    :param ordering: the rows' values of each ordering column; empty when the later write wins.
    :param deletes: which rows delete their record; None when no row does.
    :param unsaid: by column, which rows have no value for it because they are a partial update. The older
        version's value stays there. A column that every row has a value for is left out.
    """

    rows: pa.Table
    keys: pa.Array
    ordering: tuple[pa.Array, ...] = ()
    deletes: Mask | None = None
    unsaid: Mapping[str, Mask] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def deletions(self) -> Mask:
        """Which of the rows delete their record."""
        return np.zeros(len(self), np.bool_) if self.deletes is None else self.deletes

    def take(self, positions: Positions) -> Batch:
        """The rows at these positions, in their order."""
        where = pa.array(positions)
        deletes = None if self.deletes is None else self.deletes[positions]
        ordering = tuple(column.take(where) for column in self.ordering)
        unsaid = {name: mask[positions] for name, mask in self.unsaid.items()}
        return Batch(self.rows.take(where), self.keys.take(where), ordering, deletes, unsaid)

    def filter(self, chosen: Mask) -> Batch:
        """The rows where the mask is true, in their order."""
        if chosen.all():
            return self
        where = pa.array(chosen)
        deletes = None if self.deletes is None else self.deletes[chosen]
        ordering = tuple(column.filter(where) for column in self.ordering)
        unsaid = {name: mask[chosen] for name, mask in self.unsaid.items()}
        return Batch(self.rows.filter(where), self.keys.filter(where), ordering, deletes, unsaid)

    def is_unsaid(self, column: str) -> Mask:
        """Which of the rows have no value for a column."""
        found = self.unsaid.get(column)
        return np.zeros(len(self), np.bool_) if found is None else found

    def keeps_values(self, semantics: MergeSemantics) -> bool:
        """Whether a row may take values from an older version of its record."""
        return bool(self.unsaid) or semantics.keeps_values

    @classmethod
    def of_parts(cls, parts: Sequence[Batch]) -> Batch:
        """Several batches of the same columns, as one."""
        deletes = None
        if any(part.deletes is not None for part in parts):
            deletes = np.concatenate([part.deletions for part in parts])
        partial = sorted({name for part in parts for name in part.unsaid})
        return cls(
            pa.concat_tables([part.rows for part in parts]).combine_chunks(),
            pa.concat_arrays([part.keys for part in parts]),
            tuple(
                pa.concat_arrays(list(columns)) for columns in zip(*(p.ordering for p in parts), strict=True)
            ),
            deletes,
            {name: np.concatenate([part.is_unsaid(name) for part in parts]) for name in partial},
        )


def latest_versions(batch: Batch, arrival: pa.Array, semantics: MergeSemantics | None = None) -> Batch:
    """One row per record key: the row with the largest ordering values, and of equal rows the last.

    A null ordering value is smaller than any other.

    :param batch: the rows; several may have one key.
    :param arrival: numbers that grow in the order in which the rows came.
    :param semantics: the table's semantics. When a version keeps values of an older one, the versions are
        merged one after the other, in the order in which they came.
    """
    encoded = batch.keys.dictionary_encode()
    if len(encoded.dictionary) == len(batch.keys):
        return batch
    if semantics is not None and batch.keeps_values(semantics):
        return _folded(batch, encoded.indices, arrival, semantics)
    columns = {"key": encoded.indices}
    for number, values in enumerate(batch.ordering):
        columns[f"known {number}"] = values.is_valid().cast(pa.int8())
        columns[f"ordering {number}"] = _comparable(values)
    columns["arrival"] = arrival
    positions = _sorted(columns)
    codes = encoded.indices.to_numpy()[positions]
    chosen = np.zeros(len(codes), np.bool_)
    chosen[positions[np.append(codes[1:] != codes[:-1], True)]] = True
    return batch.filter(chosen)


def _folded(batch: Batch, codes: pa.Array, arrival: pa.Array, semantics: MergeSemantics) -> Batch:
    """Merge each key's versions in the order in which they came: the n-th version of all keys at once."""
    positions = _sorted({"key": codes, "arrival": arrival})
    sorted_codes = codes.to_numpy()[positions]
    starts = np.flatnonzero(np.append(True, sorted_codes[1:] != sorted_codes[:-1]))
    counts = np.diff(np.append(starts, len(positions)))
    merged, done, number = batch.take(positions[starts]), [], 0
    while len(starts):
        number += 1
        goes_on = counts > number
        done.append(merged.filter(~goes_on))
        starts, counts = starts[goes_on], counts[goes_on]
        newer = batch.take(positions[starts + number])
        merged = _merged(merged.filter(goes_on), newer, semantics)[0]
    return Batch.of_parts(done)


def _merged(older: Batch, newer: Batch, semantics: MergeSemantics) -> tuple[Batch, Mask, Mask]:
    """Merge two versions of the same records, row by row.

    :return: the merged rows, where the newer version wins, and where the winner took a value of the other.
    """
    wins = _at_least(newer.ordering, older.ordering, len(newer))
    both = np.arange(len(newer), dtype=np.int64)
    chosen = pa.array(np.where(wins, both + len(newer), both))
    took = np.zeros(len(newer), np.bool_)
    may_take = ~(older.deletions | newer.deletions)
    columns, unsaid = [], {}
    for name in newer.rows.column_names:
        new, old = newer.rows[name].combine_chunks(), older.rows[name].combine_chunks()
        gaps = (
            semantics.says_nothing(new) | newer.is_unsaid(name),
            semantics.says_nothing(old) | older.is_unsaid(name),
        )
        gap = may_take & np.where(wins, *gaps)
        took |= gap & ~np.where(wins, gaps[1], gaps[0])
        taken = np.where(wins ^ gap, both + len(newer), both)
        columns.append(pa.concat_arrays([old.cast(new.type), new]).take(pa.array(taken)))
        if name in newer.unsaid or name in older.unsaid:
            unsaid[name] = np.where(wins ^ gap, newer.is_unsaid(name), older.is_unsaid(name))
    rows = pa.Table.from_arrays(columns, schema=newer.rows.schema)
    ordering = tuple(
        pa.concat_arrays([old.cast(new.type), new]).take(chosen)
        for old, new in zip(older.ordering, newer.ordering, strict=True)
    )
    deletes = np.where(wins, newer.deletions, older.deletions)
    is_taken_out = None if newer.deletes is None and older.deletes is None else deletes
    return Batch(rows, newer.keys, ordering, is_taken_out, unsaid), wins, took


class Merge:
    """Merges a batch into a base file, whose row groups pass one after the other.

    :param batch: one row per key.
    :param semantics: the table's semantics.
    :ivar deleted: how many rows of the base file a row of the batch has deleted.
    :ivar found: which rows of the batch have a key that the base file has.
    """

    def __init__(self, batch: Batch, semantics: MergeSemantics) -> None:
        self._batch = batch
        self._semantics = semantics
        self._beaten = np.zeros(len(batch), np.bool_)
        self._merged: list[Batch] = []
        self.found = np.zeros(len(batch), np.bool_)
        self.deleted = 0

    def surviving(self, old: pa.Table) -> pa.Table:
        """The rows of a row group that the batch does not change.

        :param old: rows of the base file, with Hudi's columns.
        """
        stays = self.stays(old)
        return old if stays.all() else old.filter(pa.array(stays))

    def stays(self, old: pa.Table) -> Mask:
        """Which rows of a row group the batch does not change.

        :param old: rows of the base file. Unless a row may keep values of an older version, the record key
            and the ordering columns are enough.
        """
        batch = self._batch
        position = pc.index_in(old[_RECORD_KEY], value_set=batch.keys).combine_chunks()
        hit = as_mask(position.is_valid())
        stays: Mask = ~hit
        if not hit.any():
            return stays
        where = position.drop_null().to_numpy().astype(np.int64)
        self.found[where] = True
        stays[hit] = ~self._replaced(old, hit, where)
        return stays

    def written(self) -> Iterator[tuple[Batch, Mask]]:
        """The new and changed rows, after all row groups, and for each whether the file has its key."""
        for merged in self._merged:
            yield merged, np.ones(len(merged), np.bool_)
        left = ~(self._beaten | self._batch.deletions)
        if self._batch.keeps_values(self._semantics):
            left &= ~self.found
        if left.any():
            yield (self._batch if left.all() else self._batch.filter(left)), self.found[left]

    def _replaced(self, old: pa.Table, hit: Mask, where: Positions) -> Mask:
        """Which rows of the base file with a key in the batch are replaced or deleted."""
        batch = self._batch
        if batch.keeps_values(self._semantics):
            return self._taking_values(_stored(old.filter(pa.array(hit)), batch, self._semantics), where)
        if batch.ordering:
            mask = pa.array(hit)
            stored = tuple(
                old[name].combine_chunks().filter(mask) for name in self._semantics.ordering_fields
            )
            wins = _at_least(
                tuple(values.take(pa.array(where)) for values in batch.ordering), stored, len(where)
            )
            self._beaten[where[~wins]] = True
        else:
            wins = np.ones(len(where), np.bool_)
        self.deleted += int((wins & batch.deletions[where]).sum())
        return wins

    def _taking_values(self, stored: Batch, where: Positions) -> Mask:
        merged, wins, took = _merged(stored, self._batch.take(where), self._semantics)
        deletes = wins & merged.deletions
        self.deleted += int(deletes.sum())
        changed = (wins | took) & ~deletes
        if changed.any():
            self._merged.append(merged.filter(changed))
        return changed | deletes


def _stored(rows: pa.Table, batch: Batch, semantics: MergeSemantics) -> Batch:
    """Rows of a base file, in the columns of a batch."""
    names, ordering = batch.rows.column_names, semantics.ordering_fields if batch.ordering else ()
    columns = [
        rows[name].combine_chunks() if name in rows.column_names else pa.nulls(len(rows), kind)
        for name, kind in zip(names, batch.rows.schema.types, strict=True)
    ]
    return Batch(
        pa.Table.from_arrays(columns, names),
        rows[_RECORD_KEY].combine_chunks(),
        tuple(rows[name].combine_chunks() for name in ordering),
    )


def _at_least(new: Sequence[pa.Array], old: Sequence[pa.Array], count: int) -> Mask:
    """Where ``new >= old``. The first column decides before the second; null is smaller than any value."""
    found = np.ones(count, np.bool_)
    for one, other in reversed(list(zip(new, old, strict=True))):
        one, other = _comparable(one), _comparable(other).cast(one.type)
        larger = pc.or_(pc.fill_null(pc.greater(one, other), False), pc.and_(one.is_valid(), other.is_null()))
        equal = pc.or_(pc.fill_null(pc.equal(one, other), False), pc.and_(one.is_null(), other.is_null()))
        found = as_mask(larger) | (as_mask(equal) & found)
    return found


def _sorted(columns: dict[str, pa.Array]) -> Positions:
    order = [(name, "ascending") for name in columns]
    positions: Positions = pc.sort_indices(pa.table(columns), sort_keys=order).to_numpy().astype(np.int64)
    return positions


def _comparable(values: pa.Array) -> pa.Array:
    # NaN is the largest number, as for Java's Double.compareTo. Arrow would compare it with nothing.
    if pa.types.is_floating(values.type):
        return pc.if_else(pc.is_nan(values), pa.scalar(float("inf"), values.type), values)
    return values
