"""As on SQLite."""

from tests.unit.metastore.test_transactions import *  # noqa: F403
