"""Operators: what a DAG does to tables."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider.operators.alter_table import AlterTableOperator
    from airflow_provider.operators.archive import ArchiveTimelineOperator
    from airflow_provider.operators.backfill import BackfillOperator
    from airflow_provider.operators.clean import CleanOperator
    from airflow_provider.operators.clustering import (
        ClusteringOperator,
        RunClusteringOperator,
        ScheduleClusteringOperator,
    )
    from airflow_provider.operators.compaction import CompactionOperator
    from airflow_provider.operators.create_table import CreateTableOperator
    from airflow_provider.operators.index import (
        BuildIndexOperator,
        DropIndexOperator,
        RunIndexOperator,
        ScheduleIndexOperator,
    )
    from airflow_provider.operators.ingest import IngestOperator
    from airflow_provider.operators.rollback import RollbackFailedWritesOperator
    from airflow_provider.operators.transaction import (
        AbortTransactionOperator,
        BeginTransactionOperator,
        CommitTransactionOperator,
    )

__all__ = [
    "AbortTransactionOperator",
    "AlterTableOperator",
    "ArchiveTimelineOperator",
    "BackfillOperator",
    "BeginTransactionOperator",
    "BuildIndexOperator",
    "CleanOperator",
    "ClusteringOperator",
    "CommitTransactionOperator",
    "CompactionOperator",
    "CreateTableOperator",
    "DropIndexOperator",
    "IngestOperator",
    "RollbackFailedWritesOperator",
    "RunClusteringOperator",
    "RunIndexOperator",
    "ScheduleClusteringOperator",
    "ScheduleIndexOperator",
]

_MODULES = {
    "AbortTransactionOperator": "transaction",
    "AlterTableOperator": "alter_table",
    "ArchiveTimelineOperator": "archive",
    "BackfillOperator": "backfill",
    "BeginTransactionOperator": "transaction",
    "BuildIndexOperator": "index",
    "CleanOperator": "clean",
    "ClusteringOperator": "clustering",
    "CommitTransactionOperator": "transaction",
    "CompactionOperator": "compaction",
    "CreateTableOperator": "create_table",
    "DropIndexOperator": "index",
    "IngestOperator": "ingest",
    "RollbackFailedWritesOperator": "rollback",
    "RunClusteringOperator": "clustering",
    "RunIndexOperator": "index",
    "ScheduleClusteringOperator": "clustering",
    "ScheduleIndexOperator": "index",
}


def __getattr__(name: str) -> Any:
    # PEP 562: DAG parsing pays for what a DAG names and for nothing else.
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
