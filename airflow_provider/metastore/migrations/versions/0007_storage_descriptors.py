"""Storage descriptors of partitions: formats, columns and serializer of a partition's files.

Revision ID: 0007
Revises: 0006
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("metastore_partitions", sa.Column("storage_descriptor", sa.Text))


def downgrade() -> None:
    op.drop_column("metastore_partitions", "storage_descriptor")
