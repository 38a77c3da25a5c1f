"""Heartbeats: which writer is alive, by the storage's clock.

A heartbeat file also makes a requested time unique, because only one writer can create it. A heartbeat
decides when another process tries to roll a writer back. An entry of the log decides whether it is dead.
"""

from airflow_provider.concurrency.heartbeats.heartbeat import (
    Heartbeat,
    HeartbeatInfo,
    check_wanted,
    heartbeat_path,
    observe,
    observe_above,
    progress_of,
)
from airflow_provider.concurrency.heartbeats.settings import HeartbeatSettings

__all__ = [
    "Heartbeat",
    "HeartbeatInfo",
    "HeartbeatSettings",
    "check_wanted",
    "heartbeat_path",
    "observe",
    "observe_above",
    "progress_of",
]
