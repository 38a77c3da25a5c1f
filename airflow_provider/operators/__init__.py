"""Operators: the tasks of a DAG on tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider.lazy_imports import lazy_imports

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
    from airflow_provider.operators.compaction import (
        CompactionOperator,
        RunCompactionOperator,
        ScheduleCompactionOperator,
    )
    from airflow_provider.operators.create_table import CreateTableOperator
    from airflow_provider.operators.index import (
        BuildIndexOperator,
        DropIndexOperator,
        RunIndexOperator,
        ScheduleIndexOperator,
    )
    from airflow_provider.operators.ingest import IngestOperator
    from airflow_provider.operators.replication import FailoverOperator, ReplicateOperator
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
    "FailoverOperator",
    "IngestOperator",
    "ReplicateOperator",
    "RollbackFailedWritesOperator",
    "RunClusteringOperator",
    "RunCompactionOperator",
    "RunIndexOperator",
    "ScheduleClusteringOperator",
    "ScheduleCompactionOperator",
    "ScheduleIndexOperator",
]

# Lazy, so that parsing a DAG imports only the operators that it names.
__getattr__ = lazy_imports(__name__)
