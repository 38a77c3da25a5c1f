"""The methods that only Hive's own replication calls, of its source and of its target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.metastore.api import Metastore
from airflow_provider.metastore.model import decode_table, partition_values
from airflow_provider.metastore.thrift.protocol import hive, partition_name
from airflow_provider.metastore.thrift.server.limits import Limits
from airflow_provider.metastore.thrift.server.source_transactions import bring_write_id_state
from airflow_provider.metastore.transactions import (
    WriteEventInfo,
    WriteNotification,
    add_write_notifications,
    seed_txn_id,
    write_events_of,
)

_ALL = "*"
# Hive's ReplChangeManager writes a file as uri#checksum#cmroot#subdirectory, and "]" between two files.
_NO_CHANGE_MANAGER = "###"
_NEXT_FILE = "]"


class ReplicationHandler:
    """Methods of ``ThriftHiveMetastore`` by their names in the interface definition.

    :param metastore: the metastore; a replica's memory never answers these methods.
    :param limits: the limits of each request.
    """

    def __init__(self, metastore: Metastore, limits: Limits) -> None:
        self._metastore = metastore
        self._limits = limits

    def repl_tbl_writeid_state(self, request: Any) -> None:
        bring_write_id_state(self._metastore, request, self._limits.write_ids)

    def seed_write_id(self, request: Any) -> None:
        # As in Hive, the next write id is the seed + 1.
        self._metastore.seed_write_id(request.dbName, request.tableName, request.seedWriteId)

    def seed_txn_id(self, request: Any) -> None:
        # As in Hive, the next transaction id is the seed.
        self._metastore.engine.write(lambda connection: seed_txn_id(connection, request.seedTxnId))

    def add_write_notification_log(self, request: Any) -> Any:
        self._metastore.engine.write(
            lambda connection: add_write_notifications(
                connection, request.db, request.table, [_notification(request)]
            )
        )
        return hive.WriteNotificationLogResponse()

    def add_write_notification_log_in_batch(self, request: Any) -> Any:
        told = request.requestList
        for one in told:
            if (one.db.lower(), one.table.lower()) != (request.db.lower(), request.table.lower()):
                raise InvalidInputError(
                    f"a batch about table {request.db}.{request.table} has a notification about "
                    f"{one.db}.{one.table}; send one batch for each table",
                    table=f"{one.db}.{one.table}",
                )
        if told:
            # As in Hive, a batch leaves out partitions that do not exist, and a single notification does not.
            self._metastore.engine.write(
                lambda connection: add_write_notifications(
                    connection, request.db, request.table, [*map(_notification, told)], skip_missing=True
                )
            )
        return hive.WriteNotificationLogBatchResponse()

    def get_all_write_event_info(self, request: Any) -> list[Any]:
        database, table = (None if one == _ALL else one for one in (request.dbName, request.tableName))
        found = self._metastore.engine.read(
            lambda connection: write_events_of(connection, request.txnId, database, table)
        )
        return [_event_info(one) for one in found]


def _notification(request: Any) -> WriteNotification:
    files = request.fileInfo.filesAdded
    folders = _for_each(request, files, "subDirectoryList")
    _for_each(request, files, "filesAddedChecksum")  # a Hive without a change manager drops them, too
    encoded = [f"{file}{_NO_CHANGE_MANAGER}{folder}" for file, folder in zip(files, folders, strict=True)]
    values = partition_values(request.partitionVals or ())
    return WriteNotification(request.txnId, request.writeId, values, encoded)


def _for_each(request: Any, files: Sequence[str], field: str) -> Sequence[str]:
    """A text for each file; empty texts when the client sent none."""
    texts: Sequence[str] = getattr(request.fileInfo, field) or [""] * len(files)
    if len(texts) != len(files):
        raise InvalidInputError(
            f"transaction {request.txnId}: a notification about {request.db}.{request.table} has "
            f"{len(files)} files and {len(texts)} values of {field}; send one for each file, or none",
            txn_id=request.txnId,
        )
    return texts


def _event_info(event: WriteEventInfo) -> Any:
    # As in Hive: of a table without partition keys, the partition is an empty text.
    name = partition_name(decode_table(event.table_object), event.values) if event.values else ""
    return hive.WriteEventInfo(
        writeId=event.write_id,
        database=event.database,
        table=event.table,
        files=_NEXT_FILE.join(event.files),
        partition=name,
        tableObj=event.table_object,
        partitionObj=event.partition_object,
    )
