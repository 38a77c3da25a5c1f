"""Airflow's assets that stand for tables: ``hudi://lake/flights``.

Begin with :mod:`airflow_provider.assets.hudi`. Operators that write rows have the table's asset among their
outlets, and Airflow reads the URI's rules from here (``asset-uris`` of the provider).
"""

from airflow_provider.assets.hudi import table_asset

__all__ = ["table_asset"]
