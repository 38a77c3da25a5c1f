"""As on SQLite."""

from tests.unit.metastore.test_catalog import *  # noqa: F403
