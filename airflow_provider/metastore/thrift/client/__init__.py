"""TODO"""

from airflow_provider.metastore.thrift.client.client import ThriftMetastore
from airflow_provider.metastore.thrift.client.lock_client import LockClient

__all__ = ["LockClient", "ThriftMetastore"]
