"""The first schema.

Revision ID: 0001
Revises:
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON_DOCUMENT = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "metastore_consumers",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("event_id", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_metastore_consumers")),
    )
    op.create_table(
        "metastore_counters",
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("last_value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_metastore_counters")),
    )
    op.create_table(
        "metastore_databases",
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("location", sa.Text(), nullable=True),
        sa.Column("comment", sa.Text(), nullable=True),
        sa.Column("parameters", JSON_DOCUMENT, nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_metastore_databases")),
        sa.UniqueConstraint("name", name=op.f("uq_metastore_databases_name")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "metastore_notification_log",
        sa.Column("event_id", BIG_ID, autoincrement=False, nullable=False),
        sa.Column("event_time", sa.BigInteger(), nullable=False),
        sa.Column("event_type", sa.String(length=64), nullable=False),
        sa.Column("database_name", sa.String(length=255), nullable=True),
        sa.Column("table_name", sa.String(length=255), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("message_format", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("event_id", name=op.f("pk_metastore_notification_log")),
    )
    op.create_table(
        "metastore_txns",
        sa.Column("id", BIG_ID, autoincrement=False, nullable=False),
        sa.Column("state", sa.String(length=1), nullable=False),
        sa.Column("user_name", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=True),
        sa.Column("commit_on_recovery", sa.Boolean(), nullable=False),
        sa.Column("opened_at", sa.BigInteger(), nullable=False),
        sa.Column("heartbeat_at", sa.BigInteger(), nullable=False),
        sa.Column("closed_at", sa.BigInteger(), nullable=True),
        sa.Column("closing_event_id", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_metastore_txns")),
    )
    op.create_index(
        "ix_metastore_txns_not_committed",
        "metastore_txns",
        ["id", "state"],
        unique=False,
        sqlite_where=sa.text("state <> 'c'"),
        postgresql_where=sa.text("state <> 'c'"),
    )
    op.create_table(
        "metastore_write_id_sequences",
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("database_name", sa.String(length=255), nullable=False),
        sa.Column("table_name", sa.String(length=255), nullable=False),
        sa.Column("last_write_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_metastore_write_id_sequences")),
        sa.UniqueConstraint(
            "database_name",
            "table_name",
            name=op.f("uq_metastore_write_id_sequences_database_name_table_name"),
        ),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "metastore_tables",
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("database_id", BIG_ID, nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("table_type", sa.String(length=64), nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("columns", JSON_DOCUMENT, nullable=False),
        sa.Column("partition_keys", JSON_DOCUMENT, nullable=False),
        sa.Column("parameters", JSON_DOCUMENT, nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["database_id"], ["metastore_databases.id"], name=op.f("fk_metastore_tables_database_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_metastore_tables")),
        sa.UniqueConstraint("database_id", "name", name=op.f("uq_metastore_tables_database_id_name")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "metastore_txn_write_ids",
        sa.Column("sequence_id", BIG_ID, nullable=False),
        sa.Column("write_id", sa.BigInteger(), nullable=False),
        sa.Column("txn_id", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["sequence_id"],
            ["metastore_write_id_sequences.id"],
            name=op.f("fk_metastore_txn_write_ids_sequence_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("sequence_id", "write_id", name=op.f("pk_metastore_txn_write_ids")),
        sa.UniqueConstraint(
            "txn_id", "sequence_id", name=op.f("uq_metastore_txn_write_ids_txn_id_sequence_id")
        ),
    )
    op.create_index(
        "ix_metastore_txn_write_ids_sequence_txn",
        "metastore_txn_write_ids",
        ["sequence_id", "txn_id"],
        unique=False,
    )
    op.create_table(
        "metastore_partitions",
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("table_id", BIG_ID, nullable=False),
        sa.Column("partition_values", sa.Text(), nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("parameters", JSON_DOCUMENT, nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["table_id"],
            ["metastore_tables.id"],
            name=op.f("fk_metastore_partitions_table_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_metastore_partitions")),
        sa.UniqueConstraint(
            "table_id", "partition_values", name=op.f("uq_metastore_partitions_table_id_partition_values")
        ),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "metastore_txn_writes",
        sa.Column("txn_id", sa.BigInteger(), nullable=False),
        sa.Column("table_id", BIG_ID, nullable=False),
        sa.Column("instant", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(
            ["table_id"],
            ["metastore_tables.id"],
            name=op.f("fk_metastore_txn_writes_table_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("txn_id", "table_id", "instant", name=op.f("pk_metastore_txn_writes")),
    )
    op.create_index("ix_metastore_txn_writes_table_id", "metastore_txn_writes", ["table_id"], unique=False)

    counters = sa.table("metastore_counters", sa.column("name"), sa.column("last_value"))
    names = ("txn_id", "event_id", "purged_event_id")
    op.bulk_insert(counters, [{"name": name, "last_value": 0} for name in names])
    # As in Hive, the database `default` exists from the start, without an event.
    now = sa.text("CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)")
    if op.get_context().dialect.name == "sqlite":
        now = sa.text("CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)")
    databases = sa.table(
        "metastore_databases",
        sa.column("name"),
        sa.column("comment"),
        sa.column("parameters", JSON_DOCUMENT),
        sa.column("created_at"),
    )
    op.execute(
        sa.insert(databases).values(
            name="default", comment="Default Hive database", parameters={}, created_at=now
        )
    )


def downgrade() -> None:
    op.drop_table("metastore_txn_writes")
    op.drop_table("metastore_partitions")
    op.drop_table("metastore_txn_write_ids")
    op.drop_table("metastore_tables")
    op.drop_table("metastore_write_id_sequences")
    op.drop_table("metastore_txns")
    op.drop_table("metastore_notification_log")
    op.drop_table("metastore_databases")
    op.drop_table("metastore_counters")
    op.drop_table("metastore_consumers")
