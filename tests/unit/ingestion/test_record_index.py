"""Writes into tables with indexes of their keys, in this process."""

from tests.ingestion.record_index import *  # noqa: F403
