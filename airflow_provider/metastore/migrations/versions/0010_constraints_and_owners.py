"""Constraints of tables, owners of databases, and the metastore's own properties.

Revision ID: 0010
Revises: 0009
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON_DOCUMENT = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    op.add_column("metastore_databases", sa.Column("owner", sa.Text(), nullable=True))
    op.add_column(
        "metastore_databases",
        sa.Column("owner_type", sa.Integer(), nullable=False, server_default=sa.text("1")),
    )
    op.create_table(
        "metastore_properties",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_metastore_properties")),
    )
    op.create_table(
        "metastore_constraints",
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("table_id", BIG_ID, nullable=False),
        sa.Column("parent_id", BIG_ID, nullable=True),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("columns", JSON_DOCUMENT, nullable=False),
        sa.ForeignKeyConstraint(
            ["table_id"],
            ["metastore_tables.id"],
            name=op.f("fk_metastore_constraints_table_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["parent_id"],
            ["metastore_tables.id"],
            name=op.f("fk_metastore_constraints_parent_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_metastore_constraints")),
        sa.UniqueConstraint("table_id", "name", name=op.f("uq_metastore_constraints_table_id_name")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_metastore_constraints_parent_id", "metastore_constraints", ["parent_id"])


def downgrade() -> None:
    op.drop_table("metastore_constraints")
    op.drop_table("metastore_properties")
    op.drop_column("metastore_databases", "owner_type")
    op.drop_column("metastore_databases", "owner")
