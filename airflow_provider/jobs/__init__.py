"""Jobs as data: what a process on a Spark cluster is to do, and the JSON that takes it there.

Each job extends :class:`TableJob`. Reading begins there.
"""

from airflow_provider.jobs.table_job import TableJob

__all__ = ["TableJob"]
