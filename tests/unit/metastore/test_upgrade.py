"""Databases of earlier releases, with something in them."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, text

from airflow_provider.metastore import LockComponent, LockState, LockType, TxnState, open_metastore, schema

MIGRATIONS = Path(schema.__file__).parent / "migrations"
# What a metastore of the first release wrote.
FIRST = (
    "INSERT INTO metastore_databases (id, name, parameters, created_at) VALUES (7, 'lake', '{}', 1000)",
    "INSERT INTO metastore_tables (id, database_id, name, table_type, location, columns, partition_keys, "
    "parameters, created_at) VALUES (5, 7, 'flights', 'MANAGED_TABLE', '/lake/flights', "
    """'[{"name": "id", "type": "bigint", "comment": null}]', '[]', '{}', 1000)""",
    "INSERT INTO metastore_txns (id, state, user_name, host, commit_on_recovery, opened_at, heartbeat_at) "
    "VALUES (1, 'o', 'me', 'here', 1, 1000, 1000)",
    "INSERT INTO metastore_write_id_sequences (id, database_name, table_name, last_write_id) "
    "VALUES (1, 'lake', 'flights', 3)",
    "UPDATE metastore_counters SET last_value = 1 WHERE name = 'txn_id'",
    "UPDATE metastore_counters SET last_value = 4 WHERE name = 'event_id'",
)


def test_the_first_schema_is_migrated_with_what_is_in_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/metastore.db"
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    engine = create_engine(url)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        for statement in FIRST:
            connection.execute(text(statement))
    engine.dispose()

    metastore = open_metastore(url)
    table = metastore.get_table("lake", "flights")
    assert (table.id, table.location, table.schema[0].type) == (5, "/lake/flights", "bigint")
    assert metastore.get_txn(1).state is TxnState.OPEN
    assert metastore.open_txn("me", "here") == 2
    assert metastore.allocate_table_write_id(1, "lake", "flights") == 4
    assert metastore.current_event_id() == 6
    held = metastore.lock([LockComponent(LockType.EXCLUSIVE, "lake", "flights")], "me", "here", txn_id=1)
    assert (held.lock_id, held.state) == (1, LockState.ACQUIRED)
    metastore.commit_txn(1)
    assert metastore.show_locks() == []
