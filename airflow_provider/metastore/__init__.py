"""Catalog, transactions, write ids, locks and the notification log: Hive's model, on SQLAlchemy.

Begin at :func:`~airflow_provider.metastore.any_metastore.open_metastore`, which returns an
:class:`~airflow_provider.metastore.interface.AnyMetastore`. For one write into one table use
:func:`~airflow_provider.metastore.table_transactions.table_transaction`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider.metastore.any_metastore import open_metastore
    from airflow_provider.metastore.api import Metastore
    from airflow_provider.metastore.cache import CachedStore, CacheStatistics, MissReason, open_cached_store
    from airflow_provider.metastore.interface import AnyMetastore
    from airflow_provider.metastore.model import (
        Column,
        Consumer,
        DatabaseInfo,
        EventType,
        FunctionInfo,
        Insertion,
        LockComponent,
        LockInfo,
        LockResponse,
        LockState,
        LockType,
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
    "AnyMetastore": "interface",
    "CacheStatistics": "cache.cached_store",
    "CachedStore": "cache.cached_store",
    "Column": "model.objects",
    "Consumer": "model.events",
    "DatabaseInfo": "model.objects",
    "EventType": "model.events",
    "FunctionInfo": "model.objects",
    "Insertion": "model.objects",
    "LockComponent": "model.lock_objects",
    "LockInfo": "model.lock_objects",
    "LockResponse": "model.lock_objects",
    "LockState": "model.lock_objects",
    "LockType": "model.lock_objects",
    "Metastore": "api.metastore",
    "MissReason": "cache.cached_store",
    "NotificationEvent": "model.events",
    "PartitionInfo": "model.objects",
    "PartitionSpec": "model.objects",
    "Purged": "model.events",
    "ReadSnapshot": "model.write_ids",
    "ReaderSession": "model.reader",
    "RecoveredTxn": "timeouts",
    "TableInfo": "model.objects",
    "TableSnapshot": "model.write_ids",
    "TableTransaction": "table_transactions",
    "TableWriteInfo": "model.transaction_objects",
    "TxnInfo": "model.transaction_objects",
    "TxnState": "model.transaction_objects",
    "TxnType": "model.transaction_objects",
    "ValidTxnList": "model.write_ids",
    "ValidWriteIdList": "model.write_ids",
    "compare": "model.write_ids",
    "open_cached_store": "cache.cached_store",
    "open_metastore": "any_metastore",
    "table_transaction": "table_transactions",
}


def __getattr__(name: str) -> Any:
    # PEP 562: snapshots can be read without importing SQLAlchemy.
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
