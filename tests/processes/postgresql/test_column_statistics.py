"""As on SQLite."""

from tests.unit.metastore.test_column_statistics import *  # noqa: F403
