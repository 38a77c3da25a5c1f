"""The metastore's database tables, the same on SQLite and PostgreSQL.

They follow the tables that Hive keeps for the same purposes (its names in brackets). All names
have a prefix, so that the tables can live beside others in one PostgreSQL schema.

A writer takes a row that other writers need, too, by ``UPDATE .. RETURNING``, which holds the
row's lock until the database transaction ends; on SQLite every writing transaction begins
with ``BEGIN IMMEDIATE`` and is alone anyway. A database transaction takes its locks in
this order, the event counter last, so that no two of them wait for each other:
transaction, catalog table, write-id sequence, transaction counter, lock counter, lock,
event counter.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    bindparam,
    literal_column,
    select,
    text,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

SCHEMA_REVISION = "0013"
"""The Alembic revision that this code reads and writes: the head of ``migrations``."""

VERSION_TABLE = "metastore_schema_version"

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

bytewise_text = Text().with_variant(Text(collation="C"), "postgresql")

# SQLite's rowid, its fastest key, must be declared INTEGER; it still holds 64 bits.
big_id = BigInteger().with_variant(Integer(), "sqlite")
json_document = JSON().with_variant(postgresql.JSONB(), "postgresql")


class Counter(StrEnum):
    """The rows of :data:`counters`."""

    TXN_ID = "txn_id"
    LOCK_ID = "lock_id"
    EVENT_ID = "event_id"
    PURGED_EVENT_ID = "purged_event_id"
    # The last event that reports a change of a database or a function.
    CATALOG_EVENT_ID = "catalog_event_id"


counters = Table(  # NEXT_TXN_ID, NEXT_LOCK_ID, NOTIFICATION_SEQUENCE
    "metastore_counters",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("last_value", BigInteger, nullable=False),
)

databases = Table(  # DBS
    "metastore_databases",
    metadata,
    Column("id", big_id, primary_key=True),
    Column("name", String(255), nullable=False, unique=True),
    Column("location", Text),
    Column("comment", Text),
    Column("parameters", json_document, nullable=False),
    Column("owner", Text),
    Column("owner_type", Integer, nullable=False, server_default=text("1")),
    Column("created_at", BigInteger, nullable=False),
    sqlite_autoincrement=True,
)

properties = Table(  # METASTORE_DB_PROPERTIES
    "metastore_properties",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("value", Text, nullable=False),
)

tables = Table(  # TBLS, SDS, COLUMNS_V2, PARTITION_KEYS, TABLE_PARAMS
    "metastore_tables",
    metadata,
    # No other table gets the id after a drop, so that it distinguishes tables of the same name.
    Column("id", big_id, primary_key=True),
    Column("database_id", ForeignKey(databases.c.id), nullable=False),
    Column("name", String(255), nullable=False),
    Column("table_type", String(64), nullable=False),
    Column("location", Text, nullable=False),
    Column("owner", Text),
    Column("columns", json_document, nullable=False),
    Column("partition_keys", json_document, nullable=False),
    Column("parameters", json_document, nullable=False),
    Column("hive_fields", json_document, nullable=False, server_default=text("'{}'")),
    Column("created_at", BigInteger, nullable=False),
    UniqueConstraint("database_id", "name"),
    sqlite_autoincrement=True,
)

partitions = Table(  # PARTITIONS, PARTITION_KEY_VALS, PARTITION_PARAMS
    "metastore_partitions",
    metadata,
    Column("id", big_id, primary_key=True),
    Column("table_id", ForeignKey(tables.c.id, ondelete="CASCADE"), nullable=False),
    # A canonical JSON list: one key that distinguishes null from any string and that SQL can compare. In the
    # order of its bytes: by another one PostgreSQL's index finds no beginnings.
    Column("partition_values", bytewise_text, nullable=False),
    Column("location", Text, nullable=False),
    Column("parameters", json_document, nullable=False),
    # Hive's struct without the location, in Thrift's JSON; a partition without one follows its table.
    Column("storage_descriptor", Text),
    # True when all values are plain (is_plain); False when one is not, or when this is not known.
    Column("has_plain_values", Boolean, nullable=False, server_default=text("false")),
    Column("created_at", BigInteger, nullable=False),
    UniqueConstraint("table_id", "partition_values"),
    Index(
        "ix_metastore_partitions_not_plain",
        "table_id",
        sqlite_where=text("NOT has_plain_values"),
        postgresql_where=text("NOT has_plain_values"),
    ),
    sqlite_autoincrement=True,
)


class value_at(FunctionElement[str]):  # noqa: N801 (named as SQL functions are)
    """One value of a partition; the database has an index for each of :data:`INDEXED_VALUES`.

    :param position: of the partition key.
    """

    type = Text()
    inherit_cache = True

    def __init__(self, position: int) -> None:
        super().__init__(partitions.c.partition_values, literal_column(str(position)))


@compiles(value_at, "sqlite")
def _sqlite_value(element: value_at, compiler: SQLCompiler, **kw: Any) -> str:
    values, position = (compiler.process(one, **kw) for one in element.clauses)
    return f"json_extract({values}, '$[{position}]')"


@compiles(value_at, "postgresql")
def _postgresql_value(element: value_at, compiler: SQLCompiler, **kw: Any) -> str:
    values, position = (compiler.process(one, **kw) for one in element.clauses)
    return f"(CAST({values} AS jsonb) ->> {position})"


INDEXED_VALUES = (1, 2, 3)
"""Positions of partition keys; the first value is found by the beginning of ``partition_values``."""

for _at in INDEXED_VALUES:
    Index(
        f"ix_metastore_partitions_value_{_at}",
        partitions.c.table_id,
        value_at(_at),
        sqlite_where=value_at(_at).is_not(None),
        postgresql_where=value_at(_at).is_not(None),
    )

constraints = Table(  # KEY_CONSTRAINTS
    "metastore_constraints",
    metadata,
    Column("id", big_id, primary_key=True),
    Column("table_id", ForeignKey(tables.c.id, ondelete="CASCADE"), nullable=False),
    # The table that a foreign key refers to.
    Column("parent_id", ForeignKey(tables.c.id, ondelete="CASCADE")),
    Column("kind", String(32), nullable=False),
    Column("name", String(255), nullable=False),
    # Hive's structs, one for each column, without the names of tables.
    Column("columns", json_document, nullable=False),
    UniqueConstraint("table_id", "name"),
    Index("ix_metastore_constraints_parent_id", "parent_id"),
    sqlite_autoincrement=True,
)

column_statistics = Table(  # TAB_COL_STATS, PART_COL_STATS
    "metastore_column_statistics",
    metadata,
    Column("id", big_id, primary_key=True),
    Column("table_id", ForeignKey(tables.c.id, ondelete="CASCADE"), nullable=False),
    Column("partition_id", ForeignKey(partitions.c.id, ondelete="CASCADE")),  # null for the whole table
    Column("engine", String(128), nullable=False),
    Column("column_name", Text, nullable=False),
    Column("column_type", Text, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Column("analyzed_at", BigInteger, nullable=False),
    Index("ix_metastore_column_statistics_table_partition", "table_id", "partition_id"),
    Index("ix_metastore_column_statistics_partition_id", "partition_id"),
)

functions = Table(  # FUNCS, FUNC_RU
    "metastore_functions",
    metadata,
    Column("id", big_id, primary_key=True),
    Column("database_id", ForeignKey(databases.c.id, ondelete="CASCADE"), nullable=False),
    Column("name", String(255), nullable=False),
    Column("class_name", Text, nullable=False),
    Column("owner", Text),
    Column("resources", json_document, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    UniqueConstraint("database_id", "name"),
    sqlite_autoincrement=True,
)

txns = Table(  # TXNS
    "metastore_txns",
    metadata,
    Column("id", big_id, primary_key=True, autoincrement=False),
    Column("state", String(1), nullable=False),
    Column("txn_type", Integer, nullable=False, server_default=text("0")),
    Column("user_name", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("agent", Text),
    Column("commit_on_recovery", Boolean, nullable=False),
    Column("timeout_ms", BigInteger),  # null for the timeout that recovery uses
    Column("opened_at", BigInteger, nullable=False),
    Column("heartbeat_at", BigInteger, nullable=False),
    Column("closed_at", BigInteger),
    Column("closing_event_id", BigInteger),
    # Every snapshot reads the rows of this index; nearly all other transactions are committed.
    Index(
        "ix_metastore_txns_not_committed",
        "id",
        "state",
        sqlite_where=text("state <> 'c'"),
        postgresql_where=text("state <> 'c'"),
    ),
)

write_id_sequences = Table(  # NEXT_WRITE_ID
    "metastore_write_id_sequences",
    metadata,
    Column("id", big_id, primary_key=True),
    # By name as in Hive, which allocates ids before it creates a table (CTAS, replication).
    Column("database_name", String(255), nullable=False),
    Column("table_name", String(255), nullable=False),
    Column("last_write_id", BigInteger, nullable=False),
    UniqueConstraint("database_name", "table_name"),
    sqlite_autoincrement=True,
)

txn_write_ids = Table(  # TXN_TO_WRITE_ID
    "metastore_txn_write_ids",
    metadata,
    Column("sequence_id", ForeignKey(write_id_sequences.c.id, ondelete="CASCADE"), primary_key=True),
    Column("write_id", BigInteger, primary_key=True),
    Column("txn_id", BigInteger, nullable=False),
    UniqueConstraint("txn_id", "sequence_id"),
    Index("ix_metastore_txn_write_ids_sequence_txn", "sequence_id", "txn_id"),
)

txn_writes = Table(  # TXN_COMPONENTS; here a component is a Hudi instant
    "metastore_txn_writes",
    metadata,
    Column("txn_id", BigInteger, primary_key=True),
    Column("table_id", ForeignKey(tables.c.id, ondelete="CASCADE"), primary_key=True),
    Column("instant", String(32), primary_key=True),
    Index("ix_metastore_txn_writes_table_id", "table_id"),
)

locks = Table(  # HIVE_LOCKS
    "metastore_locks",
    metadata,
    Column("id", big_id, primary_key=True, autoincrement=False),
    Column("state", String(1), nullable=False),
    Column("txn_id", BigInteger),
    Column("user_name", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("agent", Text),
    # Null for a transaction's locks: they live as long as it does.
    Column("timeout_millis", BigInteger),
    Column("heartbeat_at", BigInteger, nullable=False),
    Column("acquired_at", BigInteger),
    Index(
        "ix_metastore_locks_of_txn",
        "txn_id",
        sqlite_where=text("txn_id IS NOT NULL"),
        postgresql_where=text("txn_id IS NOT NULL"),
    ),
)

lock_components = Table(  # HIVE_LOCKS; by name as in Hive: a locked table need not exist yet
    "metastore_lock_components",
    metadata,
    Column("lock_id", ForeignKey(locks.c.id, ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("lock_type", String(1), nullable=False),
    Column("database_name", String(255), nullable=False),
    Column("table_name", String(255)),
    Column("partition_name", Text),
    Index("ix_metastore_lock_components_place", "database_name", "table_name"),
)

notification_log = Table(  # NOTIFICATION_LOG
    "metastore_notification_log",
    metadata,
    Column("event_id", big_id, primary_key=True, autoincrement=False),
    Column("event_time", BigInteger, nullable=False),
    Column("event_type", String(64), nullable=False),
    Column("database_name", String(255)),
    Column("table_name", String(255)),
    Column("message", Text, nullable=False),
    Column("message_format", String(32), nullable=False),
)

write_notifications = Table(  # TXN_WRITE_NOTIFICATION_LOG
    "metastore_write_notifications",
    metadata,
    Column("txn_id", BigInteger, primary_key=True, autoincrement=False),
    # By name, and with the objects as they were: the table may be dropped before anybody asks.
    Column("database_name", String(255), primary_key=True),
    Column("table_name", String(255), primary_key=True),
    # As in metastore_partitions; an empty list for the whole table.
    Column("partition_values", Text, primary_key=True),
    Column("write_id", BigInteger, nullable=False),
    Column("table_object", Text, nullable=False),
    Column("partition_object", Text),
    Column("files", json_document, nullable=False),
)

consumers = Table(
    "metastore_consumers",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("event_id", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    # Null for a consumer that retention waits for however long it is silent.
    Column("expiry_millis", BigInteger),
    # Of a replica only, since it was opened.
    Column("hits", BigInteger),
    Column("misses", BigInteger),
)

replications = Table(  # the target's side; Hive has parameters of its databases, such as repl.last.id
    "metastore_replications",
    metadata,
    Column("policy", String(255), primary_key=True),
    Column("source", Text, nullable=False),
    Column("databases", json_document, nullable=False),
    Column("phase", String(32), nullable=False),
    # The last event of the source that the target has applied; null before the bootstrap is done.
    Column("event_id", BigInteger),
    Column("event_time", BigInteger),
    Column("lease_owner", Text),
    Column("lease_until", BigInteger),
    Column("bytes_copied", BigInteger, nullable=False),
    Column("last_error", Text),
    Column("updated_at", BigInteger, nullable=False),
)

repl_txn_map = Table(  # REPL_TXN_MAP
    "metastore_repl_txn_map",
    metadata,
    Column("policy", ForeignKey(replications.c.policy, ondelete="CASCADE"), primary_key=True),
    Column("source_txn_id", BigInteger, primary_key=True, autoincrement=False),
    Column("target_txn_id", BigInteger, nullable=False),
)


class current_millis(FunctionElement[int]):  # noqa: N801 (named as SQL functions are)
    """The database's clock, in milliseconds since the epoch.

    All hosts use this one clock, because a timeout must not depend on a host whose clock is fast.
    """

    type = BigInteger()
    inherit_cache = True


@compiles(current_millis, "sqlite")
def _sqlite_millis(element: current_millis, compiler: SQLCompiler, **kw: Any) -> str:
    return "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"


@compiles(current_millis, "postgresql")
def _postgresql_millis(element: current_millis, compiler: SQLCompiler, **kw: Any) -> str:
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"


_ADVANCE = (
    update(counters)
    .where(counters.c.name == bindparam("counter"))
    .values(last_value=counters.c.last_value + bindparam("by"))
    .returning(counters.c.last_value)
)
_COUNTED = select(counters.c.last_value).where(counters.c.name == bindparam("counter"))


def advance(connection: Connection, counter: Counter, by: int = 1) -> int:
    """Move a counter and hold its row until the database transaction ends.

    :return: the counter's new value.
    """
    return int(connection.execute(_ADVANCE, {"counter": counter, "by": by}).scalar_one())


def counted(connection: Connection, counter: Counter) -> int:
    """A counter's value; 0 before its first move."""
    return int(connection.execute(_COUNTED, {"counter": counter}).scalar_one())


def insert_if_absent(connection: Connection, table: Table, values: Mapping[str, Any]) -> bool:
    """Insert a row unless the table has one with the same unique key.

    :return: True when this call inserted it.
    """
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    statement = dialect.insert(table).values(**values).on_conflict_do_nothing()
    # Not by rowcount: psycopg does not set it for a statement that returns its new key.
    return connection.execute(statement.returning(*table.primary_key)).first() is not None
