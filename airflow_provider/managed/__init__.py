"""Writes into tables that are registered in a metastore: each write is one instant and one transaction.

:class:`ManagedWrite` opens the transaction, finds an earlier try's commit, and ends instant and transaction
together. Operators, :func:`~airflow_provider.spark.ingest` and
:func:`~airflow_provider.ingestion.ingest_arrow` share it. Reading begins in ``managed_write``; ``operation``
stores the facts that one try leaves for the next.
"""

from airflow_provider.managed.maintenance import maintain
from airflow_provider.managed.managed_write import ManagedWrite
from airflow_provider.managed.operation import Operation, RepeatedOperation, refuse_living_writer
from airflow_provider.managed.resolved_table import ResolvedTable, resolve_table

__all__ = [
    "ManagedWrite",
    "Operation",
    "RepeatedOperation",
    "ResolvedTable",
    "maintain",
    "refuse_living_writer",
    "resolve_table",
]
