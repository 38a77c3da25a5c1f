"""The objects of the catalog: databases, tables, partitions, functions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider.exceptions import InvalidInputError

CATALOG = "hive"
"""The name of the only catalog: Hive's name for its default one."""

USER = 1
"""Hive's ``PrincipalType.USER``."""

NO_WRITE_ID = -1
"""The write id in Hive's messages and requests for a change that has none."""

NO_ID = -1
"""The id of an object whose server does not send the id."""

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""Hive's text for a null partition value."""

MANAGED_TABLE = "MANAGED_TABLE"
EXTERNAL_TABLE = "EXTERNAL_TABLE"

PROVIDER = "spark.sql.sources.provider"
"""The table property by which Spark names a table's data source."""

HUDI = "hudi"
"""The data source of Hudi's tables."""

HUDI_TABLE_TYPE = "hoodie.table.type"
"""The table property with the type of a Hudi table, as in the table's own properties."""

PartitionValues = tuple[str | None, ...]
"""One value for each partition key of a table, in their order; None is null."""


@dataclass(frozen=True)
class Column:
    """A column, or a partition key.

    :param name: the column's name.
    :param type: the column's type in Hive's words, such as ``bigint`` or ``decimal(10,2)``.
    :param comment: a remark for people.
    """

    name: str
    type: str
    comment: str | None = None


@dataclass(frozen=True)
class DatabaseInfo:
    """A database of the catalog.

    :param id: the database's id; no other database gets it after a drop.
    :param location: the default folder or URL of its tables, if one was given.
    :param owner: the database's owner, if one of Hive's clients gave one.
    :param owner_type: Hive's ``PrincipalType``: 1 for a user, 2 for a role, 3 for a group.
    """

    id: int
    name: str
    location: str | None = None
    comment: str | None = None
    parameters: dict[str, str] = field(default_factory=dict)
    owner: str | None = None
    owner_type: int = USER


@dataclass(frozen=True)
class TableInfo:
    """A table of the catalog.

    :param id: the table's id. It stays the same after a rename, and no other table gets it after a drop.
    :param location: the table's folder or URL.
    :param schema: the columns, without the partition keys.
    :param partition_keys: empty for a table without partitions.
    :param table_type: Hive's ``MANAGED_TABLE`` or ``EXTERNAL_TABLE``.
    :param hive_fields: the other fields that Hive's clients set (formats, serializer, buckets, a view's text
        ..), in Thrift's JSON protocol; see :mod:`.hive_json`.
    """

    id: int
    database: str
    name: str
    location: str
    schema: tuple[Column, ...]
    partition_keys: tuple[Column, ...] = ()
    table_type: str = MANAGED_TABLE
    parameters: dict[str, str] = field(default_factory=dict)
    owner: str | None = None
    hive_fields: dict[str, Any] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        """``database.table``."""
        return f"{self.database}.{self.name}"

    @property
    def is_external(self) -> bool:
        """Whether the table is external: a change of it takes no write id by itself."""
        return self.table_type == EXTERNAL_TABLE


@dataclass(frozen=True)
class PartitionSpec:
    """A partition before its registration.

    :param values: one value for each of the table's partition keys, in their order; None is null.
    :param location: its folder or URL.
    :param parameters: free key-value pairs.
    :param storage_descriptor: see :class:`PartitionInfo`.
    """

    values: PartitionValues
    location: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    storage_descriptor: str | None = None


@dataclass(frozen=True)
class Insertion:
    """The files that a transaction inserted into a table or a partition (InsertEventRequestData).

    :param files: URLs of the files that were added.
    :param values: the partition's values; None for a table without partitions.
    :param replace: whether the files replace those that were there before.
    """

    files: Sequence[str]
    values: PartitionValues | None = None
    replace: bool = False


@dataclass(frozen=True)
class PartitionInfo:
    """A partition of the catalog.

    :param values: one value for each of the table's partition keys, in their order; None is null.
    :param location: its folder or URL.
    :param parameters: free key-value pairs.
    :param storage_descriptor: the formats, columns and serializer of the partition's files, as the client
        that registered it described them: Hive's struct without the location, in Thrift's JSON protocol. None
        for a partition that follows its table. A Thrift client does not send it.
    """

    values: PartitionValues
    location: str
    parameters: dict[str, str] = field(default_factory=dict)
    storage_descriptor: str | None = None


@dataclass(frozen=True)
class FunctionInfo:
    """A user-defined function of the catalog.

    :param database: the function's database.
    :param name: the function's name, unique in the database.
    :param class_name: the Java class that implements it.
    :param owner: the user who made it.
    :param resources: URLs of the jars, files and archives that it needs.
    """

    database: str
    name: str
    class_name: str
    owner: str | None = None
    resources: tuple[str, ...] = ()


def partition_key(table: TableInfo, values: Sequence[str | None]) -> str:
    """The one key under which a partition is stored, made of its values.

    :raises InvalidInputError: when the values do not fit the table's partition keys.
    """
    keys = [key.name for key in table.partition_keys]
    if len(values) != len(keys) or not keys:
        raise InvalidInputError(
            f"table {table.full_name}: partition {tuple(values)!r} has {len(values)} values, the table has "
            f"{len(keys)} partition keys {keys}",
            table=table.full_name,
        )
    for name, value in zip(keys, values, strict=True):
        # PostgreSQL keeps no NUL.
        if value is not None and (not isinstance(value, str) or not value or "\0" in value):
            raise InvalidInputError(
                f"table {table.full_name}: partition key {name!r} has the value {value!r}; give a string "
                "that is not empty and has no NUL, or None for null",
                table=table.full_name,
            )
    return json.dumps(partition_values(values), ensure_ascii=False, separators=(",", ":"))


def partition_values(texts: Iterable[str | None]) -> PartitionValues:
    """Values with null in place of Hive's text for it, ``__HIVE_DEFAULT_PARTITION__``."""
    return tuple(None if text == DEFAULT_PARTITION else text for text in texts)


def partition_texts(values: Iterable[str | None]) -> list[str]:
    """Values with Hive's text ``__HIVE_DEFAULT_PARTITION__`` in place of null."""
    return [DEFAULT_PARTITION if value is None else value for value in values]


class ListedValues(tuple[PartitionValues, ...]):
    """The values of all partitions of a table at one moment, in order.

    It equals only itself. So a cache finds what belongs to it without a look at its thousands of values.
    """

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    __hash__ = object.__hash__


def partition_order(partition: PartitionInfo) -> list[str]:
    """The sort key that lists partitions in Hive's order, the order of their names.

    The null partition's name, ``__HIVE_DEFAULT_PARTITION__``, comes before small letters and after digits.
    """
    return partition_texts(partition.values)
