"""As on SQLite."""

from tests.unit.metastore.catalog.test_partitions import *  # noqa: F403
