"""Hooks: what an Airflow connection says, turned into locks, metastores and tables."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider.hooks.lock_provider import LockProviderHook
    from airflow_provider.hooks.metastore import MetastoreHook
    from airflow_provider.hooks.table import TableHook

__all__ = ["LockProviderHook", "MetastoreHook", "TableHook"]

_MODULES = {"LockProviderHook": "lock_provider", "MetastoreHook": "metastore", "TableHook": "table"}


def __getattr__(name: str) -> Any:
    # PEP 562: DAG parsing pays for what a DAG names and for nothing else.
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
