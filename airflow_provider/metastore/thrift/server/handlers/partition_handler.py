"""The methods that change partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from sqlalchemy import Connection

from airflow_provider.exceptions import InvalidInputError, MetastoreError, NoSuchObjectError
from airflow_provider.metastore.catalog import (
    add_partitions,
    alter_partition,
    alter_table,
    check_writable,
    drop_partitions,
    get_table,
    get_table_and_partitions,
    no_such_partition,
)
from airflow_provider.metastore.model import (
    HUDI,
    NO_WRITE_ID,
    PROVIDER,
    PartitionInfo,
    PartitionSpec,
    PartitionValues,
    TableInfo,
    partition_key,
    partition_texts,
    partition_values,
)
from airflow_provider.metastore.partition_filter import partition_filter
from airflow_provider.metastore.thrift.protocol import (
    TableStructs,
    hive,
    partition_name,
    read_storage_descriptor,
    values_in_name,
)
from airflow_provider.metastore.thrift.server.handlers.catalog_handler import plain_name
from airflow_provider.metastore.thrift.server.handlers.hive_tables import is_of_hive, with_ddl_time
from airflow_provider.metastore.thrift.server.handlers.partition_read_handler import expression_text
from airflow_provider.metastore.thrift.server.handlers.partition_specs import partitions_of
from airflow_provider.metastore.thrift.server.reads import CatalogReads
from airflow_provider.metastore.thrift.server.warehouse import Warehouse
from airflow_provider.metastore.transactions import DdlTransaction, txn_of_write_id

_BASIC_STATISTICS = frozenset({"numFiles", "numRows", "rawDataSize", "totalSize", "numFilesErasureCoded"})


class PartitionHandler:
    """Methods of ``ThriftHiveMetastore`` by their names in the interface definition.

    :param reads: answers the reads.
    :param structs: makes the structs of tables.
    :param warehouse: chooses locations where clients give none.
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

    def add_partitions_pspec(self, specs: list[Any]) -> int:
        return self.add_partitions(partitions_of(specs))

    def append_partition(self, database: str, table: str, values: list[str]) -> Any:
        return self._add(database, table, [hive.Partition(values=values)], if_not_exists=False)[0]

    def append_partition_with_environment_context(
        self, database: str, table: str, values: list[str], context: Any
    ) -> Any:
        return self.append_partition(database, table, values)

    def append_partition_by_name(self, database: str, table: str, name: str) -> Any:
        return self.append_partition(database, table, self._values_in(database, table, name))

    def append_partition_by_name_with_environment_context(
        self, database: str, table: str, name: str, context: Any
    ) -> Any:
        return self.append_partition_by_name(database, table, name)

    def append_partition_req(self, request: Any) -> Any:
        if request.partVals is None:
            return self.append_partition_by_name(request.dbName, request.tableName, request.name)
        return self.append_partition(request.dbName, request.tableName, request.partVals)

    def drop_partition(self, database: str, table: str, values: list[str], delete_data: bool) -> bool:
        self._drop(database, table, [values], delete_data=delete_data, if_exists=False)
        return True

    def drop_partition_with_environment_context(
        self, database: str, table: str, values: list[str], delete_data: bool, context: Any
    ) -> bool:
        return self.drop_partition(database, table, values, delete_data)

    def drop_partition_by_name(self, database: str, table: str, name: str, delete_data: bool) -> bool:
        return self.drop_partition(database, table, self._values_in(database, table, name), delete_data)

    def drop_partition_by_name_with_environment_context(
        self, database: str, table: str, name: str, delete_data: bool, context: Any
    ) -> bool:
        return self.drop_partition_by_name(database, table, name, delete_data)

    def drop_partition_req(self, request: Any) -> bool:
        delete_data = bool(request.deleteData)
        if request.partVals is None:
            return self.drop_partition_by_name(request.dbName, request.tblName, request.partName, delete_data)
        return self.drop_partition(request.dbName, request.tblName, request.partVals, delete_data)

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
            # The place where Hive's own client puts the write id (PartitionDropOptions).
            write_id=int(_properties(request).get("writeId", NO_WRITE_ID)),
        )
        return hive.DropPartitionsResult(partitions=dropped if request.needResult else None)

    def alter_partition(self, database: str, table: str, partition: Any) -> None:
        self._alter(database, table, [partition])

    def alter_partition_with_environment_context(
        self, database: str, table: str, partition: Any, context: Any
    ) -> None:
        self.alter_partition(database, table, partition)

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
        # Hive's Java client sends -1 where there is no transaction.
        txn_id = request.txnId if (request.txnId or 0) > 0 else None
        self._rename(request.dbName, request.tableName, request.partVals, request.newPart, txn_id)
        return hive.RenamePartitionResponse()

    def exchange_partition(
        self, spec: dict[str, str], source_db: str, source: str, target_db: str, target: str
    ) -> Any:
        return self.exchange_partitions(spec, source_db, source, target_db, target)[0]

    def exchange_partitions(
        self, spec: dict[str, str], source_db: str, source: str, target_db: str, target: str
    ) -> list[Any]:
        """Move partitions to another table, all of them or none, and their folders if these are managed.

        :param spec: values by partition key; a key that is absent or empty may have any value.
        """
        old = self._metastore.get_table(plain_name(source_db), source)
        new = self._metastore.get_table(plain_name(target_db), target)
        chosen = self._exchanged(old, new, spec)
        specs = []
        with ExitStack() as folders:
            for one in chosen:
                name, location = partition_name(old, one.values), one.location
                if self._warehouse.moves_with_values(old, location, name):
                    location = f"{new.location.rstrip('/')}/{name}"
                    folders.enter_context(self._warehouse.moved(one.location, location))
                specs.append(PartitionSpec(one.values, location, one.parameters, one.storage_descriptor))
            added = self._metastore.sql.write(lambda connection: _exchange(connection, old, new, specs))
        return self._structs.of_partitions(new, added)

    def _exchanged(self, old: TableInfo, new: TableInfo, spec: dict[str, str]) -> list[PartitionInfo]:
        """The partitions that an exchange moves, by :meth:`exchange_partitions`'s rules."""
        names = [key.name.lower() for key in old.partition_keys]
        wanted = {key.lower(): value for key, value in spec.items() if value}
        if unknown := sorted(wanted.keys() - set(names)):
            raise InvalidInputError(
                f"table {old.full_name} has no partition key {unknown[0]!r}; it has {names}",
                table=old.full_name,
            )
        if _shape(old) != _shape(new):
            raise InvalidInputError(
                f"tables {old.full_name} and {new.full_name} have different columns or partition keys; a "
                "partition moves between tables that have the same",
                table=old.full_name,
            )
        keep = {names.index(key): value for key, value in wanted.items()}
        chosen = [
            one
            for one in self._metastore.get_partitions(old.database, old.name)
            if all(partition_texts(one.values)[at] == value for at, value in keep.items())
        ]
        if not chosen:
            raise MetastoreError(
                f"table {old.full_name} has no partition with {wanted}, so none can move", table=old.full_name
            )
        return chosen

    def truncate_table(self, database: str, table: str, names: list[str] | None) -> None:
        self._truncate(database, table, names, NO_WRITE_ID)

    def truncate_table_req(self, request: Any) -> Any:
        self._truncate(request.dbName, request.tableName, request.partNames, request.writeId)
        return hive.TruncateTableResponse()

    def _truncate(self, database: str, table: str, names: list[str] | None, write_id: int | None) -> None:
        """Delete the files of a table or of some partitions; the table and the partitions stay."""
        owner = self._metastore.get_table(plain_name(database), table)
        if owner.parameters.get(PROVIDER) == HUDI or not self._warehouse.owns_folder(owner):
            raise InvalidInputError(
                f"table {owner.full_name} is not truncated by the metastore: it deletes the files of Hive's "
                "managed tables, with --manage-folders; delete the rows by the engine that writes the table",
                table=owner.full_name,
            )
        # This comes before files are deleted: the metastore would refuse the changes below.
        check_writable(owner.database, self._metastore.get_database(owner.database).parameters)
        found = {one.values: one for one in self._metastore.get_partitions(owner.database, owner.name)}
        wanted = [partition_values(values_in_name(owner, one)) for one in names or ()] or list(found)
        if missing := [one for one in wanted if one not in found]:
            raise no_such_partition(owner, partition_key(owner, missing[0]))
        chosen = [found[one] for one in wanted]
        txn_id = self._txn(owner.database, owner.name, write_id)
        for location in [one.location for one in chosen] or [owner.location]:
            self._warehouse.empty(location, owner.full_name)

        def tell(connection: Connection) -> None:
            transaction = DdlTransaction(connection, txn_id)
            for one in chosen:
                alter_partition(
                    connection,
                    owner.database,
                    owner.name,
                    one.values,
                    changes={"parameters": _without_rows(one.parameters)},
                    write_id=transaction.write_id,
                    truncates=True,
                )
            if not owner.partition_keys:
                alter_table(
                    connection,
                    owner.database,
                    owner.name,
                    changes={"parameters": _without_rows(owner.parameters)},
                    write_id=transaction.write_id,
                    truncates=True,
                )
            transaction.end()

        self._metastore.sql.write(tell)

    def _values_in(self, database: str, table: str, name: str) -> list[str]:
        return values_in_name(self._reads.table(plain_name(database), table), name)

    def _rename(
        self, database: str, table: str, values: list[str], partition: Any, txn_id: int | None
    ) -> None:
        owner = self._metastore.get_table(plain_name(database), table)
        place = (owner.database, owner.name)
        before = self._metastore.get_partition(*place, partition_values(values))
        txn_id = txn_id or self._txn(*place, partition.writeId)
        new_values = partition_values(partition.values)
        changes: dict[str, Any] = {"values": new_values}
        # As in Hive, the location that the client sends has no effect.
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

        self._metastore.sql.write(change)

    def _txn(self, database: str, table: str, write_id: int | None) -> int | None:
        """The transaction of the write id in a request; None without one, for a transaction of its own."""
        if write_id is None or write_id <= 0:
            return None
        return self._metastore.sql.read(
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
                with_ddl_time(one.parameters or {}) if is_of_hive(owner) else one.parameters or {},
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
        return self._structs.of_partitions(owner, added)

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
        return self._structs.of_partitions(owner, dropped)

    def _values_of(self, request: Any) -> list[PartitionValues]:
        """The values of the partitions that a request's expressions choose; each has to choose some."""
        owner, found = self._metastore.sql.read(
            lambda connection: get_table_and_partitions(
                connection, plain_name(request.dbName), request.tblName
            )
        )
        hit: dict[PartitionValues, None] = {}
        for one in request.parts.exprs or ():
            text = expression_text(one.expr)
            if not text.strip():
                raise InvalidInputError(
                    f"table {owner.full_name}: an empty expression is every partition; to drop all name them"
                )
            chosen = list(filter(partition_filter(text, owner.partition_keys), found))
            if not chosen and not request.ifExists:
                raise NoSuchObjectError(f"table {owner.full_name} has no partition with {text}")
            hit.update(dict.fromkeys(partition.values for partition in chosen))
        return list(hit)


def _properties(request: Any) -> dict[str, str]:
    context = request.environmentContext
    return (context and context.properties) or {}


def _shape(table: TableInfo) -> list[tuple[str, str]]:
    return [(one.name.lower(), one.type.lower()) for one in (*table.schema, *table.partition_keys)]


def _exchange(
    connection: Connection, old: TableInfo, new: TableInfo, specs: Sequence[PartitionSpec]
) -> list[PartitionInfo]:
    transaction = DdlTransaction(connection, None)
    for one in sorted({(old.database, old.name), (new.database, new.name)}):
        get_table(connection, *one, lock=True)
    drop_partitions(
        connection,
        old.database,
        old.name,
        [one.values for one in specs],
        if_exists=False,
        write_id=transaction.write_id,
    )
    added = add_partitions(
        connection, new.database, new.name, specs, if_not_exists=False, write_id=transaction.write_id
    )
    transaction.end()
    return added


def _without_rows(parameters: Mapping[str, str]) -> dict[str, str]:
    """The parameters of a table or a partition, with its existing basic statistics set to zero."""
    return {key: "0" if key in _BASIC_STATISTICS else value for key, value in parameters.items()}
