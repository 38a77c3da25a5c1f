"""Input that cannot work, in this process."""

from tests.ingestion.bad_input import *  # noqa: F403
