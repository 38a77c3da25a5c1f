"""The numbers of reads that a replica has answered from memory, and from the database, for people.

Revision ID: 0012
Revises: 0011
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("metastore_consumers", sa.Column("hits", sa.BigInteger(), nullable=True))
    op.add_column("metastore_consumers", sa.Column("misses", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("metastore_consumers") as table:
        table.drop_column("misses")
        table.drop_column("hits")
