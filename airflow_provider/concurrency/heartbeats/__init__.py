"""Heartbeats: which writer is alive, by the storage's clock."""

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
