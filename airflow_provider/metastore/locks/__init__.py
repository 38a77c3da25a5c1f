"""TODO"""

from airflow_provider.metastore.locks.lock_group import LOCKS, Lock, Unlock

__all__ = ["LOCKS", "Lock", "Unlock"]
