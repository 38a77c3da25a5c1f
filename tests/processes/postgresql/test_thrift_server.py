"""As on SQLite."""

from tests.unit.metastore.test_thrift_server import *  # noqa: F403
