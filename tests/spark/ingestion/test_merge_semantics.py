"""The merge rules of a table's properties, through Spark."""

from tests.ingestion_contract.merge_semantics import *  # noqa: F403
