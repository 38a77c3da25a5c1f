"""The check of incoming columns against the table's, before anything is written."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from airflow_provider.exceptions import MissingColumnError
from airflow_provider.ingestion.ingest_job import IngestJob
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.keys import partition_paths, record_keys
from airflow_provider.table.properties import TableConfig
from airflow_provider.table.schema import FILL, VALIDATE, ColumnChange, check_roles, evolved
from airflow_provider.table.writable import check_takes_operation, check_takes_rows


@dataclass(frozen=True)
class BatchColumns:
    """A batch's columns, and the table's before and after it.

    :param came: the batch's columns.
    :param rows: the columns to write, with the types that the table has after the write.
    :param table: the table's columns after the write.
    :param changes: the changes of the table's columns.
    """

    came: pa.Schema
    rows: pa.Schema
    table: pa.Schema
    changes: tuple[ColumnChange, ...] = ()


def check_columns(
    job: IngestJob, came: pa.Schema, table: HudiTable, columns: pa.Schema, *, fills: bool | None = None
) -> BatchColumns:
    """Check the incoming columns against what the operation needs and the table allows.

    :param job: the ingestion.
    :param came: the source's columns.
    :param table: the table.
    :param columns: the table's present columns.
    :param fills: whether columns that the rows lack are null; by the job and the table when None.
    :raises UnsupportedTableError: when this package cannot write rows into such a table, see
        :func:`~airflow_provider.table.writable.check_takes_rows`; or when the table does not take this
        operation, see :func:`~airflow_provider.table.writable.check_takes_operation`.
    :raises MissingColumnError: when the rows lack a column that the operation needs; or a column of the
        table, and missing columns do not become null.
    :raises IncompatibleSchemaError: when a column does not fit, or would change the type of a column for
        keys, partitions or the order of versions.
    """
    config = table.config
    check_takes_rows(config, table.merge_semantics, columns)
    check_takes_operation(table.location, config, job.operation, tells_rows_apart=job.kind.looks_up_keys)
    deletes = job.operation == "delete"
    wanted = {"record key": config.record_key_fields, "partition": config.partition_fields}
    if not deletes:
        wanted["ordering"] = table.merge_semantics.ordering_fields
    for role, names in wanted.items():
        for name in names:
            if name not in came.names:
                raise MissingColumnError(
                    f"{role} column {name!r} of table {table.location} is not in the source, which has "
                    f"{', '.join(came.names)}; add or rename it",
                    column=name,
                )
    if deletes:
        names = delete_columns(table)
        needed = pa.schema(
            [f.with_nullable(True) for f in columns if f.name in names and f.name in came.names]
        )
        rows, changes = evolved(needed, pa.schema([came.field(name) for name in needed.names]))
        check_roles(config, changes)
        return BatchColumns(came, rows, columns, ())
    if came.equals(columns):
        return BatchColumns(came, columns, columns)
    fills = fills_missing(job, table) if fills is None else fills
    after, changes = evolved(columns, came, fills_missing=fills)
    check_roles(config, changes)
    return BatchColumns(came, pa.schema([f for f in after if f.name in came.names]), after, changes)


def as_coarse_as(data: pa.Schema, table: pa.Schema) -> pa.Schema:
    """A source's columns, with milliseconds instead of microseconds where the table has milliseconds. Each
    value is checked later.

    :param data: the columns of a source.
    :param table: the table's columns.
    """
    fields = []
    for field in data:
        position = table.get_field_index(field.name)
        target = table.field(position).type if position >= 0 else None
        coarser = pa.types.is_timestamp(field.type) and pa.types.is_timestamp(target)
        if target is not None and coarser and (field.type.tz is None) == (target.tz is None):
            field = field.with_type(target)
        fields.append(field)
    return pa.schema(fields)


def fills_missing(job: IngestJob, table: HudiTable) -> bool:
    """Whether columns that the rows lack become null: by the job, or else by the table's options.

    :param job: the ingestion.
    :param table: the table.
    """
    options = table.hudi_options.values
    validates = (
        options.get(VALIDATE, False) if job.missing.validate_schema is None else job.missing.validate_schema
    )
    fills = job.missing.set_null_for_missing_columns
    return not validates and bool(options.get(FILL, False) if fills is None else fills)


def check_locations(columns: pa.Schema, config: TableConfig) -> None:
    """Check the types of the key and partition columns.

    :param columns: the table's columns.
    :param config: its configuration.
    :raises InvalidRecordKeyError: when a key column's type cannot be a key.
    :raises InvalidPartitionValueError: when a partition column's type cannot name a folder.
    """
    if not config.generates_keys:
        record_keys(columns.empty_table(), config)
    partition_paths(columns.empty_table(), config)


def delete_columns(table: HudiTable) -> tuple[str, ...]:
    """The columns that a delete reads; the ordering columns may be missing."""
    config, ordering = table.config, table.merge_semantics.ordering_fields
    return tuple(dict.fromkeys([*config.record_key_fields, *config.partition_fields, *ordering]))
