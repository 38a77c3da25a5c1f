"""As on SQLite."""

from tests.unit.metastore.thrift.test_thrift_readers import *  # noqa: F403
