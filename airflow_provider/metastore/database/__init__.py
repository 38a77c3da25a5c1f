"""The metastore's database: its tables, its connections, and the group commit of small transactions.

Only this room knows how SQLite and PostgreSQL differ. A change of
:mod:`~airflow_provider.metastore.database.schema` needs a migration in ``metastore/migrations``.
"""

from airflow_provider.metastore.database.engine import (
    OF_DATABASE,
    MetastoreEngine,
    RunStatement,
)
from airflow_provider.metastore.database.group_commit import GroupedRequest, GroupOperation
from airflow_provider.metastore.database.schema import (
    SCHEMA_REVISION,
    Counter,
    advance,
    column_statistics,
    constraints,
    consumers,
    counted,
    counters,
    current_millis,
    databases,
    functions,
    insert_if_absent,
    lock_components,
    locks,
    notification_log,
    partitions,
    properties,
    repl_txn_map,
    replications,
    tables,
    txn_write_ids,
    txn_writes,
    txns,
    write_id_sequences,
    write_notifications,
)
from airflow_provider.metastore.database.urls import database_exists, mask_url, parse_url

__all__ = [
    "OF_DATABASE",
    "SCHEMA_REVISION",
    "Counter",
    "GroupOperation",
    "GroupedRequest",
    "MetastoreEngine",
    "RunStatement",
    "advance",
    "column_statistics",
    "constraints",
    "consumers",
    "counted",
    "counters",
    "current_millis",
    "database_exists",
    "databases",
    "functions",
    "insert_if_absent",
    "lock_components",
    "locks",
    "mask_url",
    "notification_log",
    "parse_url",
    "partitions",
    "properties",
    "repl_txn_map",
    "replications",
    "tables",
    "txn_write_ids",
    "txn_writes",
    "txns",
    "write_id_sequences",
    "write_notifications",
]
