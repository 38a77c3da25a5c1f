"""As on SQLite."""

from tests.unit.metastore.locks.test_locks import *  # noqa: F403
