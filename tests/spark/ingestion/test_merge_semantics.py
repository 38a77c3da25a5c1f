"""What a table's properties say of merging, through Spark."""

from tests.ingestion_contract.merge_semantics import *  # noqa: F403
