"""Input that cannot work, in this process."""

from tests.ingestion_contract.bad_input import *  # noqa: F403
