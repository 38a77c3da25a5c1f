"""Options that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from airflow_provider.table.hudi_options.index_options import (
    GLOBAL_RECORD_INDEX,
    METADATA,
    enabled_indexes,
    enabling_key,
)
from airflow_provider.table.hudi_options.lock_options import LOCK
from airflow_provider.table.hudi_options.option import Topic
from airflow_provider.table.hudi_options.registry import OPTIONS
from airflow_provider.table.properties import (
    BUCKET_ENGINE,
    CONCURRENCY_MODE,
    CONSISTENT_HASHING,
    INDEX_TYPE,
    LEAST_BUCKETS_OF_A_PARTITION,
    MOST_BUCKETS_OF_A_PARTITION,
    NON_BLOCKING,
    NUMBER_OF_BUCKETS,
)

_PROVIDER = f"{LOCK}provider"
_POLICY = "hoodie.clean.policy"
_COLUMN_STATS = f"{METADATA}index.column.stats."
_DEFAULT_PORT = 2181
"""ZooKeeper's (``ConnectStringParser``)."""


_ORDERED = (
    ("hoodie.keep.min.commits", "hoodie.keep.max.commits", "below"),
    ("hoodie.parquet.small.file.limit", "hoodie.parquet.max.file.size", "at most"),
    (f"{GLOBAL_RECORD_INDEX}min.filegroup.count", f"{GLOBAL_RECORD_INDEX}max.filegroup.count", "at most"),
)


def contradictions(values: Mapping[str, Any], *, with_defaults: bool = False) -> Iterator[str]:
    """The contradictions between options, each as a sentence with its remedy.

    :param values: typed values of options, by key.
    :param with_defaults: whether the defaults of other options count. They do not where an operator's
        arguments can still replace them.
    """
    for rule in (
        _modes,
        _buckets,
        _lock_providers,
        _ports,
        _leases,
        _metadata_table,
        _column_stats,
        _retention,
    ):
        yield from rule(values)
    for least, most, relation in _ORDERED:
        if (least in values and most in values) or (with_defaults and (least in values or most in values)):
            yield from _in_order(values, least, most, relation)


def _in_order(values: Mapping[str, Any], least: str, most: str, relation: str) -> Iterator[str]:
    low, high = (values.get(key, OPTIONS[key].default) for key in (least, most))
    if low > high or (low == high and relation == "below"):
        low_shown, high_shown = (
            OPTIONS[key].shown(value) + ("" if key in values else " (the default)")
            for key, value in ((least, low), (most, high))
        )
        yield f"{low_shown} must be {relation} {high_shown}"


def _modes(values: Mapping[str, Any]) -> Iterator[str]:
    if values.get("hoodie.write.concurrency.mode") == "SINGLE_WRITER" and _PROVIDER in values:
        yield (
            f"hoodie.write.concurrency.mode=SINGLE_WRITER and {OPTIONS[_PROVIDER].shown(values[_PROVIDER])}: "
            "a single writer has no lock; say OPTIMISTIC_CONCURRENCY_CONTROL, or leave the lock out"
        )


def _buckets(values: Mapping[str, Any]) -> Iterator[str]:
    has_index = values.get(INDEX_TYPE) == "BUCKET"
    if has_index and NUMBER_OF_BUCKETS not in values:
        yield f"{INDEX_TYPE}=BUCKET without {NUMBER_OF_BUCKETS}: say how many buckets a partition has"
    if not has_index and values.get(CONCURRENCY_MODE) == NON_BLOCKING:
        yield (
            f"{CONCURRENCY_MODE}={NON_BLOCKING} without {INDEX_TYPE}=BUCKET: only a hash of the key tells "
            f"two writers the same file group; set it, and {NUMBER_OF_BUCKETS}, or leave the mode out"
        )
    if values.get(BUCKET_ENGINE) == CONSISTENT_HASHING and values.get(CONCURRENCY_MODE) == NON_BLOCKING:
        yield (
            f"{CONCURRENCY_MODE}={NON_BLOCKING} and {BUCKET_ENGINE}={CONSISTENT_HASHING}: buckets that are "
            "split and merged tell two writers different file groups; say SIMPLE, or leave the mode out"
        )
    if (number := values.get(NUMBER_OF_BUCKETS)) is not None:
        least = values.get(LEAST_BUCKETS_OF_A_PARTITION, number)
        most = values.get(MOST_BUCKETS_OF_A_PARTITION, number)
        if not least <= number <= most:
            yield (
                f"{NUMBER_OF_BUCKETS}={number} must be {LEAST_BUCKETS_OF_A_PARTITION}={least} at least and "
                f"{MOST_BUCKETS_OF_A_PARTITION}={most} at most"
            )


def _lock_providers(values: Mapping[str, Any]) -> Iterator[str]:
    chosen = values.get(_PROVIDER)
    for key in values:
        option = OPTIONS[key]
        if option.provider and option.provider != chosen:
            said = OPTIONS[_PROVIDER].shown(chosen) if chosen else f"no {_PROVIDER}"
            wanted = OPTIONS[_PROVIDER].kind.write(option.provider)
            yield f"{key} is about {wanted}, and there is {said}; set {_PROVIDER} to it, or leave the key out"


def _ports(values: Mapping[str, Any]) -> Iterator[str]:
    url, port = values.get(f"{LOCK}zookeeper.url"), values.get(f"{LOCK}zookeeper.port")
    if url is None or port is None:
        return
    # Hudi's BaseZookeeperBasedLockProvider gives Curator the URL alone; ZooKeeper's default port is 2181.
    hosts = [host.strip() for host in url.partition("/")[0].split(",")]
    bare = next((host for host in hosts if ":" not in host), None)
    if bare is not None and port != _DEFAULT_PORT:
        yield (
            f"{LOCK}zookeeper.port={port}, and {bare} in {LOCK}zookeeper.url has no port: Hudi ignores the "
            f"option, and connects to {bare}:{_DEFAULT_PORT}; write {bare}:{port} into the URL on both sides"
        )
    elif bare is None and not any(host.endswith(f":{port}") for host in hosts):
        yield f"{LOCK}zookeeper.port={port}, and every host of {LOCK}zookeeper.url has another; leave one out"


def _leases(values: Mapping[str, Any]) -> Iterator[str]:
    lease, renewal = (f"{LOCK}storage.{name}" for name in ("validity.timeout.secs", "renew.interval.secs"))
    # StorageBasedLockConfig.checkRequiredProps
    if lease in values and renewal in values and values[lease] < 10 * values[renewal]:
        yield (
            f"{OPTIONS[lease].shown(values[lease])} and {OPTIONS[renewal].shown(values[renewal])}: Hudi asks "
            "for ten renewals at least in that time"
        )


def _metadata_table(values: Mapping[str, Any]) -> Iterator[str]:
    if values.get(f"{METADATA}enable") is not False:
        return
    for partition in enabled_indexes(values):
        yield (
            f"{METADATA}enable=false and {enabling_key(partition)}=true: an index is in the metadata table; "
            f"set {METADATA}enable to true, or leave the index out"
        )
    if values.get(f"{METADATA}index.async"):
        yield f"{METADATA}enable=false and {METADATA}index.async=true: there is nothing to build"


def _column_stats(values: Mapping[str, Any]) -> Iterator[str]:
    if values.get(f"{_COLUMN_STATS}enable"):
        return
    if f"{_COLUMN_STATS}column.list" in values:
        yield f"{_COLUMN_STATS}column.list without {_COLUMN_STATS}enable=true: set it, or leave the list out"
    if values.get(f"{METADATA}index.partition.stats.enable"):
        yield (
            f"{METADATA}index.partition.stats.enable=true without {_COLUMN_STATS}enable=true: "
            "partition_stats is made of column_stats; set that too, or leave it out"
        )


def _retention(values: Mapping[str, Any]) -> Iterator[str]:
    given = [
        option
        for option in OPTIONS.values()
        if option.topic is Topic.CLEANING and option.argument == "retained" and option.key in values
    ]
    for option in given:
        policy = option.arguments(values[option.key])["policy"]
        chosen = values.get(_POLICY, policy)
        if chosen != policy:
            yield (
                f"{option.key} goes with {_POLICY}={policy}, and the policy is {chosen}; "
                "leave out the one that is not meant"
            )
    if len(given) > 1 and _POLICY not in values:
        keys = " and ".join(option.key for option in given)
        yield f"{keys} go with different policies; say which one by {_POLICY}"
