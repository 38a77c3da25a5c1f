"""As on SQLite."""

from tests.unit.metastore.test_chosen_partitions import *  # noqa: F403
