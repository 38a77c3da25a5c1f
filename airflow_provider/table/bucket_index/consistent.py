"""Hudi's bucket index by consistent hashing: each partition has its own buckets, which are split and merged.

Sources: ``ConsistentBucketIdentifier`` (the hash and the ring), ``HoodieConsistentBucketIndex`` and
``ConsistentBucketIndexUtils`` (the first write of a partition) of Apache Hudi 1.2.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh32_intdigest

from airflow_provider.exceptions import UnsupportedTableError
from airflow_provider.table.bucket_index.hashing_metadata import (
    HashingMetadata,
    load_hashing_metadata,
    new_file_id_prefix,
    put_hashing_metadata,
)
from airflow_provider.table.bucket_index.simple import BucketIndex, hash_values
from airflow_provider.table.file_groups import FileGroupId, FileSystemView
from airflow_provider.table.storage import Storage

_MASK = 2**31 - 1


@dataclass(frozen=True)
class ConsistentBucketIndex(BucketIndex):
    """The bucket index of a table whose buckets are split and merged.

    :param table: the table's name, for errors.
    :param buckets: the number of buckets with which a partition begins; after :meth:`on`, the largest number
        of buckets in one of the partitions.
    :param hash_fields: the columns of the record key whose values are hashed.
    :param partitions: the buckets by partition path, after :meth:`on`.
    """

    partitions: Mapping[str, HashingMetadata] = field(default_factory=dict)

    def on(self, storage: Storage, view: FileSystemView, partitions: Iterable[str]) -> ConsistentBucketIndex:
        """See :meth:`BucketIndex.on`. A partition without buckets gets its first ones, which are stored.

        :raises CorruptTableError: see :func:`load_hashing_metadata`.
        """
        found = {
            path: load_hashing_metadata(storage, view, path, cleans_up=True)
            or put_hashing_metadata(storage, HashingMetadata.first(path, self.buckets))
            for path in partitions
        }
        most = max((len(each.nodes) for each in found.values()), default=self.buckets)
        return replace(self, buckets=most, partitions=found)

    def of_rows(
        self, keys: pa.Array, paths: Sequence[str], partitions: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """See :meth:`BucketIndex.of_rows`."""
        hashes, found = self.hashes(keys), np.zeros(len(partitions), np.int64)
        order = np.argsort(partitions, kind="stable")
        codes, begins = np.unique(partitions[order], return_index=True)
        for code, rows in zip(codes.tolist(), np.split(order, begins[1:]), strict=True):
            values = np.array(self.partitions[paths[code]].values)
            found[rows] = np.searchsorted(values, hashes[rows]) % len(values)
        return found

    def hashes(self, keys: pa.Array) -> npt.NDArray[np.int64]:
        """The place of each record key on the ring (``ConsistentBucketIdentifier.getBucket``).

        :param keys: record keys, without nulls.
        """
        encoded = keys.dictionary_encode()
        distinct = (
            xxh32_intdigest("".join(map(_text, hash_values(key, self.hash_fields))).encode()) & _MASK
            for key in encoded.dictionary.to_pylist()
        )
        found: npt.NDArray[np.int64] = np.fromiter(distinct, np.int64)[encoded.indices.to_numpy()]
        return found

    def file_groups(self, partition_path: str, file_ids: Iterable[str]) -> dict[int, str]:
        """See :meth:`BucketIndex.file_groups`.

        :raises UnsupportedTableError: when a file group is no bucket of the partition.
        """
        numbers, found = self.partitions[partition_path].numbers, {}
        for file_id in file_ids:
            if file_id not in numbers:
                raise UnsupportedTableError(
                    f"table {self.table!r}: file group {file_id} in partition {partition_path!r} is no "
                    f"bucket of {self.partitions[partition_path].path}: no hash of a key leads to it; load "
                    "its rows into a new table",
                    property="hoodie.index.bucket.engine",
                )
            found[numbers[file_id]] = file_id
        return found

    def first_file_id(self, partition_path: str, number: int, replaced: Mapping[FileGroupId, str]) -> str:
        """See :meth:`BucketIndex.first_file_id`.

        :raises UnsupportedTableError: when the bucket's file group was taken out, and no other one replaces
            it.
        """
        metadata = self.partitions[partition_path]
        found = metadata.nodes[number].file_id
        if FileGroupId(partition_path, found) in replaced:
            raise UnsupportedTableError(
                f"table {self.table!r}: file group {found} in partition {partition_path!r} was taken out, "
                f"and {metadata.path} names no other for its keys: rows in it would not be shown; write the "
                "partition once by insert_overwrite",
                property="hoodie.index.bucket.engine",
            )
        return found

    def overwriting_file_id(self, partition_path: str, number: int, spent: Container[FileGroupId]) -> str:
        """See :meth:`BucketIndex.overwriting_file_id`. A bucket without a file group keeps its id.

        Then the overwrite conflicts with a write that opens the bucket at the same time.
        """
        found = self.partitions[partition_path].nodes[number].file_id
        return f"{new_file_id_prefix()}-0" if FileGroupId(partition_path, found) in spent else found


def _text(value: str | None) -> str:
    return "null" if value is None else value  # Java joins nulls as this text
