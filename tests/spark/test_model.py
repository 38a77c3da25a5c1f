"""Sequences of operations, through Spark."""

from tests.ingestion.model import *  # noqa: F403
