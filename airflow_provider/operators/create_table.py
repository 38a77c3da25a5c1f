"""Creating a table on storage and in the metastore."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from airflow.sdk import BaseOperator

from airflow_provider.exceptions import (
    AlreadyExistsError,
    InvalidInputError,
    NoSuchObjectError,
    TableExistsError,
)
from airflow_provider.hooks.metastore import MetastoreHook
from airflow_provider.hooks.table import TableHook
from airflow_provider.hooks.task_errors import fail_unless_retryable
from airflow_provider.metastore import AnyMetastore, Column
from airflow_provider.metastore.catalog import object_name
from airflow_provider.metastore.model import (
    HUDI,
    HUDI_TABLE_TYPE,
    PROVIDER,
    check_table_given,
    is_location,
    split_table_name,
)
from airflow_provider.operators._base import texts
from airflow_provider.plugins.links import TableLink
from airflow_provider.table.hudi_options import HudiOptions
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.properties import INSERT_ONLY, table_type_of
from airflow_provider.table.schema import arrow_to_avro, avro_to_arrow, evolved, to_schema, type_name
from airflow_provider.table.writable import HIVES_TRANSACTIONAL_PROPERTIES

if TYPE_CHECKING:
    from airflow.sdk import Context


class CreateTableOperator(BaseOperator):
    """Creates an empty Hudi table and registers it in the metastore.

    ::

        CreateTableOperator(
            task_id="create",
            table="lake.flights",
            location="/srv/lake/flights",
            schema={"id": "bigint", "dest": "string", "fare": "decimal(10,2)", "at": "timestamp"},
            record_key=["id"],
            partition_by=["dest"],
            ordering_field="at",
            if_not_exists=True,
        )

    The result is ``{"table", "location", "created"}``.

    :param table: ``database.table``; or the table's path or URL, which registers nothing in the metastore.
        A database that does not exist is created (templated).
    :param schema: see :func:`airflow_provider.table.schema.to_schema` (templated).
    :param record_key: columns that identify a record; None for a table without a record key, whose rows get
        keys when they are written (templated).
    :param partition_by: columns whose values make the partition path (templated).
    :param ordering_field: of two versions of a record, the one with the larger value in this column wins;
        the later write when None (templated).
    :param location: absolute path or URL; when None, the table's name in the database's location
        (templated).
    :param if_not_exists: accept an existing table when it has the same type, columns, record key, partitions
        and ordering field, and the given options. If the metastore lacks the table, the operator registers
        it.
    :param hive_style: whether partition folders are named ``column=value``.
    :param hudi_options: options for all writers and services of the table, by Hudi's own names, such as
        ``{"hoodie.clean.commits.retained": 20}``; stored in the table's properties, where operators find
        them; see docs/configuration.md (templated).
    :param table_type: ``copy_on_write`` or ``merge_on_read``, see docs/merge-on-read.md (templated).
    :param concurrency: ``optimistic`` or ``non_blocking``, see docs/non-blocking.md; when None,
        ``hudi_options`` decide (templated).
    :param comment: shown to people who look at the metastore (templated).
    :param metastore_conn_id: connection of type ``table_metastore`` (templated).
    :param storage_conn_id: see :class:`~airflow_provider.hooks.table.TableHook` (templated).
    """

    operator_extra_links = (TableLink(),)
    template_fields: Sequence[str] = (
        "table",
        "schema",
        "record_key",
        "partition_by",
        "ordering_field",
        "location",
        "hudi_options",
        "table_type",
        "concurrency",
        "comment",
        "metastore_conn_id",
        "storage_conn_id",
    )
    ui_color = "#dcedc8"

    def __init__(
        self,
        *,
        table: str,
        schema: Mapping[str, str] | str | pa.Schema,
        record_key: Sequence[str] | str | None,
        partition_by: Sequence[str] | str = (),
        ordering_field: str | None = None,
        location: str | None = None,
        if_not_exists: bool = False,
        hive_style: bool = True,
        hudi_options: Mapping[str, Any] | None = None,
        table_type: str = "copy_on_write",
        concurrency: str | None = None,
        comment: str | None = None,
        metastore_conn_id: str = MetastoreHook.default_conn_name,
        storage_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.schema = schema
        self.record_key = record_key
        self.partition_by = partition_by
        self.ordering_field = ordering_field
        self.location = location
        self.if_not_exists = if_not_exists
        self.hive_style = hive_style
        self.hudi_options = hudi_options
        self.table_type = table_type
        self.concurrency = concurrency
        self.comment = comment
        self.metastore_conn_id = metastore_conn_id
        self.storage_conn_id = storage_conn_id

    @fail_unless_retryable
    def execute(self, context: Context) -> dict[str, Any]:
        """Create the table.

        :raises AirflowFailException: for input that no retry can make work, such as an unknown
            type, a missing column or a table that exists; caused by the typed error.
        :raises MetastoreUnavailableError: when the metastore cannot be reached.
        """
        check_table_given(self.table)
        if self.schema is None:
            raise InvalidInputError(f"schema of table {self.table} is None; give it")
        if self.location is not None and not isinstance(self.location, str):
            raise InvalidInputError(f"location must be an absolute path or a URL, not {self.location!r}")
        schema = to_schema(self.schema)
        if is_location(self.table):
            table, created = self._on_storage(
                self.table, self.table.rstrip("/").rpartition("/")[2], "", schema
            )
            return self._result(table, created)
        database, name = split_table_name(self.table)
        # The metastore would refuse the name too, but only after the table is on storage.
        object_name("database", database)
        object_name("table", name)
        columns = _columns(schema, name)
        metastore = MetastoreHook(self.metastore_conn_id).get_metastore()
        location = self._location(metastore, database, name)
        table, created = self._on_storage(location, name, database, schema)
        if self._register(metastore, table, columns):
            self.log.info("table %s registered in the metastore", self.table)
        return self._result(table, created)

    def _location(self, metastore: AnyMetastore, database: str, name: str) -> str:
        """The table's location; a name that is taken is refused before anything is written."""
        try:
            known = metastore.get_table(database, name)
        except NoSuchObjectError:
            pass
        else:
            if not self.if_not_exists:
                raise AlreadyExistsError(
                    f"table {self.table} is registered already, at {known.location}; set if_not_exists=True "
                    "to take it as it is",
                    table=self.table,
                )
            if self.location is not None and self.location.rstrip("/") != known.location.rstrip("/"):
                raise AlreadyExistsError(
                    f"table {self.table} is registered already, at {known.location}, not {self.location}",
                    table=self.table,
                )
            return known.location
        if self.location is not None:
            return self.location
        metastore.create_database(database, if_not_exists=True)
        folder = metastore.get_database(database).location
        if not folder:
            raise NoSuchObjectError(
                f"database {database!r} has no location to put table {name!r} into; give the operator one",
                database=database,
            )
        return f"{folder.rstrip('/')}/{name}"

    def _on_storage(
        self, location: str, name: str, database: str, schema: pa.Schema
    ) -> tuple[HudiTable, bool]:
        options = TableHook(storage_conn_id=self.storage_conn_id).storage_options()
        try:
            table = HudiTable.create(
                location,
                name=name,
                schema=schema,
                record_key=texts(self.record_key, "record_key"),
                partition_by=texts(self.partition_by, "partition_by") or (),
                ordering_field=self.ordering_field,
                database=database,
                hive_style=self.hive_style,
                table_type=self.table_type,
                concurrency=self.concurrency,
                storage_options=options,
                hudi_options=self.hudi_options,
            )
        except TableExistsError as error:
            if not self.if_not_exists:
                raise TableExistsError(f"{error}, or set if_not_exists=True", **error.details) from error
            table = HudiTable.open(location, options)
            self._check_same(table, schema)
            self.log.info("table at %s is there already", location)
            return table, False
        self.log.info("table created at %s", location)
        return table, True

    def _check_same(self, table: HudiTable, schema: pa.Schema) -> None:
        config = table.config
        ordering = (self.ordering_field,) if self.ordering_field else ()
        options = HudiOptions.parse(self.hudi_options).with_concurrency(self.concurrency).to_properties()
        found_options = table.hudi_options.to_properties()
        wanted_and_found = {
            "type": ((table_type_of(self.table_type),), (config.table_type,)),
            "record key": (texts(self.record_key, "record_key") or (), config.record_key_fields),
            "partition columns": (texts(self.partition_by, "partition_by") or (), config.partition_fields),
            "ordering field": (ordering, config.ordering_fields),
            "columns": _columns_asked_and_found(schema, table),
            "options": (_settings(options), _settings(found_options, only=options)),
        }
        for what, (wanted, found) in wanted_and_found.items():
            if wanted != found:
                raise TableExistsError(
                    f"{table.location} holds another table already: its {what}: {_shown(found)}; "
                    f"asked for: {_shown(wanted)}",
                    location=table.location,
                )

    def _register(self, metastore: AnyMetastore, table: HudiTable, columns: tuple[Column, ...]) -> bool:
        database, name = split_table_name(self.table)
        metastore.create_database(database, if_not_exists=True)
        try:
            metastore.get_table(database, name)
        except NoSuchObjectError:
            partition_fields = table.config.partition_fields
            metastore.create_table(
                database,
                name,
                location=table.location,
                schema=[column for column in columns if column.name not in partition_fields],
                partition_keys=[
                    column for field in partition_fields for column in columns if column.name == field
                ],
                parameters={
                    PROVIDER: HUDI,
                    # From this parameter the metastore's service derives the format in which Hive reads the
                    # table.
                    **({HUDI_TABLE_TYPE: table.config.table_type} if table.is_merge_on_read else {}),
                    **({HIVES_TRANSACTIONAL_PROPERTIES: INSERT_ONLY} if table.config.is_insert_only else {}),
                    **({"comment": self.comment} if self.comment else {}),
                },
                if_not_exists=True,
            )
            return True
        return False

    def _result(self, table: HudiTable, created: bool) -> dict[str, Any]:
        return {"table": self.table, "location": table.location, "created": created}


def _columns(schema: pa.Schema, record_name: str) -> tuple[Column, ...]:
    # With the types that the table will store: Avro has fewer types than Arrow.
    stored = avro_to_arrow(arrow_to_avro(schema, record_name))
    return tuple(Column(field.name, type_name(field.type), None) for field in stored)


def _columns_asked_and_found(
    schema: pa.Schema, table: HudiTable
) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
    """The columns asked for and found; equal if the found ones are an evolution: some added, some wider."""
    found = table.schema
    try:
        has_come_of_them = evolved(schema, found)[0].equals(found)
    except InvalidInputError:
        has_come_of_them = False
    asked = _columns(schema, table.config.name)
    is_first = found.names[: len(schema)] == schema.names
    return asked, asked if has_come_of_them and is_first else _columns(found, table.config.name)


def _settings(options: Mapping[str, str], only: Container[str] | None = None) -> tuple[str, ...]:
    chosen = sorted(key for key in options if only is None or key in only)
    return tuple(f"{key}={options[key]}" for key in chosen)


def _shown(value: tuple[Any, ...]) -> str:
    shown = [f"{item.name} {item.type}" if isinstance(item, Column) else str(item) for item in value]
    return ", ".join(shown) or "none"
