"""What the tasks that look up keys need to know, and their search of a base file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider.ingestion.file_groups import gathered
from airflow_provider.ingestion.key_lookup import keys_in_base_file
from airflow_provider.table.file_groups import BaseFile
from airflow_provider.table.files import BloomFilter
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata_table import MetadataPartition, UsableIndexes
from airflow_provider.table.properties import TableConfig
from airflow_provider.table.storage import Storage

_BUNDLE_BYTES = 256 * 1024 * 1024
_MOST_BUNDLES = 16  # in a partition: its keys are sent once to each
_ROWS_A_PROBE = 1_000_000


@dataclass(frozen=True)
class TaggingPlan:
    """The part of the plan that tasks need for the look-up.

    :param storage: the table's storage.
    :param config: the table's configuration.
    :param files: base files by their number.
    :param bundles: numbers of the files that each task searches; none where the record index has the keys.
    :param of_partition: numbers of the bundles, by partition path.
    :param indexes: the table's indexes, which may contain the files' keys.
    :param moves: whether a key may arrive for another partition than the one it is in.
    """

    storage: Storage
    config: TableConfig
    files: tuple[BaseFile, ...]
    bundles: tuple[tuple[int, ...], ...] = ()
    of_partition: Mapping[str, Sequence[int]] = field(default_factory=dict)
    indexes: UsableIndexes | None = None
    moves: bool = False

    @classmethod
    def of_files(
        cls,
        table: HudiTable,
        to_tag: Mapping[str, Sequence[BaseFile]],
        indexes: UsableIndexes | None = None,
    ) -> Self:
        """The search of base files; a task gets the keys of a partition, and a bundle of its files.

        :param table: the table.
        :param to_tag: base files to search, by partition path.
        :param indexes: the table's indexes.
        """
        files: list[BaseFile] = []
        bundles: list[tuple[int, ...]] = []
        of_partition: dict[str, list[int]] = {}
        for partition, live in sorted(to_tag.items()):
            for bundle in bundled(live):
                of_partition.setdefault(partition, []).append(len(bundles))
                bundles.append(tuple(range(len(files), len(files) + len(bundle))))
                files.extend(bundle)
        return cls(table.storage, table.config, tuple(files), tuple(bundles), of_partition, indexes)

    @property
    def tasks(self) -> int:
        """Number of the tasks that look up keys: one for each bundle, or file group of the record index."""
        if self.bundles or self.indexes is None:
            return len(self.bundles)
        return self.indexes.file_groups(MetadataPartition.RECORD_INDEX)

    def blooms(self, bundle: Iterable[int]) -> Mapping[int, BloomFilter]:
        """The bloom filters of base files that an index has, by number of the file.

        :param bundle: numbers of the files.
        """
        paths = {self.files[number].path: number for number in bundle}
        found = (self.indexes and self.indexes.bloom_filters(list(paths))) or {}
        return {paths[path]: bloom for path, bloom in found.items() if bloom is not None}

    def keys_in_file(
        self, number: int, keys: pa.Array, blooms: Mapping[int, BloomFilter]
    ) -> npt.NDArray[np.bool_]:
        """Which keys are in a base file.

        :param number: the file's number.
        :param keys: record keys, without nulls.
        :param blooms: bloom filters by number of the file.
        :return: one boolean for each key.
        """
        return keys_in_base_file(self.storage, self.files[number].path, keys, blooms.get(number))


def bundled(live: Sequence[BaseFile]) -> list[list[BaseFile]]:
    """Files of a partition in bundles of about equal size.

    :param live: the files.
    """
    total = sum(base_file.size for base_file in live)
    count = max(1, min(_MOST_BUNDLES, len(live), round(total / _BUNDLE_BYTES)))
    bundles: list[list[BaseFile]] = [[] for _ in range(count)]
    sizes = [0] * count
    for base_file in sorted(live, key=lambda each: (-each.size, each.file_id)):
        smallest = sizes.index(min(sizes))
        bundles[smallest].append(base_file)
        sizes[smallest] += base_file.size
    return bundles


def in_portions(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """As many rows at a time as are looked up at a time.

    :param batches: the rows.
    """
    return (rows.combine_chunks() for rows in gathered(batches, rows=_ROWS_A_PROBE))
