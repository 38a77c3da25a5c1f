"""A consistent cache: replicas that answer reads of the metastore from memory (HIVE-21637).

A replica follows the notification log and answers a read only if its copy holds every write id that the
reader sees. Begin with :mod:`~airflow_provider.metastore.cache.cached_store`.
"""

from airflow_provider.metastore.cache.cached_store import (
    CachedStore,
    CacheStatistics,
    MissReason,
    asked,
    open_cached_store,
)
from airflow_provider.metastore.cache.ordered_partitions import OrderedPartitions

__all__ = [
    "CacheStatistics",
    "CachedStore",
    "MissReason",
    "OrderedPartitions",
    "asked",
    "open_cached_store",
]
