"""Catalog, transactions, write ids, locks and the notification log: Hive's model, on SQLAlchemy.

Begin at :func:`~airflow_provider.metastore.metastore.open_metastore`; around one write into one
table use :func:`~airflow_provider.metastore.table_transactions.table_transaction`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider.metastore.cached_store import (
        CachedStore,
        CacheStatistics,
        MissReason,
        open_cached_store,
    )
    from airflow_provider.metastore.lock_objects import (
        LockComponent,
        LockInfo,
        LockResponse,
        LockState,
        LockType,
    )
    from airflow_provider.metastore.metastore import AnyMetastore, Metastore, open_metastore
    from airflow_provider.metastore.notifications import Consumer, EventType, NotificationEvent, Purged
    from airflow_provider.metastore.objects import (
        Column,
        DatabaseInfo,
        FunctionInfo,
        Insertion,
        PartitionInfo,
        PartitionSpec,
        TableInfo,
    )
    from airflow_provider.metastore.reader import ReaderSession
    from airflow_provider.metastore.table_transactions import TableTransaction, table_transaction
    from airflow_provider.metastore.timeout_api import RecoveredTxn
    from airflow_provider.metastore.transactions import TableWriteInfo, TxnInfo, TxnState, TxnType
    from airflow_provider.metastore.write_ids import (
        ReadSnapshot,
        TableSnapshot,
        ValidTxnList,
        ValidWriteIdList,
        compare,
    )

__all__ = [
    "AnyMetastore",
    "CacheStatistics",
    "CachedStore",
    "Column",
    "Consumer",
    "DatabaseInfo",
    "EventType",
    "FunctionInfo",
    "Insertion",
    "LockComponent",
    "LockInfo",
    "LockResponse",
    "LockState",
    "LockType",
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

_MODULES = {
    "AnyMetastore": "metastore",
    "CacheStatistics": "cached_store",
    "CachedStore": "cached_store",
    "Column": "objects",
    "Consumer": "notifications",
    "DatabaseInfo": "objects",
    "EventType": "notifications",
    "FunctionInfo": "objects",
    "Insertion": "objects",
    "LockComponent": "lock_objects",
    "LockInfo": "lock_objects",
    "LockResponse": "lock_objects",
    "LockState": "lock_objects",
    "LockType": "lock_objects",
    "Metastore": "metastore",
    "MissReason": "cached_store",
    "NotificationEvent": "notifications",
    "PartitionInfo": "objects",
    "PartitionSpec": "objects",
    "Purged": "notifications",
    "ReadSnapshot": "write_ids",
    "ReaderSession": "reader",
    "RecoveredTxn": "timeout_api",
    "TableInfo": "objects",
    "TableSnapshot": "write_ids",
    "TableTransaction": "table_transactions",
    "TableWriteInfo": "transactions",
    "TxnInfo": "transactions",
    "TxnState": "transactions",
    "TxnType": "transactions",
    "ValidTxnList": "write_ids",
    "ValidWriteIdList": "write_ids",
    "compare": "write_ids",
    "open_cached_store": "cached_store",
    "open_metastore": "metastore",
    "table_transaction": "table_transactions",
}


def __getattr__(name: str) -> Any:
    # PEP 562: snapshots can be read without importing SQLAlchemy.
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
