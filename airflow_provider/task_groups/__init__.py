"""Task groups: operators of this package put together as most DAGs want them.

Begin with :mod:`airflow_provider.task_groups.table_services`. A task group only composes operators; it has no
logic of its own.
"""

from airflow_provider.task_groups.table_services import table_services

__all__ = ["table_services"]
