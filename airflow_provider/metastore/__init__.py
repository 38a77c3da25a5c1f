"""Catalog, transactions, write ids, locks and the notification log: Hive's model, on SQLAlchemy.

Begin at :func:`~airflow_provider.metastore.metastore.open_metastore`; around one write into one
table use :func:`~airflow_provider.metastore.table_transactions.table_transaction`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider.metastore.catalog import Column, DatabaseInfo, TableInfo
    from airflow_provider.metastore.locks import LockComponent, LockInfo, LockResponse, LockState, LockType
    from airflow_provider.metastore.metastore import Metastore, open_metastore
    from airflow_provider.metastore.notifications import Consumer, EventType, NotificationEvent, Purged
    from airflow_provider.metastore.partitions import PartitionInfo, PartitionSpec
    from airflow_provider.metastore.table_transactions import TableTransaction, table_transaction
    from airflow_provider.metastore.transaction_api import RecoveredTxn
    from airflow_provider.metastore.transactions import TableWriteInfo, TxnInfo, TxnState
    from airflow_provider.metastore.write_ids import ValidTxnList, ValidWriteIdList, compare

__all__ = [
    "Column",
    "Consumer",
    "DatabaseInfo",
    "EventType",
    "LockComponent",
    "LockInfo",
    "LockResponse",
    "LockState",
    "LockType",
    "Metastore",
    "NotificationEvent",
    "PartitionInfo",
    "PartitionSpec",
    "Purged",
    "RecoveredTxn",
    "TableInfo",
    "TableTransaction",
    "TableWriteInfo",
    "TxnInfo",
    "TxnState",
    "ValidTxnList",
    "ValidWriteIdList",
    "compare",
    "open_metastore",
    "table_transaction",
]

_MODULES = {
    "Column": "catalog",
    "Consumer": "notifications",
    "DatabaseInfo": "catalog",
    "EventType": "notifications",
    "LockComponent": "locks",
    "LockInfo": "locks",
    "LockResponse": "locks",
    "LockState": "locks",
    "LockType": "locks",
    "Metastore": "metastore",
    "NotificationEvent": "notifications",
    "PartitionInfo": "partitions",
    "PartitionSpec": "partitions",
    "Purged": "notifications",
    "RecoveredTxn": "transaction_api",
    "TableInfo": "catalog",
    "TableTransaction": "table_transactions",
    "TableWriteInfo": "transactions",
    "TxnInfo": "transactions",
    "TxnState": "transactions",
    "ValidTxnList": "write_ids",
    "ValidWriteIdList": "write_ids",
    "compare": "write_ids",
    "open_metastore": "metastore",
    "table_transaction": "table_transactions",
}


def __getattr__(name: str) -> Any:
    # PEP 562: snapshots can be read without importing SQLAlchemy.
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
