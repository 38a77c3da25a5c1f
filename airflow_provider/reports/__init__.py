"""Reports for people on call, about tables and metastores, as JSON: for the page and the command line.

No report changes a table. ``table_report`` is one row of the list of tables. ``timeline_report`` has the
instants of a table and their writers. ``metastore_report`` has the consumers of the notification log and the
open transactions. ``task_report`` has the work of an Airflow task. ``history`` caches entries and commits,
which never change, so that a second report reads only new ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from airflow_provider.reports.history import TableHistory
    from airflow_provider.reports.metastore_report import (
        newest_events,
        report_consumers,
        report_metastore,
        report_write_ids,
    )
    from airflow_provider.reports.table_report import report_locks, report_pending, report_table
    from airflow_provider.reports.task_report import report_task
    from airflow_provider.reports.timeline_report import (
        lane_of,
        name_of,
        report_instant,
        report_timeline,
        who,
    )
    from airflow_provider.reports.upkeep_report import report_held_back, report_upkeep

__all__ = [
    "TableHistory",
    "lane_of",
    "name_of",
    "newest_events",
    "report_consumers",
    "report_held_back",
    "report_instant",
    "report_locks",
    "report_metastore",
    "report_pending",
    "report_table",
    "report_task",
    "report_timeline",
    "report_upkeep",
    "report_write_ids",
    "who",
]

# The command line makes one report and ends.
__getattr__ = lazy_imports(__name__)
