"""As on SQLite."""

from tests.unit.metastore.test_write_ids import *  # noqa: F403
