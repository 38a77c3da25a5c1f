"""Writes into tables with indexes of their keys, in this process."""

from tests.ingestion_contract.record_index import *  # noqa: F403
