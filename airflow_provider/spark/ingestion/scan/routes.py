"""The targets of the rows that a task reads."""

from __future__ import annotations

import abc
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider.ingestion.file_groups import ARRIVAL, TARGET
from airflow_provider.table.bucket_index import BucketIndex
from airflow_provider.table.java_hash import java_hashes
from airflow_provider.table.keys import partition_paths, record_keys
from airflow_provider.table.properties import TableConfig

# Similar keys have similar hash codes; the upper bits of the product with this number do not.
_GOLDEN_RATIO = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Tags:
    """The targets of the rows whose keys were found, among the rows that a task reads.

    :param rows: numbers of the rows, ascending; the number of a row comes once for each of its targets.
    :param targets: the target of each of them; -1 for a row that is left out.
    """

    rows: npt.NDArray[np.int64]
    targets: npt.NDArray[np.int64]

    @classmethod
    def of(cls, found: Iterable[tuple[int, npt.NDArray[np.int64]]]) -> Self:
        """The tags of the rows of some targets.

        :param found: targets, each with the numbers of its rows.
        """
        rows, targets = [np.array([], np.int64)], [np.array([], np.int64)]
        for target, numbers in found:
            rows.append(numbers)
            targets.append(np.full(len(numbers), target, np.int64))
        order = np.argsort(together := np.concatenate(rows), kind="stable")
        return cls(together[order], np.concatenate(targets)[order])


@dataclass(frozen=True)
class Routes(abc.ABC):
    """The targets of rows.

    :param config: the table's configuration.
    """

    config: TableConfig

    def numbered(self, tables: Iterable[pa.Table], tags: Tags | None = None) -> Iterator[pa.Table]:
        """The rows that have a target, with its number as the column :data:`TARGET`.

        :param tables: rows with the table's types, always in the same order.
        :param tags: the targets of rows whose keys were found; then the rows have the column :data:`ARRIVAL`.
        """
        seen = 0
        for table in tables:
            numbers = self._targets(table, seen)
            seen += table.num_rows
            if tags is not None and table.num_rows:
                table, numbers = _tagged(table, numbers, tags)
            table = table.append_column(TARGET, pa.array(numbers, pa.int32()))
            yield table if (numbers >= 0).all() else table.filter(pa.array(numbers >= 0))

    @abc.abstractmethod
    def _targets(self, table: pa.Table, seen: int) -> npt.NDArray[np.int64]:
        """The target of each row; -1 for rows that are left out.

        :param table: the rows.
        :param seen: number of the task's rows before them.
        """


@dataclass(frozen=True)
class SharedRoutes(Routes):
    """The targets of rows with new keys, and of rows whose keys do not matter.

    :param shares: see :class:`~airflow_provider.ingestion.file_groups.file_group_plan.FileGroupPlan`.
    """

    shares: Mapping[str, Sequence[tuple[int, int]]]

    def _targets(self, table: pa.Table, seen: int) -> npt.NDArray[np.int64]:
        paths = partition_paths(table, self.config).dictionary_encode()
        partitions = paths.indices.to_numpy()
        shares = [self.shares.get(path, ()) for path in paths.dictionary.to_pylist()]
        numbers: npt.NDArray[np.int64] = np.array(
            [share[0][0] if share else -1 for share in shares], np.int64
        )[partitions]
        divided = [number for number, share in enumerate(shares) if len(share) > 1]
        if not divided:
            return numbers
        if self.config.generates_keys:
            codes = np.arange(seen, seen + table.num_rows).astype(np.uint64)
        else:
            keys = table.select(self.config.record_key_fields).combine_chunks()
            codes = java_hashes(record_keys(keys, self.config)).astype(np.uint64)
        codes = (codes * _GOLDEN_RATIO) >> np.uint64(33)
        for number in divided:
            here = np.flatnonzero(partitions == number)
            bounds = list(itertools.accumulate(weight for _, weight in shares[number]))
            place = codes[here] % np.uint64(bounds[-1])
            targets = np.array([target for target, _ in shares[number]])
            numbers[here] = targets[np.searchsorted(bounds[:-1], place, side="right")]
        return numbers


@dataclass(frozen=True)
class BucketRoutes(Routes):
    """The targets of rows by the hashes of their keys.

    :param index: the table's bucket index.
    :param buckets: see :class:`~airflow_provider.ingestion.file_groups.file_group_plan.FileGroupPlan`.
    """

    index: BucketIndex
    buckets: Mapping[str, Mapping[int, int]]

    def _targets(self, table: pa.Table, seen: int) -> npt.NDArray[np.int64]:
        del seen  # the hash alone decides
        paths, codes = buckets_of_rows(table, self.config, self.index)
        targets = [
            self.buckets.get(path, {}).get(bucket, -1)
            for path in paths
            for bucket in range(self.index.buckets)
        ]
        return np.array(targets, np.int64)[codes]


def buckets_of_rows(
    rows: pa.Table, config: TableConfig, index: BucketIndex
) -> tuple[list[str], npt.NDArray[np.int64]]:
    """The bucket of each row.

    :param rows: rows with the columns of the record key and of the partition.
    :param config: the table's configuration.
    :param index: the table's bucket index.
    :return: the partition paths, and the number of each row's bucket: the bucket's number in its partition,
        plus ``index.buckets`` times the position of the partition's path.
    """
    paths = partition_paths(rows, config).dictionary_encode()
    distinct, at = paths.dictionary.to_pylist(), paths.indices.to_numpy().astype(np.int64)
    keys = record_keys(rows.select(config.record_key_fields).combine_chunks(), config)
    return distinct, at * index.buckets + index.of_rows(keys, distinct, at)


def _tagged(
    table: pa.Table, numbers: npt.NDArray[np.int64], tags: Tags
) -> tuple[pa.Table, npt.NDArray[np.int64]]:
    """The rows with the targets of found keys; a row with several targets comes once for each."""
    first = table[ARRIVAL][0].as_py()
    begin, end = np.searchsorted(tags.rows, [first, first + table.num_rows])
    at, targets = tags.rows[begin:end] - first, tags.targets[begin:end]
    again = np.diff(at, prepend=-1) == 0
    numbers[at[~again]] = targets[~again]
    if not again.any():
        return table, numbers
    more = table.take(pa.array(at[again]))
    return pa.concat_tables([table, more]), np.concatenate([numbers, targets[again]])
