"""A table's columns in the metastore, and their update from the table."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.metastore.model import Column
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.schema import to_schema, type_name

if TYPE_CHECKING:
    from airflow_provider.metastore import AnyMetastore

log = logging.getLogger(__name__)


def follow_columns(metastore: AnyMetastore, database: str, name: str, table: HudiTable) -> bool:
    """Update the metastore with a table's new columns, and with new types, names and comments.

    Hudi's own columns stay. A column without a comment in the table keeps the metastore's comment.

    :param metastore: the metastore.
    :param database: the table's database in the metastore.
    :param name: the table's name in the metastore.
    :param table: the table.
    :return: whether the metastore was changed.
    :raises NoSuchObjectError: when the metastore does not know the table.
    :raises MetastoreUnavailableError: when the metastore cannot be reached.
    """
    info = metastore.get_table(database, name)
    schema = table.schema_on(table.timeline())
    partitions = {key.name for key in info.partition_keys}
    known = {column.name.lower(): column for column in info.schema}
    comments = schema.comments()
    own = [column for column in info.schema if column.name.startswith("_hoodie_")]
    wanted = tuple(
        own
        + [
            _column(field, known.get(field.name.lower()), comments.get(field.name))
            for field in schema.columns
            if field.name not in partitions
        ]
    )
    if wanted == info.schema:
        return False
    metastore.alter_table(database, name, schema=wanted)
    log.info("%s.%s: the metastore knows the table's columns as of now", database, name)
    return True


def _column(field: pa.Field, known: Column | None, comment: str | None) -> Column:
    kind = type_name(field.type)
    if known is None:
        return Column(field.name, kind, comment)
    return replace(
        known,
        type=known.type if _is_of(known.type, field.type) else kind,
        comment=known.comment if comment is None else comment,
    )


def _is_of(text: str, kind: pa.DataType) -> bool:
    try:
        return type_name(to_schema({"column": text}).field(0).type) == type_name(kind)
    except InvalidInputError:
        return False
