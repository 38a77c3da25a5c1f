"""Statistics of columns.

Revision ID: 0006
Revises: 0005
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TABLE = "metastore_column_statistics"


def upgrade() -> None:
    op.create_table(
        TABLE,
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("table_id", BIG_ID, nullable=False),
        sa.Column("partition_id", BIG_ID),
        sa.Column("engine", sa.String(length=128), nullable=False),
        sa.Column("column_name", sa.Text, nullable=False),
        sa.Column("column_type", sa.Text, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.Column("analyzed_at", sa.BigInteger, nullable=False),
        *(
            sa.ForeignKeyConstraint(
                [f"{kind}_id"],
                [f"metastore_{kind}s.id"],
                name=op.f(f"fk_{TABLE}_{kind}_id"),
                ondelete="CASCADE",
            )
            for kind in ("table", "partition")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{TABLE}")),
    )
    op.create_index(op.f(f"ix_{TABLE}_table_partition"), TABLE, ["table_id", "partition_id"])
    op.create_index(op.f(f"ix_{TABLE}_partition_id"), TABLE, ["partition_id"])


def downgrade() -> None:
    op.drop_table(TABLE)
