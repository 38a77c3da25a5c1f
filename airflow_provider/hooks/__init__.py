"""Hooks: they make locks, metastores, tables and replications from Airflow connections."""

from airflow_provider.hooks.lock_provider import LockProviderHook
from airflow_provider.hooks.metastore import MetastoreHook
from airflow_provider.hooks.replication import ReplicationHook
from airflow_provider.hooks.table import TableHook

__all__ = ["LockProviderHook", "MetastoreHook", "ReplicationHook", "TableHook"]
