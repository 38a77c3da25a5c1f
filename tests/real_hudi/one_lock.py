"""A lock in ZooKeeper that this package and the JVM's Hudi share."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider.locks import open_lock
from airflow_provider.table import HudiTable

# Tests make the heartbeat of a writer that stands still old. A slow machine must not: the JVM would abort.
SECONDS_OF_A_HEARTBEAT = 10
MISSES = 10


@dataclass(frozen=True)
class OneLock:
    """Settings of both sides, with heartbeats that no slow machine lets expire.

    :param hosts: ZooKeeper's hosts.
    :param key: the lock's name.
    """

    hosts: str
    key: str
    ours: Mapping[str, Any] = field(init=False)
    """The lock of this package, for :func:`open_lock`."""
    theirs: Mapping[str, str] = field(init=False)
    """Options of every write of the JVM."""

    def __post_init__(self) -> None:
        ours = {"provider": "zookeeper", "hosts": self.hosts, "base_path": "/hudi", "lock_key": self.key}
        provider = "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider"
        theirs = {
            "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
            "hoodie.clean.failed.writes.policy": "LAZY",
            "hoodie.client.heartbeat.interval_in_ms": str(1000 * SECONDS_OF_A_HEARTBEAT),
            "hoodie.client.heartbeat.tolerable.misses": str(MISSES),
            "hoodie.write.lock.provider": provider,
            "hoodie.write.lock.zookeeper.url": self.hosts,
            "hoodie.write.lock.zookeeper.port": self.hosts.rpartition(":")[2],
            "hoodie.write.lock.zookeeper.base_path": "/hudi",
            "hoodie.write.lock.zookeeper.lock_key": self.key,
        }
        for name, value in (("ours", ours), ("theirs", theirs)):
            object.__setattr__(self, name, value)

    def wait_until_nobody_holds_it(self, table: HudiTable) -> None:
        """Wait until the lock is free: the session of a paused or dead holder runs out."""
        observer = open_lock(self.ours, table.storage)
        while observer.holder() is not None:
            time.sleep(0.05)


def let_heartbeats_expire(location: str) -> None:
    """Make every heartbeat in the table an hour old."""
    folder = f"{location}/.hoodie/.heartbeat"
    for entry in os.scandir(folder):
        os.utime(entry.path, (entry.stat().st_atime, entry.stat().st_mtime - 3600))
