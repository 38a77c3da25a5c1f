"""Jobs as data: the work of a process on a Spark cluster, and its JSON.

Each job extends :class:`TableJob`, where reading begins; one that executes a plan extends :class:`PlanJob`.
``engine`` chooses the engine that runs a job.
"""

from airflow_provider.jobs.engine import ARROW_MAX_BYTES, AUTO, ENGINES, Choice, choose_engine
from airflow_provider.jobs.plan_job import PlanJob
from airflow_provider.jobs.table_job import ARROW, CONNECT_TIMEOUT_SECONDS, SPARK, TableJob, read_dataclass

__all__ = [
    "ARROW",
    "ARROW_MAX_BYTES",
    "AUTO",
    "CONNECT_TIMEOUT_SECONDS",
    "ENGINES",
    "SPARK",
    "Choice",
    "PlanJob",
    "TableJob",
    "choose_engine",
    "read_dataclass",
]
