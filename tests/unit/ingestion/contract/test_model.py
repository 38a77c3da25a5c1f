"""Sequences of operations, in this process."""

from tests.ingestion_contract.model import *  # noqa: F403
