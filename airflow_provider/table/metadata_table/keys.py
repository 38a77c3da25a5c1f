"""How records of the metadata table are keyed, and which file group a key is in.

Sources: ``HoodieTableMetadataUtil``, ``HashID``, ``ColumnIndexID``, ``PartitionIndexID`` and
``FileIndexID`` of Apache Hudi. Column names and partition paths are keyed by XXH64, file names by
MD5, each in Base64, so that all records of one column are neighbours.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterable
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh64_digest

from airflow_provider.table.java_hash import java_hash, java_hashes

ALL_PARTITIONS = "__all_partitions__"
"""The key of the record that lists a table's partitions, in ``files``."""

_FEW = 16  # up to so many keys, one key after the other is faster than a vectorised computation

_ROOT = "."  # the partition path of a table without partitions

_SEED = 0xFFFFFFFF_DABADABA  # Hudi's 0xdabadaba, a negative number in Java, widened to 64 bits


def files_key(partition_path: str) -> str:
    """The key of a partition's file list.

    :param partition_path: partition path relative to the table, ``""`` when not partitioned.
    """
    return partition_path or _ROOT


def partition_of_files_key(key: str) -> str:
    """The partition path whose file list has this key."""
    return "" if key == _ROOT else key


def column_stats_key(column: str, partition_path: str, file_name: str) -> str:
    """The key of a column's statistics in one file."""
    return column_stats_prefix(column, partition_path) + _file_id(file_name)


def column_stats_prefix(column: str, partition_path: str | None = None) -> str:
    """The common prefix of the keys of all statistics of a column.

    :param partition_path: restricts the prefix to one partition.
    """
    return _hash_id(column) + ("" if partition_path is None else _hash_id(partition_path or _ROOT))


def partition_stats_key(column: str, partition_path: str) -> str:
    """The key of a column's statistics in one partition."""
    return column_stats_prefix(column, partition_path)


def bloom_filter_key(partition_path: str, file_name: str) -> str:
    """The key of the bloom filter of one base file."""
    return _hash_id(partition_path or _ROOT) + _file_id(file_name)


def file_group_index(key: str, file_groups: int) -> int:
    """The number of the file group that a key belongs to.

    ``HoodieTableMetadataUtil.mapRecordKeyToFileGroupIndex``: Java's hash code of the key, over its
    UTF-16 units.

    :param file_groups: number of file groups of the metadata partition.
    """
    if file_groups == 1:
        return 0
    code = java_hash(key)
    signed = code - (1 << 32) if code >> 31 else code
    return abs(signed) % file_groups


def file_group_indexes(keys: pa.Array | pa.ChunkedArray, file_groups: int) -> npt.NDArray[np.int64]:
    """:func:`file_group_index` of many keys at once.

    :param keys: strings without nulls.
    """
    indexes: npt.NDArray[np.int64] = np.abs(java_hashes(keys).view(np.int32).astype(np.int64)) % file_groups
    return indexes


def by_file_group(keys: Iterable[str], count: int) -> dict[int, list[str]]:
    """The keys by the number of their file group, in the order of the file group's files.

    :param count: number of file groups of the metadata partition.
    """
    ordered = sorted(keys)  # by code points, which is the order of the UTF-8 bytes
    indexes: Iterable[int]
    if len(ordered) <= _FEW:  # for example in a commit of a few files
        indexes = (file_group_index(key, count) for key in ordered)
    else:
        indexes = file_group_indexes(pa.array(ordered, pa.large_string()), count).tolist()
    found: dict[int, list[str]] = {}
    for key, index in zip(ordered, indexes, strict=True):
        found.setdefault(index, []).append(key)
    return dict(sorted(found.items()))


@lru_cache(maxsize=65_536)
def _hash_id(text: str) -> str:
    return b64encode(xxh64_digest(text.encode(), _SEED)).decode("ascii")


def _file_id(file_name: str) -> str:
    return b64encode(hashlib.md5(file_name.encode(), usedforsecurity=False).digest()).decode("ascii")
