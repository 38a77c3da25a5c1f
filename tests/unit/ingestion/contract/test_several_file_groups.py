"""Partitions of several file groups, in this process."""

from tests.ingestion_contract.several_file_groups import *  # noqa: F403
