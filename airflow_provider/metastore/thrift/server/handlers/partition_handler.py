"""Partitions, as Hive's clients ask for them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection

from airflow_provider.exceptions import InvalidInputError, NoSuchObjectError
from airflow_provider.metastore.catalog import alter_partition, get_table_and_partitions
from airflow_provider.metastore.model import (
    NO_WRITE_ID,
    PartitionInfo,
    PartitionSpec,
    PartitionValues,
    Reader,
    TableInfo,
    partition_texts,
    partition_values,
)
from airflow_provider.metastore.partition_filter import partition_filter
from airflow_provider.metastore.thrift.protocol import (
    TableStructs,
    hive,
    partition_name,
    partition_struct,
    read_storage_descriptor,
    values_in_name,
)
from airflow_provider.metastore.thrift.server.handlers.catalog_handler import plain_name
from airflow_provider.metastore.thrift.server.reads import CatalogReads, event_seen
from airflow_provider.metastore.thrift.server.warehouse import Warehouse
from airflow_provider.metastore.transactions import DdlTransaction, txn_of_write_id

Choice = Callable[[TableInfo], Callable[[PartitionInfo], bool]]
"""Tells of a table which of its partitions are wanted."""


def _all(table: TableInfo) -> Callable[[PartitionInfo], bool]:
    return lambda partition: True


def _beginning(values: Sequence[str]) -> Choice:
    """Partitions whose first values are these; an empty one is any."""

    def keep(partition: PartitionInfo) -> bool:
        own = partition_texts(partition.values)
        return all(asked in ("", had) for asked, had in zip(values, own, strict=False))

    return lambda table: keep


def _named(names: Sequence[str]) -> Choice:
    """Partitions by names such as ``year=2013/month=1``."""

    def choice(table: TableInfo) -> Callable[[PartitionInfo], bool]:
        known = {partition_values(values_in_name(table, name)) for name in names}
        return lambda partition: partition.values in known

    return choice


def _filtered(text: str) -> Choice:
    return lambda table: partition_filter(text, table.partition_keys)


def _text_of(expression: bytes) -> str:
    """The filter's text that an expression is."""
    with contextlib.suppress(UnicodeDecodeError):
        text = expression.decode()
        if "".join(text.split()).isprintable():
            return text
    raise InvalidInputError(
        "the expression is a serialised Java object, which only Hive can read; give the text of a partition "
        "filter in its place, or ask by get_partitions_by_filter"
    )


class PartitionHandler:
    """Methods of ``ThriftHiveMetastore`` by their names in the interface definition.

    :param reads: what is asked.
    :param structs: makes the answers.
    :param warehouse: where partitions go that have no location.
    """

    def __init__(self, reads: CatalogReads, structs: TableStructs, warehouse: Warehouse) -> None:
        self._reads = reads
        self._metastore = reads.metastore
        self._structs = structs
        self._warehouse = warehouse

    def add_partition(self, partition: Any) -> Any:
        return self._add(partition.dbName, partition.tableName, [partition], if_not_exists=False)[0]

    def add_partition_with_environment_context(self, partition: Any, context: Any) -> Any:
        return self.add_partition(partition)

    def add_partitions(self, partitions: list[Any]) -> int:
        if not partitions:
            return 0
        first = partitions[0]
        return len(self._add(first.dbName, first.tableName, partitions, if_not_exists=False))

    def add_partitions_req(self, request: Any) -> Any:
        added = self._add(request.dbName, request.tblName, request.parts, if_not_exists=request.ifNotExists)
        return hive.AddPartitionsResult(partitions=added if request.needResult else None)

    def drop_partition(self, database: str, table: str, values: list[str], delete_data: bool) -> bool:
        self._drop(database, table, [values], delete_data=delete_data, if_exists=False)
        return True

    def drop_partition_with_environment_context(
        self, database: str, table: str, values: list[str], delete_data: bool, context: Any
    ) -> bool:
        return self.drop_partition(database, table, values, delete_data)

    def drop_partition_by_name(self, database: str, table: str, name: str, delete_data: bool) -> bool:
        values = values_in_name(self._reads.table(plain_name(database), table), name)
        return self.drop_partition(database, table, values, delete_data)

    def drop_partitions_req(self, request: Any) -> Any:
        values: Sequence[PartitionValues]
        if request.parts.names is not None:
            owner = self._reads.table(plain_name(request.dbName), request.tblName)
            values = [tuple(values_in_name(owner, name)) for name in request.parts.names]
        else:
            values = self._values_of(request)
        dropped = self._drop(
            request.dbName,
            request.tblName,
            values,
            delete_data=bool(request.deleteData),
            if_exists=bool(request.ifExists),
            # Where Hive's own client puts it (PartitionDropOptions).
            write_id=int(_properties(request).get("writeId", NO_WRITE_ID)),
        )
        return hive.DropPartitionsResult(partitions=dropped if request.needResult else None)

    def get_partition(self, database: str, table: str, values: list[str]) -> Any:
        return self._partition(database, table, values)

    def get_partition_with_auth(
        self, database: str, table: str, values: list[str], user: str, groups: list[str]
    ) -> Any:
        return self._partition(database, table, values)

    def get_partition_by_name(self, database: str, table: str, name: str) -> Any:
        values = values_in_name(self._reads.table(plain_name(database), table), name)
        return self._partition(database, table, values)

    def get_partition_req(self, request: Any) -> Any:
        reader = self._reads.reader(request.validWriteIdList, request.id)
        found = self._partition(request.dbName, request.tblName, request.partVals, reader)
        return hive.GetPartitionResponse(partition=found)

    def get_partitions(self, database: str, table: str, limit: int) -> list[Any]:
        return self._partitions(database, table, limit)

    def get_partitions_req(self, request: Any) -> Any:
        reader = self._reads.reader(request.validWriteIdList, request.id)
        found = self._partitions(request.dbName, request.tblName, request.maxParts, reader=reader)
        return hive.PartitionsResponse(partitions=found)

    def get_partition_names(self, database: str, table: str, limit: int) -> list[str]:
        return self._names(database, table, limit)

    def fetch_partition_names_req(self, request: Any) -> list[str]:
        reader = self._reads.reader(request.validWriteIdList, request.id)
        return self._names(request.dbName, request.tblName, request.maxParts, reader=reader)

    def get_partitions_ps(self, database: str, table: str, values: list[str], limit: int) -> list[Any]:
        return self._partitions(database, table, limit, _beginning(values))

    def get_partitions_ps_with_auth(
        self, database: str, table: str, values: list[str], limit: int, user: str, groups: list[str]
    ) -> list[Any]:
        return self._partitions(database, table, limit, _beginning(values))

    def get_partitions_ps_with_auth_req(self, request: Any) -> Any:
        reader = self._reads.reader(request.validWriteIdList, request.id)
        names, values = request.partNames, request.partVals or []
        choice = _beginning(values) if names is None else _named(names)
        found = self._partitions(request.dbName, request.tblName, request.maxParts, choice, reader=reader)
        return hive.GetPartitionsPsWithAuthResponse(partitions=found)

    def get_partition_names_ps(self, database: str, table: str, values: list[str], limit: int) -> list[str]:
        return self._names(database, table, limit, _beginning(values))

    def get_partition_names_ps_req(self, request: Any) -> Any:
        reader = self._reads.reader(request.validWriteIdList, request.id)
        choice = _beginning(request.partValues or [])
        names = self._names(request.dbName, request.tblName, request.maxParts, choice, reader=reader)
        return hive.GetPartitionNamesPsResponse(names=names)

    def get_partitions_by_names(self, database: str, table: str, names: list[str]) -> list[Any]:
        return self._partitions(database, table, -1, _named(names))

    def get_partitions_by_names_req(self, request: Any) -> Any:
        reader = self._reads.reader(request.validWriteIdList, request.id)
        choice = _named(request.names or [])
        found = self._partitions(request.db_name, request.tbl_name, -1, choice, reader=reader)
        return hive.GetPartitionsByNamesResult(partitions=found)

    def get_partitions_by_filter(self, database: str, table: str, text: str, limit: int) -> list[Any]:
        return self._partitions(database, table, limit, _filtered(text))

    def get_partitions_by_filter_req(self, request: Any) -> list[Any]:
        return self.get_partitions_by_filter(
            request.dbName, request.tblName, request.filter, request.maxParts
        )

    def get_num_partitions_by_filter(self, database: str, table: str, text: str) -> int:
        return len(self._chosen(database, table, -1, _filtered(text), None)[1])

    def get_partitions_by_expr(self, request: Any) -> Any:
        """As Hive's ``MsckPartitionExpressionProxy``, which takes an expression for a filter's text."""
        if request.order:
            raise InvalidInputError(f"partitions come in the order of their names, not of {request.order!r}")
        reader = self._reads.reader(request.validWriteIdList, request.id)
        choice = _filtered(_text_of(request.expr))
        found = self._partitions(request.dbName, request.tblName, request.maxParts, choice, reader=reader)
        return hive.PartitionsByExprResult(partitions=found, hasUnknownPartitions=False)

    def read_partitions(self, request: Any) -> Any:
        """Our own client's request; Hive's requests for partitions have no field for the reader's session."""
        reader = self._reads.reader(request.validWriteIdList, request.id, request.seenEventId)
        place = (request.dbName, request.tblName)
        if request.values is not None:
            found = [self._partition(*place, request.values, reader)]
        else:
            choice = _all if request.filter is None else _filtered(request.filter)
            found = self._partitions(*place, -1, choice, reader=reader)
        return hive.ReadPartitionsResponse(partitions=found, eventId=event_seen(reader))

    def alter_partition(self, database: str, table: str, partition: Any) -> None:
        self._alter(database, table, [partition])

    def alter_partitions(self, database: str, table: str, partitions: list[Any]) -> None:
        self._alter(database, table, partitions)

    def alter_partitions_with_environment_context(
        self, database: str, table: str, partitions: list[Any], context: Any
    ) -> None:
        self.alter_partitions(database, table, partitions)

    def alter_partitions_req(self, request: Any) -> Any:
        self._alter(request.dbName, request.tableName, request.partitions, request.writeId)
        return hive.AlterPartitionsResponse()

    def rename_partition(self, database: str, table: str, values: list[str], partition: Any) -> None:
        self._rename(database, table, values, partition, None)

    def rename_partition_req(self, request: Any) -> Any:
        self._rename(request.dbName, request.tableName, request.partVals, request.newPart, request.txnId)
        return hive.RenamePartitionResponse()

    def _rename(
        self, database: str, table: str, values: list[str], partition: Any, txn_id: int | None
    ) -> None:
        owner = self._metastore.get_table(plain_name(database), table)
        place = (owner.database, owner.name)
        before = self._metastore.get_partition(*place, partition_values(values))
        txn_id = txn_id or self._txn(*place, partition.writeId)
        new_values = partition_values(partition.values)
        changes: dict[str, Any] = {"values": new_values}
        # As in Hive, the location that the client sends does not count.
        if self._warehouse.moves_with_values(owner, before.location, partition_name(owner, before.values)):
            changes["location"] = f"{owner.location.rstrip('/')}/{partition_name(owner, new_values)}"
            with self._warehouse.moved(before.location, changes["location"]):
                self._change(*place, [(before.values, changes)], txn_id)
        else:
            self._change(*place, [(before.values, changes)], txn_id)

    def _alter(
        self, database: str, table: str, partitions: list[Any], write_id: int | None = NO_WRITE_ID
    ) -> None:
        database = plain_name(database)
        owner = self._metastore.get_table(database, table)
        of_table = self._structs.of(owner)
        changes = []
        for one in partitions:
            fields: dict[str, Any] = {"parameters": one.parameters or {}}
            if one.sd is not None and one.sd.location:
                fields["location"] = one.sd.location
            if one.sd is not None and one.sd.serdeInfo is not None:
                fields["storage_descriptor"] = read_storage_descriptor(owner, of_table, one.sd)
            changes.append((partition_values(one.values), fields))
        self._change(database, table, changes, self._txn(database, table, write_id))

    def _change(
        self,
        database: str,
        table: str,
        changes: Sequence[tuple[PartitionValues, dict[str, Any]]],
        txn_id: int | None,
    ) -> None:
        """Change partitions, all of them or none."""

        def change(connection: Connection) -> None:
            transaction = DdlTransaction(connection, txn_id)
            for values, fields in changes:
                alter_partition(
                    connection, database, table, values, changes=fields, write_id=transaction.write_id
                )
            transaction.end()

        self._metastore.engine.write(change)

    def _txn(self, database: str, table: str, write_id: int | None) -> int | None:
        """The transaction of the write id that a request names; one that names none is its own."""
        if write_id is None or write_id <= 0:
            return None
        return self._metastore.engine.read(
            lambda connection: txn_of_write_id(connection, database, table, write_id)
        )

    def _add(self, database: str, table: str, partitions: Sequence[Any], *, if_not_exists: bool) -> list[Any]:
        owner = self._metastore.get_table(plain_name(database), table)
        of_table = self._structs.of(owner)
        specs = [
            PartitionSpec(
                tuple(one.values),
                (one.sd and one.sd.location)
                or f"{owner.location.rstrip('/')}/{partition_name(owner, one.values)}",
                one.parameters or {},
                read_storage_descriptor(owner, of_table, one.sd),
            )
            for one in partitions
        ]
        write_id = max((one.writeId or NO_WRITE_ID for one in partitions), default=NO_WRITE_ID)
        txn_id = self._txn(owner.database, table, write_id)
        with self._warehouse.made(*(one.location for one in specs)):
            added = self._metastore.add_partitions(
                owner.database, table, specs, if_not_exists=if_not_exists, txn_id=txn_id
            )
        return self._described(owner, added)

    def _drop(
        self,
        database: str,
        table: str,
        values: Sequence[Sequence[str | None]],
        *,
        delete_data: bool,
        if_exists: bool,
        write_id: int = NO_WRITE_ID,
    ) -> list[Any]:
        owner = self._metastore.get_table(plain_name(database), table)
        txn_id = self._txn(owner.database, table, write_id)
        dropped = self._metastore.drop_partitions(
            owner.database, table, values, if_exists=if_exists, txn_id=txn_id
        )
        if delete_data and self._warehouse.owns_folder(owner):
            for one in dropped:
                name = partition_name(owner, one.values)
                self._warehouse.remove(one.location, f"partition {name} of table {owner.full_name}")
        return self._described(owner, dropped)

    def _values_of(self, request: Any) -> list[PartitionValues]:
        """The values of the partitions that a request gives by expressions, each of which has to hit one."""
        owner, found = self._metastore.engine.read(
            lambda connection: get_table_and_partitions(
                connection, plain_name(request.dbName), request.tblName
            )
        )
        hit: dict[PartitionValues, None] = {}
        for one in request.parts.exprs or ():
            text = _text_of(one.expr)
            if not text.strip():
                raise InvalidInputError(
                    f"table {owner.full_name}: an empty expression is every partition; to drop all name them"
                )
            chosen = list(filter(partition_filter(text, owner.partition_keys), found))
            if not chosen and not request.ifExists:
                raise NoSuchObjectError(f"table {owner.full_name} has no partition with {text}")
            hit.update(dict.fromkeys(partition.values for partition in chosen))
        return list(hit)

    def _partition(self, database: str, table: str, values: list[str], reader: Reader | None = None) -> Any:
        owner, found = self._reads.table_and_partition(plain_name(database), table, values, reader)
        return self._described(owner, [found])[0]

    def _partitions(
        self, database: str, table: str, limit: int, choice: Choice = _all, *, reader: Reader | None = None
    ) -> list[Any]:
        return self._described(*self._chosen(database, table, limit, choice, reader))

    def _names(
        self, database: str, table: str, limit: int, choice: Choice = _all, *, reader: Reader | None = None
    ) -> list[str]:
        owner, found = self._chosen(database, table, limit, choice, reader)
        return [partition_name(owner, one.values) for one in found]

    def _chosen(
        self, database: str, table: str, limit: int | None, choice: Choice, reader: Reader | None
    ) -> tuple[TableInfo, list[PartitionInfo]]:
        """A table and those of its partitions that are wanted, as of one moment."""
        owner, found = self._reads.table_and_partitions(plain_name(database), table, reader)
        chosen = list(filter(choice(owner), found))
        return owner, chosen if limit is None or limit < 0 else chosen[:limit]

    def _described(self, table: TableInfo, partitions: Sequence[PartitionInfo]) -> list[Any]:
        of_table = self._structs.of(table) if partitions else None
        return [partition_struct(table, of_table, one) for one in partitions]


def _properties(request: Any) -> dict[str, str]:
    context = request.environmentContext
    return (context and context.properties) or {}
