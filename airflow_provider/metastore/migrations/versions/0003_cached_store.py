"""Read-only transactions, functions, consumers that expire.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON_DOCUMENT = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    op.add_column(
        "metastore_txns", sa.Column("txn_type", sa.Integer(), nullable=False, server_default=sa.text("0"))
    )
    op.add_column("metastore_consumers", sa.Column("expiry_millis", sa.BigInteger(), nullable=True))
    op.create_table(
        "metastore_functions",
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("database_id", BIG_ID, nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("class_name", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("resources", JSON_DOCUMENT, nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["database_id"],
            ["metastore_databases.id"],
            name=op.f("fk_metastore_functions_database_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_metastore_functions")),
        sa.UniqueConstraint("database_id", "name", name=op.f("uq_metastore_functions_database_id_name")),
        sqlite_autoincrement=True,
    )
    # The last event comes after the events of all changes so far.
    counters = sa.table("metastore_counters", sa.column("name"), sa.column("last_value"))
    last = sa.select(sa.literal("catalog_event_id"), counters.c.last_value).where(
        counters.c.name == "event_id"
    )
    op.execute(sa.insert(counters).from_select(["name", "last_value"], last))


def downgrade() -> None:
    counters = sa.table("metastore_counters", sa.column("name"), sa.column("last_value"))
    op.execute(sa.delete(counters).where(counters.c.name == "catalog_event_id"))
    op.drop_table("metastore_functions")
    op.drop_column("metastore_consumers", "expiry_millis")
    op.drop_column("metastore_txns", "txn_type")
