"""As on SQLite."""

from tests.unit.metastore.test_upgrade import *  # noqa: F403
