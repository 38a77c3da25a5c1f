"""Every operation, in this process."""

from tests.ingestion_contract.operations import *  # noqa: F403
