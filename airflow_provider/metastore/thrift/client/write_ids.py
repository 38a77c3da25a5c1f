"""The write ids that a transaction gets from a server."""

from __future__ import annotations

from airflow_provider.metastore.model import NO_WRITE_ID, TableInfo
from airflow_provider.metastore.thrift.client.connections import ThriftConnections
from airflow_provider.metastore.thrift.protocol import hive


def allocate_write_id(server: ThriftConnections, txn_id: int, database: str, table: str) -> int:
    """See :meth:`AnyMetastore.allocate_table_write_id`."""
    request = hive.AllocateTableWriteIdsRequest(dbName=database, tableName=table, txnIds=[txn_id])
    [allocated] = server.read("allocate_table_write_ids", request).txnToWriteIds
    return int(allocated.writeId)


def write_id_of_change(server: ThriftConnections, txn_id: int | None, table: TableInfo) -> int:
    """The write id of a transaction's change of a table; :data:`NO_WRITE_ID` outside a transaction."""
    if txn_id is None:
        return NO_WRITE_ID
    return allocate_write_id(server, txn_id, table.database, table.name)
