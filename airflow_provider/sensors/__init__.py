"""Sensors: tasks that wait for writes, indexes, consumers of the notification log, or a replication."""

from airflow_provider.sensors.index_ready import IndexReadySensor
from airflow_provider.sensors.notification_log import NotificationLogCatchupSensor
from airflow_provider.sensors.prior_commits import PriorCommitsFenceSensor
from airflow_provider.sensors.replication import ReplicationLagSensor

__all__ = [
    "IndexReadySensor",
    "NotificationLogCatchupSensor",
    "PriorCommitsFenceSensor",
    "ReplicationLagSensor",
]
