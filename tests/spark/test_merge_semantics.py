"""What a table's properties say of merging, through Spark."""

from tests.ingestion.merge_semantics import *  # noqa: F403
