"""As on SQLite."""

from tests.unit.metastore.hive.test_thrift_replication import *  # noqa: F403
