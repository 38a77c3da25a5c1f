"""Catalog, transactions, write ids, locks and the notification log: Hive's model, on SQLAlchemy.

Begin at :func:`~airflow_provider.metastore.any_metastore.open_metastore`, which returns an
:class:`~airflow_provider.metastore.interface.AnyMetastore`. For one write into one table use
:func:`~airflow_provider.metastore.table_transactions.table_transaction`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from airflow_provider.metastore.any_metastore import open_metastore
    from airflow_provider.metastore.api import Metastore
    from airflow_provider.metastore.cache import CachedStore, CacheStatistics, MissReason, open_cached_store
    from airflow_provider.metastore.interface import AnyMetastore
    from airflow_provider.metastore.model import (
        Column,
        DatabaseInfo,
        EventType,
        FunctionInfo,
        Insertion,
        LockComponent,
        LockInfo,
        LockResponse,
        LockState,
        LockType,
        LogConsumer,
        NotificationEvent,
        PartitionInfo,
        PartitionSpec,
        Purged,
        ReaderSession,
        ReadSnapshot,
        TableInfo,
        TableSnapshot,
        TableWriteInfo,
        TxnInfo,
        TxnState,
        TxnType,
        ValidTxnList,
        ValidWriteIdList,
        compare,
    )
    from airflow_provider.metastore.table_transactions import TableTransaction, table_transaction
    from airflow_provider.metastore.timeouts import RecoveredTxn

__all__ = [
    "AnyMetastore",
    "CacheStatistics",
    "CachedStore",
    "Column",
    "DatabaseInfo",
    "EventType",
    "FunctionInfo",
    "Insertion",
    "LockComponent",
    "LockInfo",
    "LockResponse",
    "LockState",
    "LockType",
    "LogConsumer",
    "Metastore",
    "MissReason",
    "NotificationEvent",
    "PartitionInfo",
    "PartitionSpec",
    "Purged",
    "ReadSnapshot",
    "ReaderSession",
    "RecoveredTxn",
    "TableInfo",
    "TableSnapshot",
    "TableTransaction",
    "TableWriteInfo",
    "TxnInfo",
    "TxnState",
    "TxnType",
    "ValidTxnList",
    "ValidWriteIdList",
    "compare",
    "open_cached_store",
    "open_metastore",
    "table_transaction",
]

# Snapshots are read without SQLAlchemy.
__getattr__ = lazy_imports(__name__)
