"""The base of all parts of the client: connections, and a reader of tables."""

from __future__ import annotations

import weakref

from airflow_provider.metastore.thrift.client.connections import ThriftConnections
from airflow_provider.metastore.thrift.client.table_reader import TableReader
from airflow_provider.metastore.thrift.url import parse_thrift_url


class ThriftClient:
    """A client of a metastore server. The classes derived from this one have the methods.

    Methods may be called from any thread and after a fork. All of them raise
    :class:`~airflow_provider.exceptions.MetastoreUnavailableError` when no server can be reached. The client
    never sends a request twice that must not be done twice; then the error says that its answer was lost.

    :param url: see :func:`~airflow_provider.metastore.thrift.url.parse_thrift_url`.
    :param timeout_seconds: seconds to wait for a connection, and for each answer.
    :raises InvalidInputError: when the URL has another form, or a file that it names cannot be used.
    """

    def __init__(self, url: str, *, timeout_seconds: float = 30.0) -> None:
        self._server = ThriftConnections(parse_thrift_url(url), timeout_seconds)
        self._tables = TableReader(self._server)
        weakref.finalize(self, self._server.close)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @property
    def url(self) -> str:
        """The servers, with ``***`` for a password."""
        return self._server.url

    def close(self) -> None:
        """Close idle connections; the next call opens a new one."""
        self._server.close()
