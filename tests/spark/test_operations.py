"""Every operation, through Spark."""

from tests.ingestion.operations import *  # noqa: F403
