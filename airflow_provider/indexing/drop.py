"""Dropping indexes while writers continue.

A writer that has staged records for a dropped index stages again under the lock. So its commit neither fails
nor brings the index back. A dropped index can be planned again at once: leftovers of the old index are older
than the base files of the new one, so no reader reads them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from airflow_provider.concurrency import rollback_dead_writers
from airflow_provider.concurrency.commit import drop_indexes
from airflow_provider.indexing.schedule import known_indexes
from airflow_provider.locks import LockProvider, default_lock
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata_table import MetadataPartition
from airflow_provider.table.timeline import Action


@dataclass(frozen=True)
class DropResult:
    """The result of a drop.

    :param instant: requested time.
    :param completion_time: when it completed; from then on no writer logs to the indexes.
    :param indexes: the dropped indexes.
    """

    instant: str
    completion_time: str
    indexes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The result as a JSON-able dict."""
        return {
            "instant": self.instant,
            "completion_time": self.completion_time,
            "action": str(Action.INDEXING),
            "indexes": list(self.indexes),
        }


def drop_index(
    table: HudiTable, partitions: Iterable[str], *, lock: LockProvider | None = None
) -> DropResult | None:
    """Drop indexes, complete or not. Readers and writers continue without them.

    The other indexes depend on ``files``. So a drop of ``files`` drops the whole metadata table. A drop of
    ``column_stats`` also drops ``partition_stats``.

    Indexes that this package does not maintain (see
    :mod:`~airflow_provider.table.metadata_table.foreign_partitions`) are dropped like any other.

    :param table: the table.
    :param partitions: the indexes; see :func:`~airflow_provider.indexing.schedule.schedule_index`. One that
        this package does not maintain is named as in the table's properties.
    :param lock: the table lock; :func:`~airflow_provider.locks.default_lock` when None.
    :return: None when none of the indexes exists.
    :raises UnknownOperationError: when an index is not known.
    :raises LockTimeoutError: when the table lock is not acquired in time.
    :raises UnsupportedTableError: when this package does not write such a table.
    """
    config = HudiTable.at(table.storage).config
    there = {*config.metadata_partitions, *config.inflight_metadata_partitions}
    names = list(partitions)
    wanted: set[str] = there.intersection(names)
    if others := set(names) - wanted:
        wanted.update(known_indexes(each for each in names if each in others))
    elif not names:
        known_indexes(names)
    table.check_writable(keeps_indexes=False)
    if MetadataPartition.COLUMN_STATS in wanted:
        wanted.add(MetadataPartition.PARTITION_STATS)
    everything = MetadataPartition.FILES in wanted
    rollback_dead_writers(table)
    found = drop_indexes(
        table.storage, lambda each: everything or each in wanted, lock or default_lock(table)
    )
    if found is None:
        return None
    entry, gone = found
    return DropResult(entry.instant, entry.completion_time, gone)
