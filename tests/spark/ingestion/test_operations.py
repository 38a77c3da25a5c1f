"""Every operation, through Spark."""

from tests.ingestion_contract.operations import *  # noqa: F403
