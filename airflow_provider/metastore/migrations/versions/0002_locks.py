"""Locks.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "metastore_locks",
        sa.Column("id", BIG_ID, autoincrement=False, nullable=False),
        sa.Column("state", sa.String(length=1), nullable=False),
        sa.Column("txn_id", sa.BigInteger(), nullable=True),
        sa.Column("user_name", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=True),
        sa.Column("timeout_millis", sa.BigInteger(), nullable=True),
        sa.Column("heartbeat_at", sa.BigInteger(), nullable=False),
        sa.Column("acquired_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_metastore_locks")),
    )
    op.create_index(
        "ix_metastore_locks_of_txn",
        "metastore_locks",
        ["txn_id"],
        unique=False,
        sqlite_where=sa.text("txn_id IS NOT NULL"),
        postgresql_where=sa.text("txn_id IS NOT NULL"),
    )
    op.create_table(
        "metastore_lock_components",
        sa.Column("lock_id", BIG_ID, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("lock_type", sa.String(length=1), nullable=False),
        sa.Column("database_name", sa.String(length=255), nullable=False),
        sa.Column("table_name", sa.String(length=255), nullable=True),
        sa.Column("partition_name", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["lock_id"],
            ["metastore_locks.id"],
            name=op.f("fk_metastore_lock_components_lock_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("lock_id", "number", name=op.f("pk_metastore_lock_components")),
    )
    op.create_index(
        "ix_metastore_lock_components_place",
        "metastore_lock_components",
        ["database_name", "table_name"],
        unique=False,
    )
    counters = sa.table("metastore_counters", sa.column("name"), sa.column("last_value"))
    op.bulk_insert(counters, [{"name": "lock_id", "last_value": 0}])


def downgrade() -> None:
    op.drop_table("metastore_lock_components")
    op.drop_table("metastore_locks")
    op.execute(sa.text("DELETE FROM metastore_counters WHERE name = 'lock_id'"))
