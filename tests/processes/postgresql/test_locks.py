"""As on SQLite."""

from tests.unit.metastore.test_locks import *  # noqa: F403
