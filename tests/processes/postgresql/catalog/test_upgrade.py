"""As on SQLite."""

from tests.unit.metastore.database.test_upgrade import *  # noqa: F403
