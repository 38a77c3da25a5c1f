"""Sensors: what a DAG waits for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider.sensors.index_ready import IndexReadySensor
    from airflow_provider.sensors.notification_log import NotificationLogCatchupSensor
    from airflow_provider.sensors.prior_commits import PriorCommitsFenceSensor

__all__ = ["IndexReadySensor", "NotificationLogCatchupSensor", "PriorCommitsFenceSensor"]

_MODULES = {
    "IndexReadySensor": "index_ready",
    "NotificationLogCatchupSensor": "notification_log",
    "PriorCommitsFenceSensor": "prior_commits",
}


def __getattr__(name: str) -> Any:
    # PEP 562: DAG parsing pays for what a DAG names and for nothing else.
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
