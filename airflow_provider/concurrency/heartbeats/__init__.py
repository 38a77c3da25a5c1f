"""Heartbeats: which writer is alive, by the storage's clock.

A heartbeat file also makes a requested time unique, because only one writer can create it. It decides when
somebody tries to roll a writer back, and never whether the writer is dead: an entry of the log decides that.
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
