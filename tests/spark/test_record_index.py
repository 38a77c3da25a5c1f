"""Writes into tables with indexes of their keys, looked up in Spark."""

from tests.ingestion.record_index import *  # noqa: F403
