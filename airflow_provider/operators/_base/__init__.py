"""The parts that operators share: connections, templates, Spark jobs, priorities, a task's operation key.

Nothing here is public. A concrete operator has at most three of these classes as bases.
"""

from airflow_provider.operators._base.lineage import event_extra, lineage_of, outlet_of
from airflow_provider.operators._base.long_running_job import LongRunningSparkJob
from airflow_provider.operators._base.priority import priority_number, priority_of_run
from airflow_provider.operators._base.run_plan import NO_TRANSACTION, PlanService, RunPlanOperator
from airflow_provider.operators._base.spark_operator import SparkOperator
from airflow_provider.operators._base.table_operator import TableOperator
from airflow_provider.operators._base.task_operation import TaskOperation
from airflow_provider.operators._base.template_values import (
    byte_size,
    check_plan_named,
    count,
    flag,
    mapping,
    one_of,
    plan_named,
    seconds,
    texts,
)
from airflow_provider.operators._base.turn import wait_for_turn

__all__ = [
    "NO_TRANSACTION",
    "LongRunningSparkJob",
    "PlanService",
    "RunPlanOperator",
    "SparkOperator",
    "TableOperator",
    "TaskOperation",
    "byte_size",
    "check_plan_named",
    "count",
    "event_extra",
    "flag",
    "lineage_of",
    "mapping",
    "one_of",
    "outlet_of",
    "plan_named",
    "priority_number",
    "priority_of_run",
    "seconds",
    "texts",
    "wait_for_turn",
]
