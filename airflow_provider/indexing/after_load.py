"""Indexes that a table's options enable, built by the load that finds them missing.

This is Hudi's default: with ``hoodie.metadata.index.async=false`` a write builds the indexes that the options
enable. So a new table has its indexes from the first load on. For a large table an indexing plan is better,
because it runs concurrently with the loads.
"""

from __future__ import annotations

import logging

from airflow_provider.concurrency import CommitLog
from airflow_provider.concurrency.indexes import current_indexes
from airflow_provider.exceptions import TableServiceError
from airflow_provider.indexing.base_files import Build, build_in_process
from airflow_provider.indexing.run import IndexRunSettings, pending_indexings, run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.locks import LockProvider
from airflow_provider.table.hudi_table import HudiTable

log = logging.getLogger(__name__)

_SETTINGS = IndexRunSettings(timeout_seconds=10.0)
"""A load waits no longer than this for other Hudi writers; the next load tries again."""


def build_enabled_indexes(
    table: HudiTable, *, build: Build = build_in_process, lock: LockProvider | None = None
) -> None:
    """After a load, build the missing indexes that the table's options enable.

    If ``hoodie.metadata.index.async`` is set, this function builds none. It leaves out indexes that another
    process is building. A failure is only logged, because the load is done; the next load tries again.

    :param table: the table.
    :param build: writes the base files.
    :param lock: the table lock; :func:`~airflow_provider.locks.default_lock` when None.
    """
    options = table.hudi_options.index
    if options.is_async or not options.partitions:
        return
    commit_log = CommitLog(table.storage)
    there = current_indexes(table.storage, commit_log, commit_log.newest())
    missing = set(options.partitions) - {each.partition for each in there if each.is_complete}
    if not missing:
        return
    try:
        schedule_index(table, options.partitions, lock=lock)
        for plan in pending_indexings(table, indexes=missing, idle=True):
            run_index(table, plan, settings=_SETTINGS, build=build, lock=lock)
    except (TableServiceError, OSError) as error:
        log.warning("the indexes of %s could not be built now: %s", table.location, error)
