"""The bucket index that a table's options name."""

from __future__ import annotations

from airflow_provider.exceptions import UnsupportedTableError
from airflow_provider.table.bucket_index.consistent import ConsistentBucketIndex
from airflow_provider.table.bucket_index.simple import BucketIndex
from airflow_provider.table.properties import (
    BUCKET_ENGINE,
    BUCKET_HASH_FIELD,
    CONCURRENCY_MODE,
    CONSISTENT_HASHING,
    INDEX_TYPE,
    MERGE_ON_READ,
    MOST_BUCKETS,
    NON_BLOCKING,
    NUMBER_OF_BUCKETS,
    TableConfig,
)

_OF_OTHER_ENGINES = ("hoodie.bucket.index.partition.expressions", "hoodie.bucket.index.partition.rule.type")


def bucket_index_of(config: TableConfig) -> BucketIndex | None:
    """The bucket index that a table's options name.

    :param config: the table's configuration.
    :return: None when ``hoodie.index.type`` is not ``BUCKET``.
    :raises UnsupportedTableError: when the index is unknown here, or cannot work; the error names the
        property, its value and the remedy.
    """
    options = config.raw
    if options.get(INDEX_TYPE, "").upper() != "BUCKET":
        return None
    engine = options.get(BUCKET_ENGINE, "SIMPLE").upper()
    if engine not in ("SIMPLE", CONSISTENT_HASHING):
        raise _refused(config, BUCKET_ENGINE, engine, f"say SIMPLE or {CONSISTENT_HASHING}")
    for key in _OF_OTHER_ENGINES:
        if value := options.get(key):
            why = "partitions have their own numbers of buckets; write it with the JVM's Hudi"
            raise _refused(config, key, value, why)
    number = options.get(NUMBER_OF_BUCKETS, "")
    if not number.isdecimal() or not 0 < int(number) <= MOST_BUCKETS:
        why = f"say how many buckets a partition has, 1 to {MOST_BUCKETS}"
        raise _refused(config, NUMBER_OF_BUCKETS, number, why)
    keys = config.record_key_fields
    if not keys:
        raise _refused(config, "hoodie.table.recordkey.fields", "", "there is no record key to hash")
    named = options.get(BUCKET_HASH_FIELD, "").split(",")
    fields = tuple(each.strip() for each in named if each.strip()) or keys
    if unknown := [each for each in fields if each not in keys]:
        why = f"{unknown[0]} is no column of the record key ({', '.join(keys)}); name one or leave it out"
        raise _refused(config, BUCKET_HASH_FIELD, ",".join(fields), why)
    if engine == "SIMPLE":
        return BucketIndex(config.name, int(number), fields)
    if config.table_type != MERGE_ON_READ:
        why = f"Hudi has it for merge-on-read tables alone, and this one is {config.table_type}; say SIMPLE"
        raise _refused(config, BUCKET_ENGINE, engine, why)
    if options.get(CONCURRENCY_MODE, "").upper() == NON_BLOCKING:
        why = f"its buckets are split and merged, and {CONCURRENCY_MODE} is {NON_BLOCKING}; say SIMPLE"
        raise _refused(config, BUCKET_ENGINE, engine, why)
    return ConsistentBucketIndex(config.name, int(number), fields)


def _refused(config: TableConfig, key: str, value: str, why: str) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"table {config.name!r} has {INDEX_TYPE}=BUCKET and {key}={value}: {why}",
        table=config.name,
        property=key,
        value=value,
    )
