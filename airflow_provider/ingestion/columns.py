"""The columns of incoming rows, held against the table's before anything is written."""

from __future__ import annotations

import pyarrow as pa

from airflow_provider.exceptions import MissingColumnError
from airflow_provider.ingestion.ingest_job import IngestJob
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.keys import partition_paths, record_keys
from airflow_provider.table.merge_semantics import MergeSemantics
from airflow_provider.table.properties import TableConfig
from airflow_provider.table.schema import writable_schema
from airflow_provider.table.writable import check_takes_rows


def check_columns(job: IngestJob, incoming: pa.Schema, table: HudiTable) -> None:
    """Hold the incoming columns against what the operation needs and the table allows.

    :param job: the ingestion.
    :param incoming: the source's columns.
    :param table: the table.
    :raises UnsupportedTableError: when no rows can be written into such a table, see
        :func:`~airflow_provider.table.writable.check_takes_rows`.
    :raises MissingColumnError: when a record key, partition or ordering column is missing.
    :raises IncompatibleSchemaError: when a column does not fit.
    """
    config = table.config
    check_takes_rows(config, table.schema)
    wanted = {"record key": config.record_key_fields, "partition": config.partition_fields}
    deletes = job.operation == "delete"
    if not deletes:
        wanted["ordering"] = MergeSemantics.of(config).ordering_fields
    for role, columns in wanted.items():
        for column in columns:
            if column not in incoming.names:
                raise MissingColumnError(
                    f"{role} column {column!r} of table {table.location} is not in the source, which has "
                    f"{', '.join(incoming.names)}; add or rename it",
                    column=column,
                )
    if deletes:
        needed = [field for field in table.schema if field.name in delete_columns(config)]
        present = [field for field in incoming if field.name in delete_columns(config)]
        writable_schema(pa.schema(present), pa.schema([f.with_nullable(True) for f in needed]))
    else:
        writable_schema(incoming, table.schema)


def check_locations(table: HudiTable) -> None:
    """Hold the types of the table's key and partition columns against what these can be made of.

    :param table: the table.
    :raises InvalidRecordKeyError: when a key column's type cannot be a key.
    :raises InvalidPartitionValueError: when a partition column's type cannot be a folder.
    """
    record_keys(table.schema.empty_table(), table.config)
    partition_paths(table.schema.empty_table(), table.config)


def delete_columns(config: TableConfig) -> tuple[str, ...]:
    """The columns that a delete looks at; the ordering columns may be missing."""
    ordering = MergeSemantics.of(config).ordering_fields
    return tuple(dict.fromkeys([*config.record_key_fields, *config.partition_fields, *ordering]))
