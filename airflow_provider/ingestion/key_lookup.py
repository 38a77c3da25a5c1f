"""Finding the file groups of record keys.

If the table has a record index, it knows the file group of every key, and no other file is opened. Otherwise
every base file is searched (Hudi's bloom index). Its bloom filter, from the file or from the index
``bloom_filters``, rules out most keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider.exceptions import InvalidRecordKeyError, UnsupportedTableError
from airflow_provider.table.file_groups import BaseFile, FileGroupId, FileSlice, FileSystemView
from airflow_provider.table.files import BaseFileReader, BloomFilter, parse_data_file_name
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata_table import RecordLocation, UsableIndexes
from airflow_provider.table.properties import INDEX_TYPE, NUMBER_OF_BUCKETS
from airflow_provider.table.reading import SliceReader, slices_of
from airflow_provider.table.schema import META_COLUMNS
from airflow_provider.table.storage import Storage

_RECORD_KEY = META_COLUMNS[2]


def keys_in_base_file(
    storage: Storage, path: str, keys: pa.Array, bloom: BloomFilter | None = None
) -> npt.NDArray[np.bool_]:
    """Which keys are in a base file.

    The key range and the bloom filter in the file's footer rule out most keys. The key column is read only if
    some keys are left.

    :param storage: the table's storage.
    :param path: path relative to the table.
    :param keys: record keys, without nulls.
    :param bloom: the file's bloom filter, if an index has it. Then the file is opened only if it may have one
        of the keys.
    :return: one boolean for each key.
    :raises CorruptTableError: when the file is not a base file.
    """
    candidates = np.ones(len(keys), np.bool_) if bloom is None else bloom.might_contain(keys)
    if not candidates.any():
        return candidates
    with BaseFileReader(storage, path) as base_file:
        footer = base_file.footer
        if not footer.num_rows:
            return np.zeros(len(keys), np.bool_)
        if footer.min_key is not None and footer.max_key is not None:
            in_range = pc.and_(pc.greater_equal(keys, footer.min_key), pc.less_equal(keys, footer.max_key))
            candidates &= np.array(in_range)
        if bloom is None and footer.bloom is not None and candidates.any():
            candidates[candidates] = footer.bloom.might_contain(keys.filter(pa.array(candidates)))
        if not candidates.any():
            return candidates
        wanted = keys.filter(pa.array(candidates))
        found = np.zeros(len(wanted), np.bool_)
        for group in base_file.row_groups([_RECORD_KEY]):
            stored = group[_RECORD_KEY].combine_chunks()
            if len(wanted) < len(stored):  # a smaller hash table is faster, and fits the cache
                stored = stored.filter(pc.is_in(stored, value_set=wanted))
            found |= np.array(pc.is_in(wanted, value_set=stored))
    candidates[candidates] = found
    return candidates


Living = Callable[[BaseFile], pa.ChunkedArray | None]
"""Returns the record keys that live in the file slice of a base file; None where all its keys do."""

Hit = tuple[BaseFile, npt.NDArray[np.int64]]
"""A base file, and the positions of the keys that are in it."""


def without_the_dead(hits: Sequence[Hit], keys: pa.Array, living: Living) -> list[Hit]:
    """For keys in several base files, leave out the files whose log files have deleted the key.

    A key that a log file deletes stays in its base file until the next compaction. An upsert brings it back
    into the same file group. But an insert, which looks up no key, may have put it into another one.

    :param hits: the base files in which the keys were found.
    :param keys: record keys, without nulls.
    :param living: returns the keys that live in a file slice.
    :return: the hits, each key only in the file groups in which it lives; a key that lives in none stays in
        one.
    """
    counts = np.bincount(np.concatenate([found for _, found in hits]), minlength=len(keys)) if hits else None
    if counts is None or (counts < 2).all():
        return list(hits)
    stays = []
    lives = np.zeros(len(keys), np.bool_)
    for base_file, found in hits:
        known = living(base_file) if (counts[found] > 1).any() else None
        here = np.ones(len(found), np.bool_)
        if known is not None:
            is_known = np.array(pc.is_in(keys.take(pa.array(found)), value_set=known.combine_chunks()))
            here = (counts[found] < 2) | is_known
        lives[found[here]] = True
        stays.append(here)
    left: list[Hit] = []
    for (base_file, found), here in zip(hits, stays, strict=True):
        chosen = found[here | ~lives[found]]
        lives[chosen] = True  # a key that lives nowhere stays in the first of its file groups
        if len(chosen):
            left.append((base_file, chosen))
    return left


def dead_hits(
    at: Mapping[BaseFile, Sequence[int] | npt.NDArray[np.int64]], keys: pa.Array, living: Living
) -> dict[BaseFile, npt.NDArray[np.int64]]:
    """The hits that :func:`without_the_dead` leaves out.

    :param at: the positions of the keys that are in each base file.
    :param keys: record keys, without nulls.
    :param living: see :func:`without_the_dead`.
    :return: the positions of the keys that do not count, by base file.
    """
    left = dict(
        without_the_dead([(base_file, np.asarray(each)) for base_file, each in at.items()], keys, living)
    )
    return {base_file: np.setdiff1d(each, left.get(base_file, [])) for base_file, each in at.items()}


def located(
    indexes: UsableIndexes, keys: pa.Array, paths: pa.Array
) -> list[tuple[FileGroupId, npt.NDArray[np.int64]]] | None:
    """The file groups that keys live in, by the record index, each with the positions of its keys.

    :param indexes: the table's indexes.
    :param keys: record keys, without nulls.
    :param paths: partition path of each key's row.
    :return: None where the record index cannot be used.
    :raises InvalidRecordKeyError: when a key lives in another partition, or comes for two partitions.
    """
    known = indexes.locate(keys)
    if known is None:
        return None
    which, locations = known
    of_path = paths.dictionary_encode()
    path_codes = of_path.indices.to_numpy()
    check_one_path(keys, path_codes)
    positions = np.flatnonzero(which >= 0)
    which = which[positions]
    codes = {path: code for code, path in enumerate(of_path.dictionary.to_pylist())}
    path_codes_of_locations = np.array([codes.get(each.partition_path, -1) for each in locations], np.int64)
    elsewhere = np.flatnonzero(path_codes_of_locations[which] != path_codes[positions])
    if len(elsewhere):
        at = int(positions[elsewhere[0]])
        raise lives_elsewhere(keys[at].as_py(), locations[which[elsewhere[0]]], paths[at].as_py())
    groups = [each.file_group for each in locations]
    ordered = sorted(set(groups))
    numbers = np.array([ordered.index(group) for group in groups], np.int64)[which]
    sort = np.argsort(numbers, kind="stable")
    begins = np.searchsorted(numbers[sort], np.arange(1, len(ordered)))
    parts = np.split(positions[sort], begins)
    return [(group, part) for group, part in zip(ordered, parts, strict=False) if len(part)]


def check_one_path(keys: pa.Array, path_codes: npt.NDArray[np.int64]) -> None:
    """Make sure that no key comes for two partitions.

    :param keys: record keys, without nulls.
    :param path_codes: the number of each row's partition.
    :raises InvalidRecordKeyError: when a key comes for two partitions.
    """
    of_key = keys.dictionary_encode()
    if len(of_key.dictionary) == len(keys):
        return
    codes = of_key.indices.to_numpy()
    first = np.empty(len(of_key.dictionary), np.int64)
    first[codes[::-1]] = path_codes[::-1]
    others = np.flatnonzero(first[codes] != path_codes)
    if len(others):
        raise comes_twice(keys[int(others[0])].as_py())


def lives_elsewhere(key: str, location: RecordLocation, path: str) -> InvalidRecordKeyError:
    """The error for a key that lives in another partition.

    :param key: the record key.
    :param location: the location of the key.
    :param path: partition path of the incoming row.
    """
    return InvalidRecordKeyError(
        f"record key {key!r} lives in partition {location.partition_path!r} and comes for partition "
        f"{path!r}: a table with a record index has one record per key; delete the old one first, or drop "
        "the record index",
        record_key=key,
        partition=location.partition_path,
    )


def is_there_already(key: str, location: RecordLocation) -> InvalidRecordKeyError:
    """The error for an inserted key that the table already has.

    :param key: the record key.
    :param location: the location of the key.
    """
    return InvalidRecordKeyError(
        f"record key {key!r} is in the table already, in partition {location.partition_path!r}: a table with "
        "a record index has one record per key; upsert the rows, or drop the record index",
        record_key=key,
        partition=location.partition_path,
    )


def comes_twice(key: str) -> InvalidRecordKeyError:
    """The error for a key that comes more than once, and would exist twice: for two partitions, or in an
    insert.

    :param key: the record key.
    """
    return InvalidRecordKeyError(
        f"record key {key!r} comes more than once: a table with a record index has one record per key; "
        "upsert them into one partition, or leave one of them out",
        record_key=key,
    )


# --- merge-on-read ----------------------------------------------------------------------------


@dataclass(frozen=True)
class LogTargets:
    """The file slices of some partitions, as a write sees them.

    :param table: the table; a copy-on-write table has no log files.
    :param view: the snapshot that the write sees.
    :param slices: the slices by file group; empty for a copy-on-write table.
    """

    table: HudiTable
    view: FileSystemView
    slices: Mapping[FileGroupId, FileSlice]

    @classmethod
    def of(cls, table: HudiTable, view: FileSystemView, partitions: Iterable[str]) -> LogTargets:
        """The slices of some partitions.

        :param table: the table.
        :param view: the snapshot that the write sees.
        :param partitions: partition paths.
        :raises UnsupportedTableError: when a file group has log files alone, because its keys cannot be
            found.
        """
        found = slices_of(table, view, partitions) if table.is_merge_on_read else []
        for each in found:
            if each.base_path is None:
                raise UnsupportedTableError(
                    f"table {table.location}: file group {each.partition_path}/{each.file_id} is log files "
                    "alone, in which an index of another Hudi writer finds its keys, and none here; compact "
                    f"the table first, or, where that is a bucket index, set {INDEX_TYPE}=BUCKET and "
                    f"{NUMBER_OF_BUCKETS} among its options",
                    location=table.location,
                )
        return cls(table, view, {each.file_group: each for each in found})

    @property
    def with_logs(self) -> frozenset[FileGroupId]:
        """The file groups that have log files, and whose base files take no new rows."""
        return frozenset(group for group, each in self.slices.items() if each.log_paths)

    @property
    def log_paths(self) -> dict[FileGroupId, tuple[str, ...]]:
        """The log files of every file group, in the order in which they are merged."""
        return {group: each.log_paths for group, each in self.slices.items()}

    def living(self, base_file: BaseFile) -> pa.ChunkedArray | None:
        """The record keys that live in the slice of a base file; None where all keys of the base file do.

        :param base_file: the base file.
        """
        reader, file_slice = SliceReader.of(self.table, self.view), self.slices[base_file.file_group]
        return reader.keys(file_slice) if reader.may_delete(file_slice) else None

    def requested_later(self, file_group: FileGroupId, instant: str) -> str | None:
        """The last instant of the slice, if it was requested later than a write.

        Other Hudi readers merge the log files of a slice in the order of requested times, not of completion.

        :param file_group: the file group.
        :param instant: requested time of the write.
        :return: None when the write was requested last.
        """
        names = (path.rpartition("/")[2] for path in self.slices[file_group].paths)
        last = max(parsed.instant for name in names if (parsed := parse_data_file_name(name)))
        return last if last > instant else None


def merged_again(table: HudiTable, view: FileSystemView, file_slice: FileSlice, instant: str) -> str | None:
    """An instant whose log file readers would merge a second time, with a base file that a write makes of a
    slice.

    A write makes a base file of a slice when a record comes back that a log file has deleted. A log file
    belongs to the newest base file that was requested before the log file's instant completed. So a log file
    whose instant completed after the write was requested would also belong to the new base file.

    :param table: the table.
    :param view: the snapshot on which the write merges.
    :param file_slice: the slice.
    :param instant: requested time of the write.
    :return: None where there is no such instant, or where the slice has no deletes.
    """
    names = (path.rpartition("/")[2] for path in file_slice.log_paths)
    instants = (parsed.instant for name in names if (parsed := parse_data_file_name(name)))
    late = [each for each in instants if view.completed_at(each) > instant]
    return late[-1] if late and SliceReader.of(table, view).may_delete(file_slice) else None


def check_appendable(table: HudiTable) -> None:
    """Make sure that newer versions of a table's rows are whole rows, because log files need whole rows.

    :param table: the table.
    :raises UnsupportedTableError: when a newer version keeps values of the older one.
    """
    if table.is_merge_on_read and table.merge_semantics.keeps_values:
        raise UnsupportedTableError(
            f"table {table.location} is {table.config.table_type}, and a newer version of its rows keeps "
            "values of the older one (hoodie.table.partial.update.mode): such rows are not written to log "
            "files here",
            location=table.location,
        )
