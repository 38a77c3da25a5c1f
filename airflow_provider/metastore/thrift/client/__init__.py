"""A metastore behind a Thrift server, ours or Hive's own.

Its methods are those of :class:`~airflow_provider.metastore.api.Metastore`. Begin with
:mod:`~airflow_provider.metastore.thrift.client.client`.
"""

from airflow_provider.metastore.thrift.client.client import ThriftMetastore
from airflow_provider.metastore.thrift.client.lock_client import LockClient

__all__ = ["LockClient", "ThriftMetastore"]
