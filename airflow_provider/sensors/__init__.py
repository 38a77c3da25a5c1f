"""Sensors: what a DAG waits for."""

from airflow_provider.sensors.index_ready import IndexReadySensor
from airflow_provider.sensors.notification_log import NotificationLogCatchupSensor
from airflow_provider.sensors.prior_commits import PriorCommitsFenceSensor

__all__ = ["IndexReadySensor", "NotificationLogCatchupSensor", "PriorCommitsFenceSensor"]
