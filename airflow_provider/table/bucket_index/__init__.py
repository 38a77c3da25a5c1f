"""Hudi's bucket indexes: a hash of the record key decides the file group.

Begin with ``simple``, whose buckets never change. The buckets of ``consistent`` are split and merged, and
``hashing_metadata`` lists them. ``of_config`` reads a table's options.
"""

from airflow_provider.table.bucket_index.consistent import ConsistentBucketIndex
from airflow_provider.table.bucket_index.hashing_metadata import (
    DELETE,
    FIRST_INSTANT,
    HASHING_METADATA,
    REPLACE,
    HashingMetadata,
    HashingNode,
    delete_hashing_metadata,
    hashing_metadata_folder,
    load_hashing_metadata,
    new_file_id_prefix,
    put_hashing_metadata,
    tell_committed,
)
from airflow_provider.table.bucket_index.of_config import bucket_index_of
from airflow_provider.table.bucket_index.simple import BucketIndex, bucket_of, hash_values

__all__ = [
    "DELETE",
    "FIRST_INSTANT",
    "HASHING_METADATA",
    "REPLACE",
    "BucketIndex",
    "ConsistentBucketIndex",
    "HashingMetadata",
    "HashingNode",
    "bucket_index_of",
    "bucket_of",
    "delete_hashing_metadata",
    "hash_values",
    "hashing_metadata_folder",
    "load_hashing_metadata",
    "new_file_id_prefix",
    "put_hashing_metadata",
    "tell_committed",
]
