"""Checks that refuse, before anything is written, tables of another Hudi that this package can only read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import pyarrow as pa

from airflow_provider.exceptions import UnsupportedTableError
from airflow_provider.table.bucket_index import HASHING_METADATA
from airflow_provider.table.file_groups import BaseFile
from airflow_provider.table.file_names import is_bucket
from airflow_provider.table.merge_semantics import MergeSemantics, check_rows_can_be_merged, refused
from airflow_provider.table.properties import (
    ALL_OPERATIONS,
    BUCKET_ENGINE,
    CONCURRENCY_MODE,
    CONSISTENT_HASHING,
    COPY_ON_WRITE,
    INDEX_TYPE,
    INSERT_ONLY,
    NON_BLOCKING,
    NON_BLOCKING_NEEDS,
    NUMBER_OF_BUCKETS,
    TRANSACTIONAL_PROPERTIES,
    TableConfig,
)
from airflow_provider.table.storage import Storage

_REMEDY = "write it with the Hudi that made it; it can be read here"

OPERATION_COLUMN = "_hoodie_operation"
"""Hudi's sixth meta column, the operation of a change (``hoodie.allow.operation.metadata.field``)."""

HIVES_TRANSACTIONAL_PROPERTIES = "transactional_properties"
"""Hive's table parameter whose value ``insert_only`` marks a table without updates and deletes."""

_GENERATORS = {
    "TIMESTAMP": "org.apache.hudi.keygen.TimestampBasedKeyGenerator",
    "CUSTOM": "org.apache.hudi.keygen.CustomKeyGenerator",
}


def check_version(location: str, config: TableConfig) -> None:
    """Make sure that a table has the version and the timeline layout that this package writes.

    :param location: the table's location.
    :param config: the table's configuration.
    :raises UnsupportedTableError: when it has others; the error names them.
    """
    if (config.version, config.layout) != (9, 2):
        raise UnsupportedTableError(
            f"table {location} is {config.table_type} of version {config.version}, timeline layout "
            f"{config.layout}; only version 9, layout 2 can be written",
            location=location,
        )


def check_non_blocking(location: str, config: TableConfig, *, has_buckets: bool) -> None:
    """Make sure that a table has what non-blocking writers need: log files, and a bucket index.

    :param location: the table's location.
    :param config: the table's configuration.
    :param has_buckets: whether the table has a bucket index.
    :raises UnsupportedTableError: when one of the two is missing; the error names the property.
    """
    if config.table_type == COPY_ON_WRITE or not has_buckets:
        raise UnsupportedTableError(
            f"table {location} has {CONCURRENCY_MODE}={NON_BLOCKING}, and is {config.table_type} "
            f"{'with' if has_buckets else 'without'} a bucket index: {NON_BLOCKING_NEEDS}",
            location=location,
            property=CONCURRENCY_MODE,
        )


def check_layout(config: TableConfig) -> None:
    """Make sure that a table has the file layout that this package writes.

    :param config: the table's configuration.
    :raises UnsupportedTableError: when Hudi's own columns are not filled, or folders are not named by the
        values of the partition columns; the error names the property, its value and the remedy.
    """
    if not config.has_meta_columns:
        raise UnsupportedTableError(
            f"table {config.name!r} has hoodie.populate.meta.fields=false and cannot be written here: the "
            f"_hoodie_ columns are needed to merge rows and to keep them apart; {_REMEDY}",
            table=config.name,
            property="hoodie.populate.meta.fields",
        )
    if config.drops_partition_columns:
        raise UnsupportedTableError(
            f"table {config.name!r} has hoodie.datasource.write.drop.partition.columns=true and cannot be "
            f"written here: its files lack the partition columns; {_REMEDY}",
            table=config.name,
            property="hoodie.datasource.write.drop.partition.columns",
        )
    if not config.folders_hold_values:
        kind = config.key_generator
        name = config.raw.get("hoodie.table.keygenerator.class") or _GENERATORS.get(kind, kind)
        raise UnsupportedTableError(
            f"table {config.name!r} has hoodie.table.keygenerator.type={kind} ({name}) and cannot be written "
            f"here: its partition paths are not made here; {_REMEDY}",
            table=config.name,
            property="hoodie.table.keygenerator.type",
        )


def check_takes_rows(config: TableConfig, semantics: MergeSemantics, columns: pa.Schema) -> None:
    """Make sure that this package merges and stores rows as the table's other writers do.

    :param config: the table's configuration.
    :param semantics: how the table merges the versions of a record.
    :param columns: the table's columns.
    :raises UnsupportedTableError: when the table captures changes (CDC), or merges versions in an unknown
        way; the error names the property, its value and the remedy.
    """
    if config.raw.get("hoodie.table.cdc.enabled", "false").lower() == "true":
        raise refused(
            config,
            "hoodie.table.cdc.enabled",
            "true",
            "the files of its change data are not written here, and its CDC queries would miss the changes; "
            "write it with the Hudi that made it, or set the property to false if no query needs them",
        )
    if OPERATION_COLUMN in columns.names:
        raise refused(
            config,
            "hoodie.allow.operation.metadata.field",
            "true",
            f"its rows say in {OPERATION_COLUMN} what they did, which is not written here; write it with the "
            "Hudi that made it",
        )
    check_rows_can_be_merged(config, semantics, columns)


def check_takes_operation(
    table: str,
    config: TableConfig,
    operation: str,
    *,
    tells_rows_apart: bool,
    parameters: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Make sure that a table takes an operation.

    :param table: the table's location.
    :param config: the table's configuration.
    :param operation: the operation's name.
    :param tells_rows_apart: whether the operation finds existing rows by their keys, and changes them.
    :param parameters: the metastore's parameters of the table.
    :raises UnsupportedTableError: when the operation changes rows, and the table is insert-only, or its keys
        are generated when rows are written; the error names the property and the remedy.
    """
    if not tells_rows_apart:
        return
    says = {TRANSACTIONAL_PROPERTIES: config.is_insert_only}
    says[HIVES_TRANSACTIONAL_PROPERTIES] = parameters.get(HIVES_TRANSACTIONAL_PROPERTIES) == INSERT_ONLY
    told = f"{operation} of table {table}: the table"
    instead = "use the operation insert, bulk_insert, insert_overwrite or insert_overwrite_table, or"
    for key in (key for key, is_insert_only in says.items() if is_insert_only):
        raise UnsupportedTableError(
            f"{told} is insert-only ({key}={INSERT_ONLY}); {instead} make it a full table "
            f"({key}={ALL_OPERATIONS})",
            table=table,
            operation=operation,
            property=key,
            value=INSERT_ONLY,
        )
    if config.generates_keys:
        raise UnsupportedTableError(
            f"{told} has no record key (hoodie.table.recordkey.fields), so an incoming row is never one that "
            f"is there; {instead} a table with a record key",
            table=table,
            operation=operation,
            property="hoodie.table.recordkey.fields",
            value="",
        )


def check_no_buckets(table: str, base_files: Iterable[BaseFile]) -> None:
    """Make sure that file groups are not the buckets of a bucket index.

    :param table: the table's location.
    :param base_files: the base files of one partition.
    :raises UnsupportedTableError: when they are buckets of Hudi's bucket index. This package would put new
        rows into other file groups, where a writer that uses the hash of their keys does not find them.
    """
    found = list(base_files)
    if found and all(is_bucket(base_file.file_id) for base_file in found):
        raise UnsupportedTableError(
            f"table {table} has hoodie.index.type=BUCKET: file group {found[0].file_id} in partition "
            f"{found[0].partition_path!r} is a bucket, and the table's options do not say so; set "
            f"{INDEX_TYPE}=BUCKET and {NUMBER_OF_BUCKETS} among them, as the Hudi that made it has them",
            location=table,
            property="hoodie.index.type",
        )


def check_no_hashing_metadata(storage: Storage) -> None:
    """Make sure that file groups are not the buckets of consistent hashing.

    :param storage: the storage of a merge-on-read table without a bucket index.
    :raises UnsupportedTableError: when the table has hashing metadata. This package would put new rows into
        other file groups, where a writer that uses the hash of their keys does not find them.
    """
    if any(True for _ in storage.names(HASHING_METADATA)):
        raise UnsupportedTableError(
            f"table {storage.root} has {HASHING_METADATA}: its writers find keys by {BUCKET_ENGINE}="
            f"{CONSISTENT_HASHING}, and the table's options do not say so; set {INDEX_TYPE}=BUCKET, "
            f"{BUCKET_ENGINE} and {NUMBER_OF_BUCKETS} among them, as the Hudi that made it has them",
            location=storage.root,
            property=BUCKET_ENGINE,
        )
