"""A Hive Metastore server: Thrift calls answered by a :class:`~airflow_provider.metastore.api.Metastore`.

Each handler answers one group of calls. Begin with :mod:`~airflow_provider.metastore.thrift.server.serve`.
"""
