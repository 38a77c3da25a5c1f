"""The file that marks a folder as a partition of a table."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from airflow_provider.table.properties import dump_properties
from airflow_provider.table.storage import Storage

PARTITION_METADATA = ".hoodie_partition_metadata"
MARKS_OF_A_PARTITION = (PARTITION_METADATA, f"{PARTITION_METADATA}.parquet", f"{PARTITION_METADATA}.orc")
"""Any of these files marks a partition (``HoodiePartitionMetadata.hasPartitionMetadata``).

With ``hoodie.partition.metafile.use.base.format`` the JVM's Hudi writes the file in the base files'
format."""


def write_partition_metadata(storage: Storage, partition_path: str, instant: str) -> bool:
    """Mark a folder as a partition, as Hudi's ``HoodiePartitionMetadata`` does.

    :param storage: the table's storage.
    :param partition_path: the partition; empty for a table without partitions.
    :param instant: the commit that made it.
    :return: True when this call made it, False when it was marked already.
    """
    path = _path(partition_path)
    if storage.stat(path) is not None:
        return False  # the usual case
    return storage.put_if_absent(path, _content(partition_path, instant))


def write_metadata_of_partitions(storage: Storage, partition_paths: Iterable[str], instant: str) -> None:
    """Mark many folders as partitions, with one wait for a local disk.

    :param storage: the table's storage.
    :param partition_paths: the partitions.
    :param instant: the commit that makes them.
    """
    paths = ((_path(each), each) for each in partition_paths)
    storage.put_all_if_absent(
        {path: _content(each, instant) for path, each in paths if storage.stat(path) is None}
    )


def _path(partition_path: str) -> str:
    return f"{partition_path}/{PARTITION_METADATA}" if partition_path else PARTITION_METADATA


def _content(partition_path: str, instant: str) -> bytes:
    return _text(instant, partition_path.count("/") + 1 if partition_path else 0)


@lru_cache(maxsize=16)  # a write marks thousands of folders with the same text
def _text(instant: str, depth: int) -> bytes:
    text = dump_properties({"commitTime": instant, "partitionDepth": str(depth)})
    return f"#partition metadata\n{text}".encode()
