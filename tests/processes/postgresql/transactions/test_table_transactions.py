"""As on SQLite."""

from tests.unit.metastore.transactions.test_table_transactions import *  # noqa: F403
