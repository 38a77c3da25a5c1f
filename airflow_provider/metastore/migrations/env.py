"""Alembic's entry: runs the migrations on the connection that the engine hands over.

There is no ``alembic.ini``; :func:`airflow_provider.metastore.database.upgrade_schema` makes
the configuration. The connection is in a transaction that the caller began and will end.
"""

from __future__ import annotations

from alembic import context

from airflow_provider.metastore.database import schema

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=schema.metadata,
    version_table=schema.VERSION_TABLE,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
