"""The upkeep of a table by a load, after its commit, when it is due."""

from __future__ import annotations

from airflow_provider.indexing import Build, build_enabled_indexes, build_in_process
from airflow_provider.locks import LockProvider
from airflow_provider.services.archival import archive_when_due
from airflow_provider.services.compaction import compact_when_due
from airflow_provider.services.table_compaction import compact_logs_when_due, compact_table_when_due
from airflow_provider.table.hudi_table import HudiTable


def maintain(
    table: HudiTable, sequence: int, *, build: Build = build_in_process, lock: LockProvider | None = None
) -> None:
    """Build the indexes that the table's options enable, compact, and archive the timeline.

    Compaction covers the metadata table, and a merge-on-read table with ``hoodie.compact.inline``
    or ``hoodie.log.compaction.inline``.

    Each is done only when it is due. A failure is logged, and the load stands.

    :param table: the table.
    :param sequence: number of the load's commit in the commit log.
    :param build: writes the base files of missing indexes.
    :param lock: the table lock.
    """
    build_enabled_indexes(table, build=build, lock=lock)
    compact_table_when_due(table, lock=lock)
    compact_logs_when_due(table, lock=lock)
    compact_when_due(table, sequence, lock=lock)
    archive_when_due(table, sequence, lock=lock)
