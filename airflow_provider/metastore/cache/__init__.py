"""TODO"""

from airflow_provider.metastore.cache.cached_store import (
    CachedStore,
    CacheStatistics,
    MissReason,
    asked,
    open_cached_store,
)

__all__ = ["CacheStatistics", "CachedStore", "MissReason", "asked", "open_cached_store"]
