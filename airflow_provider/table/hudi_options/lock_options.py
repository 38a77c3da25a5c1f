"""The table lock: its options, and the lock's configuration that they make."""

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
        "The lock provider, by the name of Hudi's class, with or without its package. Without it the lock is "
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
        "How often a commit waits so long again.",
        default=0,
    ),
    Option(
        f"{LOCK}client.wait_time_ms_between_retry",
        Topic.LOCK,
        MILLISECONDS,
        "How much longer it waits for each of these times.",
        default=5.0,
    ),
    Option(
        f"{LOCK}wait_time_ms_between_retry",
        Topic.LOCK,
        MILLISECONDS,
        "The longest pause between two looks while waiting; of a provider that has to look.",
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
        "Accepted without effect: a provider looks until the time is over.",
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
        "The port of hosts that are given without one.",
        default=2181,
        provider="zookeeper",
    ),
    Option(
        f"{LOCK}zookeeper.base_path",
        Topic.LOCK,
        TEXT,
        "The node under which the locks are.",
        "base_path",
        default="/hudi/locks",
        provider="zookeeper",
    ),
    Option(
        f"{LOCK}zookeeper.lock_key",
        Topic.LOCK,
        TEXT,
        "The lock's name under it; the table's name by default.",
        "lock_key",
        provider="zookeeper",
    ),
    Option(
        f"{LOCK}zookeeper.session_timeout_ms",
        Topic.LOCK,
        MILLISECONDS,
        "A holder that is not heard of for so long has lost the lock.",
        "lease_seconds",
        default=30.0,
        provider="zookeeper",
    ),
    Option(
        f"{LOCK}zookeeper.connection_timeout_ms",
        Topic.LOCK,
        MILLISECONDS,
        "After so long an ensemble counts as unreachable.",
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
        "A JVM's lock of this age is a dead holder's; 0 for never. Say the same on all sides.",
        "expire_seconds",
        default=0,
        provider="hudi_filesystem",
        as_arguments=lambda value: {"expire_seconds": 60.0 * value} if value else {},
    ),
    Option(
        f"{LOCK}storage.validity.timeout.secs",
        Topic.LOCK,
        SECONDS,
        "A holder that does not renew the lock for so long has lost it.",
        "lease_seconds",
        default=30.0,
        provider="storage",
    ),
    Option(
        f"{LOCK}storage.renew.interval.secs",
        Topic.LOCK,
        SECONDS,
        "Accepted without effect: a lock is renewed three times in that time.",
        alternatives=(f"{LOCK}storage.heartbeat.poll.secs",),
        provider="storage",
    ),
    Option(
        f"{LOCK}hivemetastore.uris",
        Topic.LOCK,
        SERVERS,
        "Where the metastore is; `thrift://host:port`, or several hosts with commas between them.",
        "url",
        provider="metastore",
        is_secret=True,
    ),
    Option(
        f"{LOCK}hivemetastore.database",
        Topic.LOCK,
        TEXT,
        "The database of the table that is locked there.",
        "database",
        default="default",
        provider="metastore",
    ),
    Option(
        f"{LOCK}hivemetastore.table",
        Topic.LOCK,
        TEXT,
        "The table that is locked there; the one of this name by default.",
        "table",
        provider="metastore",
    ),
    Option(
        f"{LOCK}heartbeat_interval_ms",
        Topic.LOCK,
        MILLISECONDS,
        "The pause between two signs of life to the metastore: a third of the lease.",
        "lease_seconds",
        default=10.0,
        provider="metastore",
        as_arguments=lambda value: {"lease_seconds": 3 * value},
    ),
)


_PORT = f"{LOCK}zookeeper.port"
_WAIT, _AGAIN = f"{LOCK}wait_time_ms", f"{LOCK}client.num_retries"
_PAUSE = f"{LOCK}client.wait_time_ms_between_retry"
_TOLD = ("zookeeper", "in_process")
"""Providers that do not look, but are told when the lock is free."""
_DEFAULTS = {option.key: option.default for option in LOCK_OPTIONS}


def lock_config(values: Mapping[str, Any]) -> dict[str, Any]:
    """What :func:`airflow_provider.locks.open_lock` takes, as far as the options say it.

    :param values: typed values of options, by key.
    """
    config: dict[str, Any] = {}
    for option in LOCK_OPTIONS:
        if option.key in values:
            config |= option.arguments(values[option.key])
    if "hosts" in config and _PORT in values:
        config["hosts"] = hosts_with_port(config["hosts"], values[_PORT])
    if config.get("provider") in _TOLD:
        config.pop("poll_interval_seconds", None)
    if _WAIT in values or _AGAIN in values:
        wait, again, pause = (values.get(key, _DEFAULTS[key]) for key in (_WAIT, _AGAIN, _PAUSE))
        config["timeout_seconds"] = wait * (1 + again) + pause * again
    return config


def hosts_with_port(url: str, port: int) -> str:
    """An ensemble in which every host has its port.

    :param url: hosts with commas between them, and a chroot after the last one if there is one.
    :param port: of the hosts that have none.
    """
    hosts, slash, chroot = url.partition("/")
    named = (host.strip() for host in hosts.split(","))
    return ",".join(host if ":" in host else f"{host}:{port}" for host in named) + slash + chroot
