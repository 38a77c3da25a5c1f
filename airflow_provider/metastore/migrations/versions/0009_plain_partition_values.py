"""The partitions with plain values, which an index finds by the values in a filter.

Revision ID: 0009
Revises: 0008
"""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

from airflow_provider.metastore.model import is_plain

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_BATCH = 1_000


def upgrade() -> None:
    op.add_column(
        "metastore_partitions",
        sa.Column("has_plain_values", sa.Boolean(), nullable=False, server_default=sa.text("false")),
    )
    _note_plain_values(op.get_bind())
    op.create_index(
        "ix_metastore_partitions_not_plain",
        "metastore_partitions",
        ["table_id"],
        sqlite_where=sa.text("NOT has_plain_values"),
        postgresql_where=sa.text("NOT has_plain_values"),
    )


def _note_plain_values(connection: sa.Connection) -> None:
    rows = sa.table(
        "metastore_partitions",
        sa.column("id", sa.BigInteger),
        sa.column("partition_values", sa.Text),
        sa.column("has_plain_values", sa.Boolean),
    )
    after = 0
    query = sa.select(rows.c.id, rows.c.partition_values).order_by(rows.c.id).limit(_BATCH)
    while found := connection.execute(query.where(rows.c.id > after)).all():
        after = found[-1].id
        plain = [one.id for one in found if all(map(is_plain, json.loads(one.partition_values)))]
        connection.execute(sa.update(rows).where(rows.c.id.in_(plain)).values(has_plain_values=True))


def downgrade() -> None:
    op.drop_index("ix_metastore_partitions_not_plain", "metastore_partitions")
    op.drop_column("metastore_partitions", "has_plain_values")
