"""The targets of rows whose keys were not looked up."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider.ingestion.file_groups import TARGET
from airflow_provider.table.java_hash import java_hashes
from airflow_provider.table.keys import partition_paths, record_keys
from airflow_provider.table.properties import TableConfig

# Similar keys have similar hash codes; the upper bits of the product with this number do not.
_GOLDEN_RATIO = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Routes:
    """The targets of rows whose keys were not looked up.

    :param config: the table's configuration.
    :param shares: see :class:`~airflow_provider.ingestion.file_groups.file_group_plan.FileGroupPlan`.
    """

    config: TableConfig
    shares: Mapping[str, Sequence[tuple[int, int]]]

    def numbered(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """The rows that have a target, with its number as the column :data:`TARGET`.

        :param tables: rows with the table's types, always in the same order.
        """
        seen = 0
        for table in tables:
            numbers = self._targets(table, seen)
            seen += table.num_rows
            table = table.append_column(TARGET, pa.array(numbers, pa.int32()))
            yield table if (numbers >= 0).all() else table.filter(pa.array(numbers >= 0))

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
