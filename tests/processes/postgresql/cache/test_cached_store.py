"""As on SQLite."""

from tests.unit.metastore.cache.test_cached_store import *  # noqa: F403
