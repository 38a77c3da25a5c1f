"""Triggers: sensors and loads wait in the triggerer, and events of the notification log start DAGs."""

from airflow_provider.triggers.index_ready import IndexReadyTrigger
from airflow_provider.triggers.notification_event import NotificationLogEventTrigger
from airflow_provider.triggers.notification_log import NotificationLogCatchupTrigger
from airflow_provider.triggers.prior_commits import PriorCommitsFenceTrigger
from airflow_provider.triggers.replication import NewEventsTrigger, ReplicationLagTrigger
from airflow_provider.triggers.spark_job import SparkJobTrigger
from airflow_provider.triggers.table_turn import TableTurnTrigger

__all__ = [
    "IndexReadyTrigger",
    "NewEventsTrigger",
    "NotificationLogCatchupTrigger",
    "NotificationLogEventTrigger",
    "PriorCommitsFenceTrigger",
    "ReplicationLagTrigger",
    "SparkJobTrigger",
    "TableTurnTrigger",
]
