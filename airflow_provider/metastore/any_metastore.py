"""Opens a metastore, by its database or by a server."""

from __future__ import annotations

from airflow_provider.metastore.api import open_embedded_metastore
from airflow_provider.metastore.interface import AnyMetastore
from airflow_provider.metastore.thrift.url import is_thrift_url


def open_metastore(url: str, *, timeout_seconds: float = 30.0, must_exist: bool = False) -> AnyMetastore:
    """Open a metastore, by its database or by a server.

    :param url: a SQLAlchemy URL as for :func:`open_embedded_metastore`, or
        ``thrift://host:port[,host2:port2]`` of servers of one Hive Metastore, ours or another; see
        :func:`~airflow_provider.metastore.thrift.url.parse_thrift_url`. A client connects at its first
        call.
    :param timeout_seconds: seconds that a call may wait for other processes, or for a server's answer.
    :param must_exist: True for a caller that only reads; see :func:`open_embedded_metastore`.
    :raises InvalidInputError: when the URL cannot be one of a metastore.
    :raises NoSuchObjectError: when the database must exist, and does not.
    :raises MetastoreUnavailableError: when the database cannot be reached.
    :raises MetastoreError: when the schema is of a newer release.
    """
    if not is_thrift_url(url):
        return open_embedded_metastore(url, timeout_seconds=timeout_seconds, must_exist=must_exist)
    # Imported here: a process that asks no server does not pay for the import.
    from airflow_provider.metastore.thrift.client.client import ThriftMetastore

    return ThriftMetastore(url, timeout_seconds=timeout_seconds)
