"""Transactions with a timeout of their own.

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("metastore_txns", sa.Column("timeout_ms", sa.BigInteger))


def downgrade() -> None:
    op.drop_column("metastore_txns", "timeout_ms")
