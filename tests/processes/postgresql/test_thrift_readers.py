"""As on SQLite."""

from tests.unit.metastore.test_thrift_readers import *  # noqa: F403
