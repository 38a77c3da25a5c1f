"""As on SQLite."""

from tests.unit.metastore.catalog.test_column_statistics import *  # noqa: F403
