"""As on SQLite."""

from tests.unit.metastore.test_table_transactions import *  # noqa: F403
