"""The checks of a table that is about to be created."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from airflow_provider.exceptions import InvalidInputError, MissingColumnError
from airflow_provider.table.hudi_options import HudiOptions
from airflow_provider.table.metadata_table import MetadataPartition
from airflow_provider.table.properties import (
    CONCURRENCY_MODE,
    INDEX_TYPE,
    MERGE_ON_READ,
    NON_BLOCKING,
    NON_BLOCKING_NEEDS,
    PROPERTIES_PATH,
)
from airflow_provider.table.schema import META_COLUMNS
from airflow_provider.table.storage import Storage

_FOLDER, _, _NAME = PROPERTIES_PATH.rpartition("/")


def check_table_type(kind: str, options: HudiOptions) -> None:
    """Make sure that a table of a type can have its options.

    :param kind: the table's type, as Hudi names it.
    :param options: the table's options.
    :raises InvalidInputError: when a table of this type cannot have an index or the concurrency.
    """
    has_buckets = str(options.values.get(INDEX_TYPE, "")).upper() == "BUCKET"
    if kind == MERGE_ON_READ and has_buckets and MetadataPartition.RECORD_INDEX in options.index.partitions:
        raise InvalidInputError(
            f"{MetadataPartition.RECORD_INDEX} is not kept here for a {kind} table with a bucket index, "
            "which says where a record key lives: leave one of the two out of its options",
            table_type=kind,
        )
    if kind != MERGE_ON_READ and options.values.get(CONCURRENCY_MODE) == NON_BLOCKING:
        raise InvalidInputError(
            f"concurrency 'non_blocking' of a {kind} table: {NON_BLOCKING_NEEDS}", table_type=kind
        )


def check_new_columns(
    schema: pa.Schema,
    record_key: Sequence[str] | None,
    partition_by: Sequence[str],
    ordering_field: str | None,
) -> None:
    """Make sure that a table has columns, and that those with a role are among them.

    :param schema: data columns, without Hudi's meta columns.
    :param record_key: columns of the record key; None for a table without one.
    :param partition_by: columns of the partition path.
    :param ordering_field: the column that decides between versions of a record.
    :raises InvalidInputError: when there is no column, the record key is empty, an ordering field comes
        without a record key, or a column has the name of a meta column.
    :raises MissingColumnError: when a named column is not in the schema.
    """
    if not len(schema):
        raise InvalidInputError("the table's schema has no column")
    if record_key is not None and not record_key:
        raise InvalidInputError(
            "record_key names no column; name at least one, or give None for a table whose rows get keys "
            "when they are written"
        )
    if record_key is None and ordering_field:
        raise InvalidInputError(
            f"ordering_field {ordering_field!r} decides between versions of a record, and a table without a "
            "record key has one version of each; leave it out, or give a record_key",
            column=ordering_field,
        )
    if reserved := [column for column in schema.names if column in META_COLUMNS]:
        raise InvalidInputError(f"column {reserved[0]!r} has the name of a Hudi meta column; rename it")
    wanted = {
        "record key": record_key or (),
        "partition": partition_by,
        "ordering": (ordering_field,) if ordering_field else (),
    }
    for kind, columns in wanted.items():
        for column in columns:
            if column not in schema.names:
                raise MissingColumnError(
                    f"{kind} column {column!r} is not in the schema; it has: {', '.join(schema.names)}",
                    column=column,
                )


def check_not_nested(storage: Storage) -> None:
    """Make sure that a table can be made in a folder: no folder around it or below it is a table's.

    Readers of the outer table would take the inner one for a partition, or read nothing at all. The function
    looks at each parent folder. If the folder is not empty, it also walks through the folders below it, up to
    the first table. A folder that this process may not read counts as no table.

    :param storage: the folder.
    :raises InvalidInputError: when such a folder is a table's; the error names that table.
    """
    for outer in storage.parents():
        try:
            is_table = outer.stat(PROPERTIES_PATH) is not None
        except (PermissionError, NotADirectoryError):
            continue
        if is_table:
            raise InvalidInputError(
                f"{storage.root} is inside the folder of the table {outer.root}, whose readers would take it "
                "for a part of that table; choose a location outside of it",
                location=storage.root,
                outer=outer.root,
            )
    for folder, files in storage.walk():
        inner, _, last = folder.rpartition("/")
        if last == _FOLDER and inner and _NAME in files:
            raise InvalidInputError(
                f"{storage.root} holds the table {storage.url(inner)} in its folder, which readers would "
                "take for a part of the new table; choose a location that holds no table",
                location=storage.root,
                inner=storage.url(inner),
            )
