"""Global transactions, and the write ids that they allocate on tables.

Each module holds functions of one database connection. The two ``*_group`` modules do the same for several
threads in one database transaction. Begin with :mod:`~airflow_provider.metastore.transactions.transactions`.
"""

from airflow_provider.metastore.transactions.ddl_transaction import DdlTransaction
from airflow_provider.metastore.transactions.table_write_ids import (
    last_txn_in_conflict,
    last_write_id,
    open_table_write_ids,
    table_write_ids_of,
    txn_of_write_id,
    write_id_of,
)
from airflow_provider.metastore.transactions.transaction_group import TRANSACTIONS, CommitTxn, OpenTxn
from airflow_provider.metastore.transactions.transactions import (
    lock_open,
    not_committed,
    open_txns,
    remove_empty_aborted,
    seed_txn_id,
)
from airflow_provider.metastore.transactions.write_id_group import WRITE_IDS, AllocateWriteId
from airflow_provider.metastore.transactions.write_notifications import (
    WriteEventInfo,
    WriteNotification,
    add_write_notifications,
    write_events_of,
)

__all__ = [
    "TRANSACTIONS",
    "WRITE_IDS",
    "AllocateWriteId",
    "CommitTxn",
    "DdlTransaction",
    "OpenTxn",
    "WriteEventInfo",
    "WriteNotification",
    "add_write_notifications",
    "last_txn_in_conflict",
    "last_write_id",
    "lock_open",
    "not_committed",
    "open_table_write_ids",
    "open_txns",
    "remove_empty_aborted",
    "seed_txn_id",
    "table_write_ids_of",
    "txn_of_write_id",
    "write_events_of",
    "write_id_of",
]
