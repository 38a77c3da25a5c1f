"""Keys of all types, and partition values that want to be something else, in this process."""

from tests.ingestion_contract.keys_and_partitions import *  # noqa: F403
