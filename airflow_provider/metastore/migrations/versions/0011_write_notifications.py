"""Notifications of transactions' writes, which Hive's replication reads at a commit.

Revision ID: 0011
Revises: 0010
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

JSON_DOCUMENT = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "metastore_write_notifications",
        sa.Column("txn_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("database_name", sa.String(length=255), nullable=False),
        sa.Column("table_name", sa.String(length=255), nullable=False),
        sa.Column("partition_values", sa.Text(), nullable=False),
        sa.Column("write_id", sa.BigInteger(), nullable=False),
        sa.Column("table_object", sa.Text(), nullable=False),
        sa.Column("partition_object", sa.Text(), nullable=True),
        sa.Column("files", JSON_DOCUMENT, nullable=False),
        sa.PrimaryKeyConstraint(
            "txn_id",
            "database_name",
            "table_name",
            "partition_values",
            name=op.f("pk_metastore_write_notifications"),
        ),
    )


def downgrade() -> None:
    op.drop_table("metastore_write_notifications")
