"""Hive's locks on databases, tables and partitions: functions of one database connection.

:mod:`~airflow_provider.metastore.locks.lock_group` does the same for several threads in one transaction.
"""

from airflow_provider.metastore.locks.lock_group import LOCKS, Lock, Unlock

__all__ = ["LOCKS", "Lock", "Unlock"]
