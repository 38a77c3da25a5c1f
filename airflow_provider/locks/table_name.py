"""The name by which JVM Hudi locks a table."""

from __future__ import annotations

from airflow_provider.table.properties import parse_properties
from airflow_provider.table.storage import Storage


def table_name(storage: Storage) -> str | None:
    """The table's ``hoodie.table.name``; None when the storage has no table.

    :param storage: the table's storage.
    """
    try:
        properties = parse_properties(storage.read(".hoodie/hoodie.properties").decode())
    except FileNotFoundError:
        return None
    return properties.get("hoodie.table.name")
