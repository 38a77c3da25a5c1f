"""Partitions of the metadata table that this package does not maintain.

These are secondary and expression indexes, the partitioned record index, and indexes of a later Hudi. A write
that does not update such an index makes it outdated, and a query that uses the index then loses rows. So this
package does not write a table that has one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from airflow_provider.exceptions import UnsupportedTableError
from airflow_provider.table.metadata_table.index_definitions import read_index_definitions
from airflow_provider.table.metadata_table.partitions import MetadataPartition
from airflow_provider.table.storage import Storage

_PREFIXES = ("secondary_index_", "expr_index_")
_KINDS: Mapping[str, str] = dict(zip(_PREFIXES, ("a secondary index", "an expression index"), strict=True))


def unsupported_indexes(table: Storage, named: Iterable[str]) -> list[str]:
    """The partitions among those named that this package does not maintain.

    :param table: the table's storage.
    :param named: names of partitions of its metadata table.
    :raises CorruptTableError: when the definitions of its indexes cannot be read.
    """
    return sorted(
        each for each in named if each not in set(MetadataPartition) or _is_of_partitions(table, each)
    )


def _is_of_partitions(table: Storage, partition: str) -> bool:
    """Whether a partition is a partitioned record index (``HoodieRecordIndex``)."""
    if partition != MetadataPartition.RECORD_INDEX:
        return False
    definition = read_index_definitions(table).get(partition)
    return definition is not None and definition.options.get("isPartitioned", "").lower() == "true"


def unsupported_indexes_error(location: str, partitions: Iterable[str]) -> UnsupportedTableError:
    """The error for a write to a table with such an index; it names the remedy.

    :param location: the table's location.
    :param partitions: the indexes that this package does not maintain; at least one.
    """
    names = list(partitions)
    told = ", ".join(f"{name} ({_kind(name)})" for name in names)
    return UnsupportedTableError(
        f"table {location} has the index {told}, which is not kept here: a write would leave it behind its "
        f"data. Drop it with the Hudi that made it (in SQL: DROP INDEX {_name(names[0])} ON the table), or "
        f"here (table-services index drop {location} {' '.join(names)})",
        location=location,
        indexes=names,
    )


def _kind(partition: str) -> str:
    if partition == MetadataPartition.RECORD_INDEX:
        return "of each partition"
    return next(
        (kind for prefix, kind in _KINDS.items() if partition.startswith(prefix)), "of an unknown kind"
    )


def _name(partition: str) -> str:
    """The name of the index in Hudi's SQL."""
    for prefix in _PREFIXES:
        partition = partition.removeprefix(prefix)
    return partition
