"""Triggers: the sensors' waiting, in the triggerer, and what starts DAGs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider.triggers.index_ready import IndexReadyTrigger
    from airflow_provider.triggers.notification_event import NotificationLogEventTrigger
    from airflow_provider.triggers.notification_log import NotificationLogCatchupTrigger
    from airflow_provider.triggers.prior_commits import PriorCommitsFenceTrigger

__all__ = [
    "IndexReadyTrigger",
    "NotificationLogCatchupTrigger",
    "NotificationLogEventTrigger",
    "PriorCommitsFenceTrigger",
]

_MODULES = {
    "IndexReadyTrigger": "index_ready",
    "NotificationLogCatchupTrigger": "notification_log",
    "NotificationLogEventTrigger": "notification_event",
    "PriorCommitsFenceTrigger": "prior_commits",
}


def __getattr__(name: str) -> Any:
    # PEP 562: DAG parsing pays for what a DAG names and for nothing else.
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
