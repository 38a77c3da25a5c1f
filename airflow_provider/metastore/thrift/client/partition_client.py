"""A server's partitions, and the INSERT events of tables and partitions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from airflow_provider.exceptions import UnsupportedByServerError
from airflow_provider.metastore.model import (
    PartitionInfo,
    PartitionSpec,
    Reader,
    TableInfo,
    partition_key,
    partition_order,
    partition_texts,
)
from airflow_provider.metastore.thrift.client.connections import ThriftConnections
from airflow_provider.metastore.thrift.client.notification_client import current_event_id
from airflow_provider.metastore.thrift.client.table_reader import TableReader, as_of_now
from airflow_provider.metastore.thrift.client.thrift_client import ThriftClient
from airflow_provider.metastore.thrift.client.write_ids import write_id_of_change
from airflow_provider.metastore.thrift.protocol import (
    hive,
    partition_name,
    partition_struct,
    read_partition,
    read_table,
)

_NO_LIMIT = -1


class PartitionClient(ThriftClient):
    """See :class:`~airflow_provider.metastore.interface.AnyMetastore`.

    A change with ``txn_id`` has the transaction's write id. A Hive of version 2 has no write ids, and the
    method raises :class:`~airflow_provider.exceptions.UnsupportedByServerError`.
    """

    def add_partitions(
        self,
        database: str,
        table: str,
        partitions_to_add: Sequence[PartitionSpec],
        *,
        if_not_exists: bool = True,
        txn_id: int | None = None,
    ) -> list[PartitionInfo]:
        """See :meth:`AnyMetastore.add_partitions`."""
        request = _addition(self._server, self._tables, database, table, partitions_to_add, txn_id)
        request.ifNotExists = if_not_exists
        added = self._server.write("add_partitions_req", request).partitions or []
        return [read_partition(one) for one in added]

    def get_partitions(self, database: str, table: str, **reader: Unpack[Reader]) -> list[PartitionInfo]:
        """See :meth:`AnyMetastore.get_partitions`; ``reader`` as in :meth:`get_table`."""
        old = ("get_partitions", database, table, _NO_LIMIT)
        return _in_order(self._partition_structs(old, database, table, reader))

    def get_partitions_by_filter(
        self, database: str, table: str, filter_text: str, **reader: Unpack[Reader]
    ) -> list[PartitionInfo]:
        """See :meth:`AnyMetastore.get_partitions_by_filter`; ``reader`` as in :meth:`get_table`."""
        old = ("get_partitions_by_filter", database, table, filter_text, _NO_LIMIT)
        return _in_order(self._partition_structs(old, database, table, reader, filter=filter_text))

    def get_partition(
        self, database: str, table: str, values: Sequence[str | None], **reader: Unpack[Reader]
    ) -> PartitionInfo:
        """See :meth:`AnyMetastore.get_partition`; ``reader`` as in :meth:`get_table`."""
        owner = self._tables.get(database, table, **reader)
        return read_partition(self._partition_struct(owner, values, reader))

    def alter_partition(
        self,
        database: str,
        table: str,
        values: Sequence[str | None],
        *,
        location: str | None = None,
        parameters: Mapping[str, str] | None = None,
        txn_id: int | None = None,
    ) -> PartitionInfo:
        """See :meth:`AnyMetastore.alter_partition`; the client sends the other fields' present values."""
        owner = self._tables.get(database, table, **as_of_now())
        struct = self._partition_struct(owner, values, as_of_now())
        if location is not None:
            struct.sd.location = location
        if parameters is not None:
            struct.parameters = dict(parameters)
        if txn_id is None:
            self._server.write("alter_partition", database, table, struct)
        else:
            request = hive.AlterPartitionsRequest(dbName=database, tableName=table, partitions=[struct])
            request.writeId = write_id_of_change(self._server, txn_id, owner)
            self._server.write("alter_partitions_req", request)
        return read_partition(self._partition_struct(owner, values, as_of_now()))

    def rename_partition(
        self,
        database: str,
        table: str,
        values: Sequence[str | None],
        new_values: Sequence[str | None],
        *,
        txn_id: int | None = None,
    ) -> PartitionInfo:
        """See :meth:`AnyMetastore.rename_partition`; a Hive also moves the folder in a managed table."""
        owner = self._tables.get(database, table, **as_of_now())
        struct = self._partition_struct(owner, values, as_of_now())
        old = partition_texts(_fitting(owner, values))
        struct.values = partition_texts(_fitting(owner, new_values))
        struct.writeId = write_id_of_change(self._server, txn_id, owner)
        self._server.write("rename_partition", database, table, old, struct)
        return read_partition(self._partition_struct(owner, new_values, as_of_now()))

    def drop_partitions(
        self,
        database: str,
        table: str,
        partitions_to_drop: Sequence[Sequence[str | None]],
        *,
        if_exists: bool = True,
        txn_id: int | None = None,
    ) -> list[PartitionInfo]:
        """See :meth:`AnyMetastore.drop_partitions`."""
        owner = self._tables.get(database, table, **as_of_now())
        request = hive.DropPartitionsRequest(
            dbName=database,
            tblName=table,
            parts=hive.RequestPartsSpec(
                names=[partition_name(owner, _fitting(owner, values)) for values in partitions_to_drop]
            ),
            deleteData=False,
            ifExists=if_exists,
        )
        if txn_id is not None:
            write_id = str(write_id_of_change(self._server, txn_id, owner))
            # The place where Hive's own client puts the write id (PartitionDropOptions).
            request.environmentContext = hive.EnvironmentContext(properties={"writeId": write_id})
        dropped = self._server.write("drop_partitions_req", request).partitions or []
        return [read_partition(one) for one in dropped]

    def fire_insert_event(
        self,
        database: str,
        table: str,
        files: Sequence[str],
        *,
        values: Sequence[str | None] | None = None,
        replace: bool = False,
        txn_id: int | None = None,
    ) -> int:
        """See :meth:`AnyMetastore.fire_insert_event`.

        A Hive ignores ``txn_id``: there the event belongs to no transaction.

        :return: the id of the INSERT event; from a Hive before version 4, which does not send it, the id of
            the last event.
        """
        owner = self._tables.get(database, table, **as_of_now())
        inserted = hive.InsertEventRequestData(replace=replace, filesAdded=list(files))
        request = hive.FireEventRequest(
            successful=True,
            data=hive.FireEventRequestData(insertData=inserted),
            dbName=database,
            tableName=table,
            txnId=txn_id,
        )
        if values is not None:
            request.partitionVals = partition_texts(_fitting(owner, values))
        fired = self._server.write("fire_listener_event", request).eventIds
        return int(fired[0]) if fired else current_event_id(self._server)

    def _partition_struct(self, owner: TableInfo, values: Sequence[str | None], reader: Reader) -> Any:
        place, texts = (owner.database, owner.name), partition_texts(_fitting(owner, values))
        [found] = self._partition_structs(("get_partition", *place, texts), *place, reader, values=texts)
        return found

    def _partition_structs(
        self, old: Sequence[Any], database: str, table: str, reader: Reader, **wanted: Any
    ) -> list[Any]:
        """The structs of partitions, as a reader sees them.

        :param old: Hive's request for the same partitions, for a Hive.
        :param wanted: the fields of ``ReadPartitionsRequest`` that choose the partitions.
        """
        request = hive.ReadPartitionsRequest(dbName=database, tblName=table, **wanted)
        try:
            return list(self._tables.read("read_partitions", request, reader).partitions)
        except UnsupportedByServerError:
            found = self._server.read(*old)
            return found if isinstance(found, list) else [found]


def register_partitions(
    server: ThriftConnections,
    tables: TableReader,
    database: str,
    table: str,
    specs: Sequence[PartitionSpec],
    txn_id: int | None,
) -> None:
    """Add the partitions that do not exist.

    Unlike :meth:`PartitionClient.add_partitions` this request may be sent again.
    """
    request = _addition(server, tables, database, table, specs, txn_id)
    request.ifNotExists, request.needResult = True, False
    server.read("add_partitions_req", request)


def _addition(
    server: ThriftConnections,
    tables: TableReader,
    database: str,
    table: str,
    specs: Sequence[PartitionSpec],
    txn_id: int | None,
) -> Any:
    of_table = tables.struct(database, table, as_of_now())
    owner = read_table(of_table)
    infos = [PartitionInfo(_fitting(owner, one.values), one.location, dict(one.parameters)) for one in specs]
    structs = [partition_struct(owner, of_table, info) for info in infos]
    write_id = write_id_of_change(server, txn_id, owner)
    for struct in structs:
        struct.writeId = write_id
    return hive.AddPartitionsRequest(dbName=owner.database, tblName=owner.name, parts=structs)


def _fitting(table: TableInfo, values: Sequence[str | None]) -> tuple[str | None, ...]:
    """The values as a metastore keeps them.

    :raises InvalidInputError: when they do not fit the table's partition keys.
    """
    return tuple(json.loads(partition_key(table, values)))


def _in_order(structs: Sequence[Any]) -> list[PartitionInfo]:
    return sorted(map(read_partition, structs), key=partition_order)
