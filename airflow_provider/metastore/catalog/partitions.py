"""Partitions of the catalog's tables: functions of one connection, as :mod:`.catalog`."""

from __future__ import annotations

import itertools
import json
import math
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from cachetools import LRUCache, cached
from sqlalchemy import (
    Boolean,
    ColumnElement,
    Connection,
    Row,
    and_,
    delete,
    false,
    func,
    insert,
    literal_column,
    or_,
    select,
    update,
)

from airflow_provider.exceptions import AlreadyExistsError, NoSuchObjectError
from airflow_provider.metastore.catalog.catalog import get_table, table_fields
from airflow_provider.metastore.database import INDEXED_VALUES, current_millis, value_at
from airflow_provider.metastore.database import partitions as partition_rows
from airflow_provider.metastore.model import (
    EventType,
    Insertion,
    ListedValues,
    PartitionChoice,
    PartitionInfo,
    PartitionSpec,
    PartitionValues,
    TableInfo,
    encode_partition,
    is_plain,
    partition_key,
    partition_order,
    partition_texts,
    with_columns,
)
from airflow_provider.metastore.notifications import append_event

Choose = Callable[[TableInfo], PartitionChoice]
"""Returns the choice among a table's partitions."""

# In the index's own words: SQLite uses a partial index only for a condition with the same text.
_NOT_PLAIN: ColumnElement[bool] = literal_column("NOT has_plain_values", Boolean)

# The limit on the beginnings of values that one query looks for. With more, the beginnings have fewer values.
_MOST_BEGINNINGS = 200

# So many partitions are read whole, before it is known which of them are chosen.
_FEW = 300

# For tables that change seldom, the parsed values are kept of documents with so many characters together.
# They take about ten times as many bytes.
_MOST_KEPT = 4_000_000

MOST_VARIABLES = 1_000
"""The limit on the variables in one statement; SQLite allows 32,766, PostgreSQL 65,535."""


def add_partitions(
    connection: Connection,
    database: str,
    table: str,
    partitions: Sequence[PartitionSpec],
    *,
    if_not_exists: bool,
    write_id: Callable[[TableInfo], int],
) -> list[PartitionInfo]:
    """See :meth:`AnyMetastore.add_partitions`.

    :param write_id: returns the write id of the change.
    """
    owner = get_table(connection, database, table, lock=True)
    wanted = {partition_key(owner, spec.values): spec for spec in partitions}
    if len(wanted) != len(partitions) and not if_not_exists:
        raise AlreadyExistsError(
            f"table {owner.full_name}: a partition is given twice", table=owner.full_name
        )
    existing = set(_rows(connection, owner, list(wanted)))
    if existing and not if_not_exists:
        raise AlreadyExistsError(
            f"table {owner.full_name}: partition {min(existing)} exists already", table=owner.full_name
        )
    added = {
        key: PartitionInfo(
            tuple(json.loads(key)), spec.location, dict(spec.parameters), spec.storage_descriptor
        )
        for key, spec in wanted.items()
        if key not in existing
    }
    if not added:
        return []
    connection.execute(
        insert(partition_rows).values(created_at=current_millis()),
        [
            {
                "table_id": owner.id,
                "partition_values": key,
                "location": info.location,
                "parameters": info.parameters,
                "storage_descriptor": info.storage_descriptor,
                "has_plain_values": all(map(is_plain, info.values)),
            }
            for key, info in added.items()
        ],
    )
    infos = list(added.values())
    under = write_id(owner)
    message = {
        **table_fields(owner, under),
        "partitions": [_key_values(owner, info.values) for info in infos],
        "partitionListJson": [encode_partition(owner, info, under) for info in infos],
        "partitionFiles": [],
    }
    append_event(connection, EventType.ADD_PARTITION, message, database=owner.database, table=owner.name)
    return infos


def count_partitions(connection: Connection, table: TableInfo) -> int:
    """The number of a table's partitions."""
    return int(connection.execute(select(func.count()).where(_of(table))).scalar_one())


def get_partitions(connection: Connection, database: str, table: str) -> list[PartitionInfo]:
    """See :meth:`AnyMetastore.get_partitions`."""
    return get_table_and_partitions(connection, database, table)[1]


def get_table_and_partitions(
    connection: Connection, database: str, table: str
) -> tuple[TableInfo, list[PartitionInfo]]:
    """A table, and its partitions in the order of their names."""
    owner = get_table(connection, database, table)
    # Python orders them, because a database's own order of texts depends on its locale.
    query = select(partition_rows).where(partition_rows.c.table_id == owner.id)
    return owner, sorted(map(_info, connection.execute(query)), key=partition_order)


def get_table_and_chosen_values(
    connection: Connection, database: str, table: str, choose: Choose
) -> tuple[TableInfo, Sequence[PartitionValues]]:
    """A table, and the values of its chosen partitions in the order of their names.

    :param choose: returns the choice for the table.
    """
    owner = get_table(connection, database, table)
    return owner, _chosen_values(connection, owner, choose(owner))


def _chosen_values(
    connection: Connection, table: TableInfo, choice: PartitionChoice
) -> Sequence[PartitionValues]:
    conditions = _conditions(table, choice)
    if conditions is None:
        everything = _all_values(connection, table)
        return everything if choice.keep is None else tuple(filter(choice.keep, everything))
    keys = set().union(*(_keys_where(connection, table, one) for one in conditions))
    # One JSON document of all keys is parsed in a fraction of the time of many.
    found: Iterable[PartitionValues] = map(tuple, json.loads(f"[{','.join(keys)}]"))
    return sorted(found if choice.keep is None else filter(choice.keep, found), key=partition_texts)


def _all_values(connection: Connection, table: TableInfo) -> Sequence[PartitionValues]:
    """The values of all partitions, in the order of their names."""
    joined = func.string_agg if connection.dialect.name == "postgresql" else func.group_concat
    query = select(joined(partition_rows.c.partition_values, literal_column("','")))
    return _parsed_values(connection.execute(query.where(_of(table))).scalar_one() or "")


@cached(
    LRUCache(_MOST_KEPT, getsizeof=len),
    key=lambda document: document,
    lock=threading.Lock(),
)
def _parsed_values(document: str) -> Sequence[PartitionValues]:
    return ListedValues(sorted(map(tuple, json.loads(f"[{document}]")), key=partition_texts))


def get_table_and_chosen(
    connection: Connection, database: str, table: str, choose: Choose, limit: int | None = None
) -> tuple[TableInfo, list[PartitionInfo]]:
    """A table, and its chosen partitions in the order of their names.

    :param choose: returns the choice for the table.
    :param limit: the largest number of partitions; None for all.
    """
    owner = get_table(connection, database, table)
    choice = choose(owner)
    if choice.keep is None and limit is None:
        return get_table_and_partitions(connection, database, table)
    if (few := _few_chosen(connection, owner, choice)) is not None:
        return owner, few[:limit]
    chosen = _chosen_values(connection, owner, choice)[:limit]
    if len(chosen) <= MOST_VARIABLES:
        keys = [partition_key(owner, values) for values in chosen]
        rows = _rows(connection, owner, keys)
        return owner, [_info(rows[key]) for key in keys if key in rows]
    everything = {one.values: one for one in get_partitions(connection, database, table)}
    return owner, [everything[values] for values in chosen if values in everything]


def _few_chosen(
    connection: Connection, table: TableInfo, choice: PartitionChoice
) -> list[PartitionInfo] | None:
    """The chosen partitions, in order; None where the index does not exclude all but a few."""
    conditions = _conditions(table, choice)
    if conditions is None:
        return None
    found: dict[str, PartitionInfo] = {}
    for condition in conditions:
        query = select(partition_rows).where(_of(table), condition).limit(_FEW + 1)
        rows = connection.execute(query).all()
        if len(rows) > _FEW:
            return None
        kept = (row for row in rows if choice.keeps(tuple(json.loads(row.partition_values))))
        found.update((row.partition_values, _info(row)) for row in kept)
    return sorted(found.values(), key=partition_order)


def _conditions(table: TableInfo, choice: PartitionChoice) -> list[ColumnElement[bool]] | None:
    """The conditions for the indexes: rows that satisfy all are the chosen partitions, and maybe others.

    :return: None when the choice names no values that an index knows.
    """
    if choice.exact is not None:
        keys = [partition_key(table, values) for values in choice.exact]
        starts = range(0, len(keys), MOST_VARIABLES)
        return [partition_rows.c.partition_values.in_(keys[at : at + MOST_VARIABLES]) for at in starts]
    if (condition := _condition(table, choice.plain)) is None:
        return None
    of_any = {at: values for at, values in choice.plain.items() if at in choice.texts}
    if len(of_any) == len(choice.plain):
        return [condition]
    others = _condition(table, of_any)
    return [condition, _NOT_PLAIN if others is None else and_(others, _NOT_PLAIN)]


def _condition(table: TableInfo, plain: Mapping[int, Collection[str | None]]) -> ColumnElement[bool] | None:
    """The rows with some values, for an index; None when no index knows them.

    :param plain: as in :class:`PartitionChoice`.
    """
    key, count = partition_rows.c.partition_values, len(table.partition_keys)
    beginnings = _beginnings(plain, count)
    if beginnings and len(beginnings[0]) == count:
        return key.in_([partition_key(table, one) for one in beginnings])
    # An index of one value has no nulls.
    known = {at: values for at, values in plain.items() if at in INDEXED_VALUES and None not in values}
    parts: list[ColumnElement[bool]] = [
        value_at(at).in_(sorted(map(str, values)))
        for at, values in known.items()
        if len(values) <= _MOST_BEGINNINGS
    ]
    if beginnings is not None:
        # Up to the comma that follows, and before the next character: a database's LIKE may read all rows.
        begun = [json.dumps(one, ensure_ascii=False, separators=(",", ":"))[:-1] for one in beginnings]
        parts.append(or_(false(), *(and_(key >= f"{one},", key < f"{one}-") for one in begun)))
    return and_(*parts) if parts else None


def _beginnings(
    plain: Mapping[int, Collection[str | None]], count: int
) -> list[tuple[str | None, ...]] | None:
    """The first values of partitions with some values, as many as are known.

    :param count: the number of the table's partition keys.
    :return: None when those of the first partition key are not known.
    """
    known = list(itertools.takewhile(plain.__contains__, range(count)))
    while known and math.prod(len(plain[at]) for at in known) > _MOST_BEGINNINGS:
        known.pop()
    return list(itertools.product(*(plain[at] for at in known))) if known else None


def _keys_where(connection: Connection, table: TableInfo, condition: ColumnElement[bool]) -> Iterable[str]:
    query = select(partition_rows.c.partition_values).where(_of(table), condition)
    return connection.execute(query).scalars()


def _of(table: TableInfo) -> ColumnElement[bool]:
    return partition_rows.c.table_id == table.id


def get_table_and_partition(
    connection: Connection, database: str, table: str, values: Sequence[str | None]
) -> tuple[TableInfo, PartitionInfo]:
    """A table, and one of its partitions; errors as :meth:`AnyMetastore.get_partition`."""
    owner = get_table(connection, database, table)
    key = partition_key(owner, values)
    row = _rows(connection, owner, [key]).get(key)
    if row is None:
        raise no_such_partition(owner, key)
    return owner, _info(row)


def alter_partition(
    connection: Connection,
    database: str,
    table: str,
    values: Sequence[str | None],
    *,
    changes: Mapping[str, Any],
    write_id: Callable[[TableInfo], int],
    truncates: bool = False,
) -> PartitionInfo:
    """See :meth:`AnyMetastore.alter_partition` and ``rename_partition``.

    :param changes: values by the names of :class:`PartitionInfo`'s fields; new ``values`` rename the
        partition.
    :param write_id: returns the write id of the change.
    :param truncates: whether the change deletes the partition's rows; the event says so.
    """
    owner = get_table(connection, database, table, lock=True)
    key = partition_key(owner, values)
    row = _rows(connection, owner, [key]).get(key)
    if row is None:
        raise no_such_partition(owner, key)
    before, renamed = _info(row), key
    columns = dict(changes)
    if "values" in columns:
        new_values = columns.pop("values")
        renamed = columns["partition_values"] = partition_key(owner, new_values)
        columns["has_plain_values"] = all(map(is_plain, new_values))
        if renamed != key and _rows(connection, owner, [renamed]):
            raise AlreadyExistsError(
                f"table {owner.full_name}: partition {renamed} exists already", table=owner.full_name
            )
    if columns:
        connection.execute(update(partition_rows).where(partition_rows.c.id == row.id).values(**columns))
    after = _info(_rows(connection, owner, [renamed])[renamed])
    under = write_id(owner)
    message = {
        **table_fields(owner, under),
        "keyValues": _key_values(owner, before.values),
        "partitionObjBeforeJson": encode_partition(owner, before),
        "partitionObjAfterJson": encode_partition(owner, after, under),
        "isTruncateOp": str(truncates).lower(),
        "writeId": under,
    }
    append_event(connection, EventType.ALTER_PARTITION, message, database=owner.database, table=owner.name)
    return after


def replace_columns(
    connection: Connection, table: TableInfo, *, write_id: Callable[[TableInfo], int]
) -> None:
    """Copy a table's columns to each of its partitions that has columns of its own.

    Hive: ALTER TABLE .. CASCADE.

    :param table: the table after its change.
    :param write_id: returns the write id of the change.
    """
    for one in get_partitions(connection, table.database, table.name):
        if one.storage_descriptor is not None:
            alter_partition(
                connection,
                table.database,
                table.name,
                one.values,
                changes={"storage_descriptor": with_columns(one.storage_descriptor, table.schema)},
                write_id=write_id,
            )


def drop_partitions(
    connection: Connection,
    database: str,
    table: str,
    partitions: Sequence[Sequence[str | None]],
    *,
    if_exists: bool,
    write_id: Callable[[TableInfo], int],
) -> list[PartitionInfo]:
    """See :meth:`AnyMetastore.drop_partitions`.

    :param write_id: returns the write id of the change.
    """
    owner = get_table(connection, database, table, lock=True)
    keys = list(dict.fromkeys(partition_key(owner, values) for values in partitions))
    existing = _rows(connection, owner, keys)
    missing = [key for key in keys if key not in existing]
    if missing and not if_exists:
        raise no_such_partition(owner, missing[0])
    if not existing:
        return []
    found = list(existing.values())
    for start in range(0, len(found), MOST_VARIABLES):
        ids = [row.id for row in found[start : start + MOST_VARIABLES]]
        connection.execute(delete(partition_rows).where(partition_rows.c.id.in_(ids)))
    dropped = [_info(row) for row in found]
    message = {
        **table_fields(owner, write_id(owner)),
        "partitions": [_key_values(owner, info.values) for info in dropped],
    }
    append_event(connection, EventType.DROP_PARTITION, message, database=owner.database, table=owner.name)
    return dropped


def append_insert_events(
    connection: Connection,
    database: str,
    table: str,
    insertions: Sequence[Insertion],
    *,
    write_id: Callable[[TableInfo], int],
) -> list[int]:
    """See :meth:`AnyMetastore.fire_insert_event`.

    :param write_id: returns the write id of the insertions.
    :return: the events' ids.
    """
    owner = get_table(connection, database, table, lock=True)
    keys = [None if one.values is None else partition_key(owner, one.values) for one in insertions]
    known = _rows(connection, owner, [key for key in keys if key is not None])
    if missing := [key for key in keys if key is not None and key not in known]:
        raise no_such_partition(owner, missing[0])
    under = write_id(owner)
    fields = table_fields(owner, under)
    fired = []
    for one, key in zip(insertions, keys, strict=True):
        message = {
            **fields,
            "ptnObjJson": None if key is None else encode_partition(owner, _info(known[key]), under),
            "replace": str(one.replace).lower(),
            "files": list(one.files),
        }
        fired.append(
            append_event(connection, EventType.INSERT, message, database=owner.database, table=owner.name)
        )
    return fired


def partition_ids(
    connection: Connection, table: TableInfo, partitions: Sequence[PartitionValues]
) -> dict[PartitionValues, int]:
    """The ids of the given partitions, without those that the table does not have."""
    keys = {values: partition_key(table, values) for values in partitions}
    rows = _rows(connection, table, list(keys.values()))
    return {values: int(rows[key].id) for values, key in keys.items() if key in rows}


def _rows(connection: Connection, table: TableInfo, keys: Sequence[str]) -> dict[str, Row[Any]]:
    found: dict[str, Row[Any]] = {}
    for start in range(0, len(keys), MOST_VARIABLES):
        query = select(partition_rows).where(
            partition_rows.c.table_id == table.id,
            partition_rows.c.partition_values.in_(keys[start : start + MOST_VARIABLES]),
        )
        found.update((row.partition_values, row) for row in connection.execute(query))
    return found


def _info(row: Row[Any]) -> PartitionInfo:
    values = tuple(json.loads(row.partition_values))
    return PartitionInfo(values, row.location, row.parameters, row.storage_descriptor)


def _key_values(table: TableInfo, values: Sequence[str | None]) -> dict[str, str]:
    names = [key.name for key in table.partition_keys]
    return dict(zip(names, partition_texts(values), strict=True))


def no_such_partition(table: TableInfo, key: str) -> NoSuchObjectError:
    """The error for a partition that a table does not have."""
    return NoSuchObjectError(f"table {table.full_name} has no partition {key}", table=table.full_name)
