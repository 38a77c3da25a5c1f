"""Connections to Hive Metastore servers: failover, retries, and errors in this package's words."""

from __future__ import annotations

import os
import select
import socket
import ssl
import weakref
from collections import deque
from typing import Any

from thriftpy2.protocol import TBinaryProtocolFactory
from thriftpy2.protocol.exc import TProtocolException
from thriftpy2.thrift import TApplicationException, TClient, TException
from thriftpy2.transport import (
    TBufferedTransportFactory,
    TSaslClientTransport,
    TSocket,
    TTransportException,
)

from airflow_provider.exceptions import (
    MetastoreError,
    MetastoreUnavailableError,
    TableServiceError,
    UnsupportedByServerError,
)
from airflow_provider.metastore.thrift.protocol import from_hive, hive
from airflow_provider.metastore.thrift.url import Server, ThriftUrl, parse_thrift_url

_BROKEN = (OSError, EOFError, TTransportException, TProtocolException)
_PLAIN = "PLAIN"

NO_AGENT = "Unknown"
"""What Hive's protocol says where no agent is known."""


class ThriftClient:
    """A metastore by its wire protocol; what it can be asked is in the classes derived from this one.

    Methods may be called from any thread and after a fork. All of them raise
    :class:`~airflow_provider.exceptions.MetastoreUnavailableError` when no server can be reached; one that
    must not be done twice is not sent twice, and the error says when its answer got lost.

    :param url: see :func:`~airflow_provider.metastore.thrift.url.parse_thrift_url`.
    :param timeout_seconds: how long a connection may take to be made, and an answer to come.
    :raises InvalidInputError: when the URL has another form, or a file that it names cannot be used.
    """

    def __init__(self, url: str, *, timeout_seconds: float = 30.0) -> None:
        self._servers = ThriftConnections(parse_thrift_url(url), timeout_seconds)
        weakref.finalize(self, self._servers.close)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @property
    def url(self) -> str:
        """The servers, with ``***`` for a password."""
        return self._servers.url

    def close(self) -> None:
        """Close idle connections; the next call opens a new one."""
        self._servers.close()

    def _read(self, method: str, *arguments: Any) -> Any:
        """Call a method that has no effect, or the same effect once as twice."""
        return self._servers.call(method, *arguments, repeatable=True)

    def _write(self, method: str, *arguments: Any) -> Any:
        """Call a method that must not be called again when its answer got lost."""
        return self._servers.call(method, *arguments, repeatable=False)


class ThriftConnections:
    """Calls methods of a Hive Metastore on whichever of its servers can be reached.

    Unframed binary protocol, Hive's default. May be used from several threads at once, and after a
    fork; each call under way has a connection of its own.

    :param url: the servers; the first that can be reached is used until it fails.
    :param timeout_seconds: how long a connection may take to be made, and an answer to come.
    """

    def __init__(self, url: ThriftUrl, timeout_seconds: float) -> None:
        self.url = str(url)
        self._given = url
        self._tls = url.tls_context()
        self._servers = deque(url.servers)
        self._timeout = timeout_seconds
        self._idle: deque[_Connection] = deque()
        self._process = os.getpid()

    def call(self, method: str, *arguments: Any, repeatable: bool) -> Any:
        """Call a method.

        :param method: its name in the interface definition.
        :param arguments: by position.
        :param repeatable: whether it may be called again, on the next server, when a connection broke
            before its answer came: it must have no effect, or the same effect once as twice.
        :return: what it returns; None for a method without result.
        :raises MetastoreError: what the server says, as one of this package's errors where there is one.
        :raises MetastoreUnavailableError: when no server can be reached, or the answer got lost.
        """
        tries = len(self._servers) + 1 if repeatable else 1
        while True:
            tries -= 1
            connection = self._take()
            try:
                result = connection.call(method, *arguments)
            except TApplicationException as error:
                self._idle.append(connection)
                raise self._refused(method, error) from None
            except _BROKEN as error:
                connection.close()
                if self._servers[0] == connection.server:
                    self._servers.rotate(-1)
                if tries:
                    continue
                raise self._lost(method, connection.server, error, repeatable) from None
            except TException as error:
                self._idle.append(connection)
                # `message` is all that Hive's exceptions have.
                said = str(getattr(error, "message", None) or type(error).__name__)
                raise from_hive(type(error).__name__, said) from None
            except BaseException:
                connection.close()
                raise
            self._idle.append(connection)
            return result

    def close(self) -> None:
        """Close idle connections; the next call opens a new one."""
        # In a child they are the parent's: closing them here would shut them down there.
        while self._idle and self._process == os.getpid():
            self._idle.pop().close()

    def _take(self) -> _Connection:
        if self._process != os.getpid():
            # Kept, not closed; see close().
            self._parents, self._idle, self._process = self._idle, deque(), os.getpid()
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return self._connect()
            if connection.is_alive():
                return connection
            connection.close()

    def _connect(self) -> _Connection:
        failures = []
        for server in list(self._servers):
            try:
                return _Connection(server, self._timeout, self._given, self._tls)
            except _BROKEN as error:
                failures.append(f"{server}: {_reason(error)}")
        raise MetastoreUnavailableError(
            f"metastore {self.url} cannot be reached ({'; '.join(failures)}); check that it runs and that "
            "host and port are right"
        )

    def _lost(
        self, method: str, server: Server, error: Exception, repeatable: bool
    ) -> MetastoreUnavailableError:
        effect = "" if repeatable else "; whether it was done is not known"
        return MetastoreUnavailableError(
            f"metastore {self.url}: no answer to {method} from {server}: {_reason(error)}{effect}",
            method=method,
        )

    def _refused(self, method: str, error: TApplicationException) -> TableServiceError:
        if error.type == TApplicationException.UNKNOWN_METHOD:
            return UnsupportedByServerError(
                f"metastore {self.url} has no method {method}; a Hive of version 2 has no write ids",
                method=method,
            )
        said = from_hive("", str(error.message))
        if type(said) is not MetastoreError:
            return said  # a server of ours, in a method that declares no exception
        # Hive says so, for example, when two of its calls met in a deadlock of its database.
        kind = (
            MetastoreUnavailableError
            if error.type == TApplicationException.INTERNAL_ERROR
            else MetastoreError
        )
        return kind(f"metastore {self.url} failed in {method}: {error.message}", method=method)


class _Connection:
    def __init__(self, server: Server, timeout: float, url: ThriftUrl, tls: ssl.SSLContext | None) -> None:
        self.server = server
        # Not by TSocket, which knows IPv4 only.
        self._socket = socket.create_connection(server, timeout)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                self._socket = tls.wrap_socket(self._socket, server_hostname=server.host)
            self._transport = self._begun(url)
        except BaseException:
            self._socket.close()
            raise
        protocol = TBinaryProtocolFactory().get_protocol(self._transport)
        self._client = TClient(hive.ThriftHiveMetastore, protocol)

    def _begun(self, url: ThriftUrl) -> Any:
        """The transport to go on with, after the password."""
        plain = TSocket(sock=self._socket)
        if url.username is None:
            return TBufferedTransportFactory().get_transport(plain)
        transport = TSaslClientTransport(lambda: _SaslPlain(url), _PLAIN, plain)
        try:
            transport.open()
        except TTransportException as error:
            if error.type != TTransportException.NOT_OPEN:
                raise
            raise MetastoreError(
                f"metastore {url} did not let user {url.username!r} in: it has no such user, or another "
                "password of theirs"
            ) from None
        return transport

    def call(self, method: str, *arguments: Any) -> Any:
        return getattr(self._client, method)(*arguments)

    def is_alive(self) -> bool:
        """Whether the server has not closed it; nothing else can be there to be read."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        self._transport.close()


class _SaslPlain:
    """The mechanism PLAIN (RFC 4616) by the names that thriftpy2's transport asks for."""

    def __init__(self, url: ThriftUrl) -> None:
        self._response = f"\0{url.username}\0{url.password}".encode()

    def start(self, mechanism: str) -> tuple[bool, str, bytes]:
        return True, mechanism, self._response

    def encode(self, data: bytes) -> tuple[bool, bytes]:
        return True, data  # authenticated, not encrypted: that is what TLS is for


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
