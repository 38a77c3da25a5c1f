"""The state of replications, in their targets.

Revision ID: 0008
Revises: 0007
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

JSON_DOCUMENT = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "metastore_replications",
        sa.Column("policy", sa.String(length=255), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("databases", JSON_DOCUMENT, nullable=False),
        sa.Column("phase", sa.String(length=32), nullable=False),
        sa.Column("event_id", sa.BigInteger(), nullable=True),
        sa.Column("event_time", sa.BigInteger(), nullable=True),
        sa.Column("lease_owner", sa.Text(), nullable=True),
        sa.Column("lease_until", sa.BigInteger(), nullable=True),
        sa.Column("bytes_copied", sa.BigInteger(), nullable=False),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("policy", name=op.f("pk_metastore_replications")),
    )
    op.create_table(
        "metastore_repl_txn_map",
        sa.Column("policy", sa.String(length=255), nullable=False),
        sa.Column("source_txn_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("target_txn_id", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["policy"],
            ["metastore_replications.policy"],
            name=op.f("fk_metastore_repl_txn_map_policy"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("policy", "source_txn_id", name=op.f("pk_metastore_repl_txn_map")),
    )


def downgrade() -> None:
    op.drop_table("metastore_repl_txn_map")
    op.drop_table("metastore_replications")
