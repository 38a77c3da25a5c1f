"""As on SQLite."""

from tests.unit.metastore.test_thrift_replication import *  # noqa: F403
