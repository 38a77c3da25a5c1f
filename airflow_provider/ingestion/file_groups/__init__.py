"""The assignment of rows to file groups, and the task that writes one file group's next files.

The plan is made once, from counts and sizes. Tasks run independently, in this process or on a cluster. Begin
to read at ``file_group_plan``.
"""

from airflow_provider.ingestion.file_groups.file_group_plan import (
    Buckets,
    FileGroupPlan,
    Target,
    add_shares,
    bytes_per_row,
    plan_tagged,
    plan_without_tagging,
)
from airflow_provider.ingestion.file_groups.file_group_task import (
    ARRIVAL,
    ROWS_A_WRITE,
    FileGroupTask,
    Report,
    WritePlan,
    gathered,
    merged_reports,
)
from airflow_provider.ingestion.file_groups.new_file_groups_task import (
    TARGET,
    NewFileGroupsTask,
    rows_by_target,
)
from airflow_provider.ingestion.file_groups.overwritten_buckets import OverwrittenBuckets

__all__ = [
    "ARRIVAL",
    "ROWS_A_WRITE",
    "TARGET",
    "Buckets",
    "FileGroupPlan",
    "FileGroupTask",
    "NewFileGroupsTask",
    "OverwrittenBuckets",
    "Report",
    "Target",
    "WritePlan",
    "add_shares",
    "bytes_per_row",
    "gathered",
    "merged_reports",
    "plan_tagged",
    "plan_without_tagging",
    "rows_by_target",
]
