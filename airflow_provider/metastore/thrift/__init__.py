"""Hive's wire protocol: its interface definition, and a client of any Hive Metastore.

Begin at :class:`~airflow_provider.metastore.thrift.client.ThriftMetastore`.
"""
