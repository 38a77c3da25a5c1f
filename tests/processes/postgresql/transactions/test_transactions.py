"""As on SQLite."""

from tests.unit.metastore.transactions.test_transactions import *  # noqa: F403
