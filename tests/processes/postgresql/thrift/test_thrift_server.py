"""As on SQLite."""

from tests.unit.metastore.thrift.test_thrift_server import *  # noqa: F403
