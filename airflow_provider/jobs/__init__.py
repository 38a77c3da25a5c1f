"""Jobs as data: what a process on a Spark cluster is to do, and the JSON that takes it there.

Each job extends :class:`TableJob`. Reading begins there. Which engine runs a job is chosen in ``engine``.
"""

from airflow_provider.jobs.engine import ARROW_MAX_BYTES, AUTO, ENGINES, Choice, choose_engine
from airflow_provider.jobs.table_job import ARROW, CONNECT_TIMEOUT_SECONDS, SPARK, TableJob

__all__ = [
    "ARROW",
    "ARROW_MAX_BYTES",
    "AUTO",
    "CONNECT_TIMEOUT_SECONDS",
    "ENGINES",
    "SPARK",
    "Choice",
    "TableJob",
    "choose_engine",
]
