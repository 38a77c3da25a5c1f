"""The options of the table lock, and the lock configuration that they make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider.table.hudi_options.kinds import (
    MILLISECONDS,
    SECONDS,
    SERVERS,
    TEXT,
    one_of,
    whole,
)
from airflow_provider.table.hudi_options.option import Option, Topic

LOCK = "hoodie.write.lock."

_PROVIDERS = {
    "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider": "zookeeper",
    "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider": "hudi_filesystem",
    "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider": "storage",
    "org.apache.hudi.client.transaction.lock.InProcessLockProvider": "in_process",
    "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider": "metastore",
}

LOCK_OPTIONS = (
    Option(
        f"{LOCK}provider",
        Topic.LOCK,
        one_of(_PROVIDERS | {name.rpartition(".")[2]: ours for name, ours in _PROVIDERS.items()}),
        "The lock provider, by the name of Hudi's class, with or without its package. By default the lock is "
        "a file of our own, which no other Hudi takes.",
        "provider",
    ),
    Option(
        f"{LOCK}wait_time_ms",
        Topic.LOCK,
        MILLISECONDS,
        "How long a commit waits for the lock.",
        "timeout_seconds",
        default=60.0,
    ),
    Option(
        f"{LOCK}client.num_retries",
        Topic.LOCK,
        whole(),
        "How many more times a commit waits for that long.",
        default=0,
    ),
    Option(
        f"{LOCK}client.wait_time_ms_between_retry",
        Topic.LOCK,
        MILLISECONDS,
        "The additional wait before each of these retries.",
        default=5.0,
    ),
    Option(
        f"{LOCK}wait_time_ms_between_retry",
        Topic.LOCK,
        MILLISECONDS,
        "The longest pause between two looks of a provider that polls.",
        "poll_interval_seconds",
    ),
    Option(
        f"{LOCK}max_wait_time_ms_between_retry",
        Topic.LOCK,
        MILLISECONDS,
        "Accepted without effect: pauses do not grow.",
    ),
    Option(
        f"{LOCK}num_retries",
        Topic.LOCK,
        whole(),
        "Accepted without effect: a provider polls until the time is over.",
    ),
    Option(
        f"{LOCK}zookeeper.url",
        Topic.LOCK,
        SERVERS,
        "The ensemble: hosts with commas between them, with or without ports, and a chroot after the last.",
        "hosts",
        provider="zookeeper",
        is_secret=True,
    ),
    Option(
        f"{LOCK}zookeeper.port",
        Topic.LOCK,
        whole(least=1, most=65535),
        "Accepted without effect, as in Hudi: the port is in the URL, and 2181 for a host without one. "
        "Refused if it contradicts the URL.",
        default=2181,
        provider="zookeeper",
    ),
    Option(
        f"{LOCK}zookeeper.base_path",
        Topic.LOCK,
        TEXT,
        "The node that holds the locks.",
        "base_path",
        default="/hudi/locks",
        provider="zookeeper",
    ),
    Option(
        f"{LOCK}zookeeper.lock_key",
        Topic.LOCK,
        TEXT,
        "The lock's name under that node; the table's name by default.",
        "lock_key",
        provider="zookeeper",
    ),
    Option(
        f"{LOCK}zookeeper.session_timeout_ms",
        Topic.LOCK,
        MILLISECONDS,
        "A holder that is silent for that long has lost the lock.",
        "lease_seconds",
        default=30.0,
        provider="zookeeper",
    ),
    Option(
        f"{LOCK}zookeeper.connection_timeout_ms",
        Topic.LOCK,
        MILLISECONDS,
        "The time after which an ensemble counts as unreachable.",
        "connection_timeout_seconds",
        default=10.0,
        provider="zookeeper",
    ),
    Option(
        f"{LOCK}filesystem.path",
        Topic.LOCK,
        TEXT,
        "The folder of the lock's file; the table's `.hoodie` by default.",
        "path",
        provider="hudi_filesystem",
    ),
    Option(
        f"{LOCK}filesystem.expire",
        Topic.LOCK,
        whole("minutes"),
        "The age at which the holder of a JVM's lock counts as dead; 0 for never. Set the same everywhere.",
        "expire_seconds",
        default=0,
        provider="hudi_filesystem",
        as_arguments=lambda value: {"expire_seconds": 60.0 * value} if value else {},
    ),
    Option(
        f"{LOCK}storage.validity.timeout.secs",
        Topic.LOCK,
        SECONDS,
        "A holder that does not renew the lock for that long has lost it.",
        "lease_seconds",
        default=30.0,
        provider="storage",
    ),
    Option(
        f"{LOCK}storage.renew.interval.secs",
        Topic.LOCK,
        SECONDS,
        "Accepted without effect: a holder renews the lock three times within its validity.",
        alternatives=(f"{LOCK}storage.heartbeat.poll.secs",),
        provider="storage",
    ),
    Option(
        f"{LOCK}hivemetastore.uris",
        Topic.LOCK,
        SERVERS,
        "The metastore's address: `thrift://host:port`, or several hosts with commas between them.",
        "url",
        provider="metastore",
        is_secret=True,
    ),
    Option(
        f"{LOCK}hivemetastore.database",
        Topic.LOCK,
        TEXT,
        "The database of the table that is locked in the metastore.",
        "database",
        default="default",
        provider="metastore",
    ),
    Option(
        f"{LOCK}hivemetastore.table",
        Topic.LOCK,
        TEXT,
        "The table that is locked in the metastore; by default the one of this table's name.",
        "table",
        provider="metastore",
    ),
    Option(
        f"{LOCK}heartbeat_interval_ms",
        Topic.LOCK,
        MILLISECONDS,
        "The time between two heartbeats to the metastore: a third of the lease.",
        "lease_seconds",
        default=10.0,
        provider="metastore",
        as_arguments=lambda value: {"lease_seconds": 3 * value},
    ),
)


_WAIT, _AGAIN = f"{LOCK}wait_time_ms", f"{LOCK}client.num_retries"
_PAUSE = f"{LOCK}client.wait_time_ms_between_retry"
_TOLD = ("zookeeper", "in_process")
"""Providers that do not poll, because the lock's server notifies them when it is free."""
_DEFAULTS = {option.key: option.default for option in LOCK_OPTIONS}


def lock_config(values: Mapping[str, Any]) -> dict[str, Any]:
    """The part of the configuration for :func:`airflow_provider.locks.open_lock` that options give.

    :param values: typed values of options, by key.
    """
    config: dict[str, Any] = {}
    for option in LOCK_OPTIONS:
        if option.key in values:
            config |= option.arguments(values[option.key])
    if config.get("provider") in _TOLD:
        config.pop("poll_interval_seconds", None)
    if _WAIT in values or _AGAIN in values:
        wait, again, pause = (values.get(key, _DEFAULTS[key]) for key in (_WAIT, _AGAIN, _PAUSE))
        config["timeout_seconds"] = wait * (1 + again) + pause * again
    return config
