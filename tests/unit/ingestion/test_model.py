"""Sequences of operations, in this process."""

from tests.ingestion.model import *  # noqa: F403
