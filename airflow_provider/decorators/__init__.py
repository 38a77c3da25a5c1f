"""TaskFlow decorators: ``@task.ingest``, which Airflow finds by ``get_provider_info``.

Begin with :mod:`airflow_provider.decorators.ingest`.
"""

from airflow_provider.decorators.ingest import ingest_task

__all__ = ["ingest_task"]
