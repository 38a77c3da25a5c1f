"""As on SQLite."""

from tests.unit.metastore.catalog.test_catalog import *  # noqa: F403
