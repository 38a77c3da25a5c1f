"""As on SQLite."""

from tests.unit.metastore.test_partitions import *  # noqa: F403
