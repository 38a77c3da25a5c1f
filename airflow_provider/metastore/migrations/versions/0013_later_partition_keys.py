"""Indexes of the second to the fourth value of partitions; PostgreSQL finds values by their beginning, too.

PostgreSQL looks for beginnings of texts in the order of their bytes, which is the collation ``C``; the
database may have another one.

Revision ID: 0013
Revises: 0012
"""

from __future__ import annotations

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_VALUE = {
    "sqlite": "json_extract(partition_values, '$[{}]')",
    "postgresql": "(CAST(partition_values AS jsonb) ->> {})",
}
_POSITIONS = (1, 2, 3)
_COLLATION = "ALTER TABLE metastore_partitions ALTER COLUMN partition_values TYPE text"


def upgrade() -> None:
    dialect = op.get_bind().dialect.name
    if dialect == "postgresql":
        op.execute(f'{_COLLATION} COLLATE "C"')
    for at in _POSITIONS:
        value = _VALUE[dialect].format(at)
        op.execute(
            f"CREATE INDEX ix_metastore_partitions_value_{at} ON metastore_partitions (table_id, {value}) "
            f"WHERE {value} IS NOT NULL"
        )


def downgrade() -> None:
    for at in _POSITIONS:
        op.execute(f"DROP INDEX ix_metastore_partitions_value_{at}")
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f'{_COLLATION} COLLATE "default"')
