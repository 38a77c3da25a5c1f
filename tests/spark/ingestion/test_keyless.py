"""Tables without a record key, through Spark."""

from tests.ingestion_contract.keyless import *  # noqa: F403
