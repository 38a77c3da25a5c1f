"""Keys of all types, and partition values that look like other things, in this process."""

from tests.ingestion_contract.keys_and_partitions import *  # noqa: F403
