"""Sequences of operations, through Spark."""

from tests.ingestion_contract.model import *  # noqa: F403
