"""A metastore behind a Thrift server.

It has the methods of :class:`~airflow_provider.metastore.api.Metastore`. The server may be ours or Hive's own. Begin with :mod:`~airflow_provider.metastore.thrift.client.client`.
"""

from airflow_provider.metastore.thrift.client.client import ThriftMetastore
from airflow_provider.metastore.thrift.client.lock_client import LockClient

__all__ = ["LockClient", "ThriftMetastore"]
