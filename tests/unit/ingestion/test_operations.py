"""Every operation, in this process."""

from tests.ingestion.operations import *  # noqa: F403
