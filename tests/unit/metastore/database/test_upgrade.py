"""The upgrade of a metastore of the first release, with data of every kind."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, text

from airflow_provider.metastore import (
    Column,
    LockComponent,
    LockState,
    LockType,
    TxnState,
    TxnType,
    open_metastore,
)
from airflow_provider.metastore.database import schema
from airflow_provider.metastore.database.sql_database import SqlDatabase

MIGRATIONS = Path(schema.__file__).parents[1] / "migrations"

DATA = """
INSERT INTO metastore_databases (id, name, location, comment, parameters, created_at)
    VALUES (7, 'lake', '/lake', NULL, '{"a": "b"}', 1000);
INSERT INTO metastore_tables (id, database_id, name, table_type, location, owner, columns, partition_keys,
        parameters, created_at)
    VALUES (9, 7, 'flights', 'MANAGED_TABLE', '/lake/flights', 'ops',
        '[{"name": "id", "type": "bigint", "comment": null}]',
        '[{"name": "year", "type": "int", "comment": null}]', '{}', 1000);
INSERT INTO metastore_partitions (table_id, partition_values, location, parameters, created_at)
    VALUES (9, '["2013"]', '/lake/flights/2013', '{}', 1000),
        (9, '["02014"]', '/lake/flights/02014', '{}', 1000), (9, '[null]', '/lake/flights/null', '{}', 1000);
INSERT INTO metastore_txns (id, state, user_name, host, agent, commit_on_recovery, opened_at, heartbeat_at,
        closed_at, closing_event_id)
    VALUES (1, 'c', 'me', 'here', NULL, TRUE, 1000, 1000, 2000, 5),
        (2, 'o', 'me', 'here', 'task', FALSE, 1000, 1000, NULL, NULL);
INSERT INTO metastore_write_id_sequences (id, database_name, table_name, last_write_id)
    VALUES (3, 'lake', 'flights', 2);
INSERT INTO metastore_txn_write_ids (sequence_id, write_id, txn_id) VALUES (3, 1, 1), (3, 2, 2);
INSERT INTO metastore_txn_writes (txn_id, table_id, instant) VALUES (2, 9, '20250101000000000');
INSERT INTO metastore_notification_log (event_id, event_time, event_type, database_name, table_name, message,
        message_format)
    VALUES (5, 2, 'COMMIT_TXN', NULL, NULL, '{"txnid": 1}', 'json-0.2');
INSERT INTO metastore_consumers (name, event_id, updated_at) VALUES ('reporting', 4, 1000);
UPDATE metastore_counters SET last_value = 2 WHERE name = 'txn_id';
UPDATE metastore_counters SET last_value = 5 WHERE name = 'event_id';
UPDATE metastore_counters SET last_value = 4 WHERE name = 'purged_event_id'
"""


def test_the_first_schema_is_migrated_with_what_is_in_it(empty_url: str) -> None:
    sql = SqlDatabase(empty_url)
    sql.write(_make)
    sql.close()
    metastore = open_metastore(empty_url)
    assert f"schema {schema.SCHEMA_REVISION}" in metastore.ping()
    database = metastore.get_database("lake")
    assert (database.id, database.location, database.parameters) == (7, "/lake", {"a": "b"})
    table = metastore.get_table("lake", "flights")
    assert (table.id, table.schema, table.owner) == (9, (Column("id", "bigint"),), "ops")
    found = [one.values for one in metastore.get_partitions("lake", "flights")]
    assert found == [("02014",), ("2013",), (None,)]
    # The index also knows which texts of numbers in old partitions are not plain.
    for year, values in ((2013, ("2013",)), (2014, ("02014",))):
        [one] = metastore.get_partitions_by_filter("lake", "flights", f"year = {year}")
        assert one.values == values
    assert _plain_years(empty_url) == {'["2013"]', "[null]"}
    assert (metastore.get_txn(1).state, metastore.get_txn(1).event_id) == (TxnState.COMMITTED, 5)
    assert metastore.get_txn(2).txn_type == TxnType.DEFAULT
    assert [write.instant for write in metastore.writes_of(2)] == ["20250101000000000"]
    assert str(metastore.valid_write_id_list("lake", "flights")) == "lake.flights:2:2:2:"
    assert [event.message["txnid"] for event in metastore.next_events(4)] == [1]
    [consumer] = metastore.consumers()
    assert (consumer.name, consumer.event_id, consumer.expiry_seconds, consumer.is_live) == (
        "reporting",
        4,
        None,
        True,
    )
    assert metastore.purge_events(0).held_back_by == ("reporting",)
    # New features work on old data.
    assert metastore.read_snapshot([("lake", "flights")], 2).catalog_event_id == 5
    metastore.alter_database("lake", comment="ours")
    assert metastore.read_snapshot([]).catalog_event_id == metastore.current_event_id() == 6
    held = metastore.lock([LockComponent(LockType.EXCLUSIVE, "lake", "flights")], "me", "here", txn_id=2)
    assert (held.lock_id, held.state) == (1, LockState.ACQUIRED)
    assert metastore.commit_txn(2) == 7
    assert metastore.show_locks() == []
    assert metastore.open_txn("me", "here") == 3
    assert metastore.allocate_table_write_id(3, "lake", "flights") == 3
    metastore.create_function("lake", "shout", "com.example.Shout")
    assert metastore.create_table("lake", "trains", location="/t", schema=[]).id > 9
    metastore.close()


# SQLite's indexes of expressions cannot be compared; PostgreSQL's can (tests/processes/postgresql).
@pytest.mark.filterwarnings("ignore:.*expression-based index")
def test_the_migrations_make_exactly_the_schema(empty_url: str) -> None:
    open_metastore(empty_url).close()
    engine = create_engine(empty_url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": schema.VERSION_TABLE})
        assert compare_metadata(context, schema.metadata) == []
        assert context.get_current_revision() == schema.SCHEMA_REVISION
    engine.dispose()


def test_the_code_knows_the_newest_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_heads() == [schema.SCHEMA_REVISION]


def _plain_years(url: str) -> set[str]:
    engine = create_engine(url)
    with engine.connect() as connection:
        query = text("SELECT partition_values FROM metastore_partitions WHERE has_plain_values")
        plain = set(connection.execute(query).scalars())
    engine.dispose()
    return plain


def _make(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, "0001")
    for statement in DATA.split(";"):
        # exec_driver_sql: the JSON's colons are no parameters.
        connection.exec_driver_sql(statement)
    if connection.dialect.name == "postgresql":
        for table in ("databases", "tables", "write_id_sequences"):
            connection.execute(text(f"SELECT setval(pg_get_serial_sequence('metastore_{table}', 'id'), 100)"))
