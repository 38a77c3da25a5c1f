"""As on SQLite."""

from tests.unit.metastore.test_notifications import *  # noqa: F403
