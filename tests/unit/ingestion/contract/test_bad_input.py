"""Invalid input, with the engine in this process."""

from tests.ingestion_contract.bad_input import *  # noqa: F403
