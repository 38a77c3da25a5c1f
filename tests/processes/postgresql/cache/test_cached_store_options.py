"""As on SQLite."""

from tests.unit.metastore.cache.test_cached_store_options import *  # noqa: F403
