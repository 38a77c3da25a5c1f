"""As on SQLite."""

from tests.unit.metastore.test_cached_store import *  # noqa: F403
