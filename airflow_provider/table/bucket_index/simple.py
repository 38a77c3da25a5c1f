"""Hudi's simple bucket index: the hash of a record key decides its file group.

Sources: ``BucketIdentifier`` and ``KeyGenUtils.extractRecordKeysByFields`` of Apache Hudi 1.2 (the hash and
the file ids), ``SparkBucketIndexPartitioner`` (the first write of a bucket), ``HoodieSimpleBucketIndex`` (one
file group for each bucket).
"""

from __future__ import annotations

import uuid
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider.exceptions import CorruptTableError, UnsupportedTableError
from airflow_provider.table.file_groups import FileGroupId, FileSystemView
from airflow_provider.table.file_names import is_bucket
from airflow_provider.table.java_hash import java_hash, java_hashes
from airflow_provider.table.properties import INDEX_TYPE, NUMBER_OF_BUCKETS
from airflow_provider.table.storage import Storage

_FIXED_REST = "-0000-0000-0000-000000000000-0"
_NULL, _EMPTY = "__null__", "__empty__"


@dataclass(frozen=True)
class BucketIndex:
    """The bucket index of a table.

    :param table: the table's name, for errors.
    :param buckets: the number of buckets of each partition.
    :param hash_fields: the columns of the record key whose values are hashed.
    """

    table: str
    buckets: int
    hash_fields: tuple[str, ...]

    def on(self, storage: Storage, view: FileSystemView, partitions: Iterable[str]) -> BucketIndex:
        """This index with the present buckets of some partitions, for writing to them.

        :param storage: the table's storage.
        :param view: the snapshot that the write sees.
        :param partitions: partition paths.
        """
        del storage, view, partitions  # every partition always has the same number of buckets
        return self

    def of_rows(
        self, keys: pa.Array, paths: Sequence[str], partitions: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """The bucket of each row, a number in its partition below :attr:`buckets`.

        The source of the number is ``BucketIdentifier.getBucketId``.

        :param keys: the rows' record keys, without nulls.
        :param paths: partition paths.
        :param partitions: the position of each row's partition among the paths.
        """
        del paths, partitions  # a key has the same bucket in every partition
        if self.buckets == 1:
            return np.zeros(len(keys), np.int64)
        is_composed = np.array(pc.and_(pc.match_substring(keys, ","), pc.match_substring(keys, ":")))
        hashes = np.zeros(len(keys), np.uint32)
        hashes[~is_composed] = 31 + java_hashes(keys.filter(pa.array(~is_composed)))
        if is_composed.any():
            composed = keys.filter(pa.array(is_composed)).dictionary_encode()
            values = (hash_values(key, self.hash_fields) for key in composed.dictionary.to_pylist())
            distinct = np.array([_list_hash(each) for each in values], np.uint32)
            hashes[is_composed] = distinct[composed.indices.to_numpy()]
        found: npt.NDArray[np.int64] = (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64) % self.buckets
        return found

    def file_groups(self, partition_path: str, file_ids: Iterable[str]) -> dict[int, str]:
        """The file group of each bucket that has one.

        :param partition_path: the partition.
        :param file_ids: the ids of its live file groups.
        :raises UnsupportedTableError: when a file group is no bucket, or has a number that this index lacks.
        :raises CorruptTableError: when a bucket has two file groups.
        """
        found: dict[int, str] = {}
        for file_id in file_ids:
            where = f"table {self.table!r}: file group {file_id} in partition {partition_path!r}"
            if not file_id[:8].isdecimal() or file_id[8:9] != "-":
                raise UnsupportedTableError(
                    f"{where} is no bucket, and {INDEX_TYPE} is BUCKET: no hash of a key leads to it; load "
                    "its rows into a new table, or take the option back",
                    property=INDEX_TYPE,
                )
            number = int(file_id[:8])
            if number >= self.buckets:
                raise UnsupportedTableError(
                    f"{where} is bucket {number}, and {NUMBER_OF_BUCKETS} is {self.buckets}: keys would be "
                    "looked for in other buckets than they are in; set the number with which the table was "
                    "written",
                    property=NUMBER_OF_BUCKETS,
                )
            if found.setdefault(number, file_id) != file_id:
                raise CorruptTableError(
                    f"{where} and {found[number]} are one bucket: a key may be in both; load the rows into a "
                    "new table"
                )
        return found

    def first_file_id(self, partition_path: str, number: int, replaced: Mapping[FileGroupId, str]) -> str:
        """The file id of a bucket that has no file group. All first writers of a bucket take the same id.

        :param partition_path: the partition.
        :param number: the number of the bucket.
        :param replaced: file groups that were taken out, with the completion times. Their ids cannot be used
            again.
        :return: the JVM's id of a bucket under non-blocking concurrency control
            (``BucketIdentifier.newBucketFileIdForNBCC``); after an overwrite another id, which all writers
            derive from the overwrite.
        """
        found = f"{number:08d}{_FIXED_REST}"
        while (at := replaced.get(FileGroupId(partition_path, found))) is not None:
            found = f"{number:08d}{str(uuid.uuid5(uuid.NAMESPACE_OID, f'{found} {at}'))[8:]}-0"
        return found

    def overwriting_file_id(self, partition_path: str, number: int, spent: Container[FileGroupId]) -> str:
        """The file id of a bucket in a partition that is overwritten.

        :param partition_path: the partition.
        :param number: the number of the bucket.
        :param spent: the live file groups, and those that were taken out.
        """
        del partition_path, spent
        return f"{number:08d}{str(uuid.uuid4())[8:]}-0"


def bucket_of(group: FileGroupId) -> FileGroupId | None:
    """The identity of a bucket: the partition and the number that all its file groups have.

    :param group: a file group.
    :return: None for a file group that is no bucket.
    """
    return FileGroupId(group.partition_path, group.file_id[:8]) if is_bucket(group.file_id) else None


def hash_values(record_key: str, fields: tuple[str, ...]) -> list[str | None]:
    """The values that are hashed, as ``KeyGenUtils.extractRecordKeysByFields`` cuts them out of a record key.

    :param record_key: the whole key: ``a:1,b:2``, or the value of the only column.
    :param fields: the columns whose values are hashed.
    """
    if "," not in record_key or ":" not in record_key:
        return [record_key]
    values: list[str | None] = []
    begin = 0
    while begin < len(record_key):
        colon = record_key.find(":", begin)
        if colon < 0:
            break  # the JVM raises an error for such a key
        name, end = record_key[begin:colon], len(record_key)
        following = record_key.find(":", colon + 1)
        while following >= 0 and (comma := record_key.rfind(",", 0, following)) < colon:
            following = record_key.find(":", following + 1)
        if following >= 0:
            end = comma
        if name in fields:
            value = record_key[colon + 1 : end]
            values.append({_NULL: None, _EMPTY: ""}.get(value, value))
        begin = end + 1
    return values or [record_key]


def _list_hash(values: Iterable[str | None]) -> int:
    """``List.hashCode`` of texts, modulo 2**32."""
    found = 1
    for value in values:
        found = (31 * found + (0 if value is None else java_hash(value))) & 0xFFFFFFFF
    return found
