"""As on SQLite."""

from tests.unit.metastore.catalog.test_chosen_partitions import *  # noqa: F403
