"""Asynchronous indexing (RFC-45): indexes are planned, built, caught up and dropped while writers continue.

Begin to read at ``schedule`` (a plan, after which writers log to its indexes), then ``run`` and ``index_run``
(base files, catch-up, completion), then ``drop``. ``base_files`` and ``catch_up`` are steps of a run.
:mod:`airflow_provider.concurrency.indexes` makes the records that a commit logs to the indexes, and
:mod:`airflow_provider.table.metadata_table` stores them.

The time of an index build, its files, and its number of file groups may be changed. Every step of a run must
be repeatable, also by two processes at once: ``tests/unit/indexing`` kills and pauses runs at each operation.
"""

from airflow_provider.indexing.after_load import build_enabled_indexes
from airflow_provider.indexing.base_files import (
    ENTRIES,
    Build,
    IndexBuild,
    build_in_process,
    in_key_order,
    write_listing,
)
from airflow_provider.indexing.drop import DropResult, drop_index
from airflow_provider.indexing.index_job import IndexJob
from airflow_provider.indexing.index_run import IndexResult, completed_indexing, no_indexing_plan
from airflow_provider.indexing.options import index_options
from airflow_provider.indexing.run import (
    CATCH_UP_TIMEOUT_SECONDS,
    IndexRunSettings,
    end_indexing,
    pending_indexings,
    run_index,
)
from airflow_provider.indexing.schedule import known_indexes, schedule_index
from airflow_provider.indexing.status import IndexStatus, index_status

__all__ = [
    "CATCH_UP_TIMEOUT_SECONDS",
    "ENTRIES",
    "Build",
    "DropResult",
    "IndexBuild",
    "IndexJob",
    "IndexResult",
    "IndexRunSettings",
    "IndexStatus",
    "build_enabled_indexes",
    "build_in_process",
    "completed_indexing",
    "drop_index",
    "end_indexing",
    "in_key_order",
    "index_options",
    "index_status",
    "known_indexes",
    "no_indexing_plan",
    "pending_indexings",
    "run_index",
    "schedule_index",
    "write_listing",
]
