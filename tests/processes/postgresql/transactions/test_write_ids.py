"""As on SQLite."""

from tests.unit.metastore.transactions.test_write_ids import *  # noqa: F403
