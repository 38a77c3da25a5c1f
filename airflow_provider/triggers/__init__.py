"""Triggers: the sensors' waiting, in the triggerer, and what starts DAGs."""

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
