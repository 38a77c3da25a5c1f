"""Connections to Hive Metastore servers: failover, retries, and the translation of errors."""

from __future__ import annotations

import os
import select
import socket
import ssl
from collections import deque
from typing import Any

import tenacity
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
    MetastoreAccessError,
    MetastoreError,
    MetastoreUnavailableError,
    TableServiceError,
    UnsupportedByServerError,
)
from airflow_provider.metastore.thrift.protocol import from_hive, hive
from airflow_provider.metastore.thrift.url import Server, ThriftUrl

_BROKEN = (OSError, EOFError, TTransportException, TProtocolException)
_PLAIN = "PLAIN"

NO_AGENT = "Unknown"
"""The agent in Hive's protocol when there is none."""


class ThriftConnections:
    """Calls methods of a Hive Metastore on the first of its servers that can be reached.

    It uses the unframed binary protocol, Hive's default. Several threads may use it at once, also after a
    fork; each call has a connection of its own.

    :param url: the servers. The first reachable one is used until it fails.
    :param timeout_seconds: seconds to wait for a connection, and for each answer.
    """

    def __init__(self, url: ThriftUrl, timeout_seconds: float) -> None:
        self.url = str(url)
        self._given = url
        self._tls = url.tls_context()
        self._servers = deque(url.servers)
        self._timeout = timeout_seconds
        self._idle: deque[_Connection] = deque()
        self._process = os.getpid()

    def read(self, method: str, *arguments: Any) -> Any:
        """Call a method that reads, or whose second call changes nothing.

        When a connection breaks before the answer has come, the call goes to the next server, to each once.

        :param method: the method's name in the interface definition.
        :param arguments: the arguments by position.
        :return: the method's result; None for a method without one.
        :raises MetastoreError: the server's exception, as the error of this package that fits best.
        :raises MetastoreUnavailableError: when no server can be reached, or the answer was lost.
        """
        attempts = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(_AnswerLostError),
            stop=tenacity.stop_after_attempt(len(self._servers) + 1),
            reraise=True,
        )
        try:
            return attempts(self._call, method, *arguments)
        except _AnswerLostError as lost:
            raise self._unavailable(method, lost) from None

    def write(self, method: str, *arguments: Any) -> Any:
        """Call a method as :meth:`read` does, but never again after its answer was lost."""
        try:
            return self._call(method, *arguments)
        except _AnswerLostError as lost:
            raise self._unavailable(method, lost, "; whether it was done is not known") from None

    def close(self) -> None:
        """Close idle connections; the next call opens a new one."""
        # In a child process they are the parent's: closing them here would shut them down there.
        while self._idle and self._process == os.getpid():
            self._idle.pop().close()

    def _call(self, method: str, *arguments: Any) -> Any:
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
            raise _AnswerLostError(connection.server, _reason(error)) from None
        except TException as error:
            self._idle.append(connection)
            # Hive's exceptions have only the field `message`.
            message = str(getattr(error, "message", None) or type(error).__name__)
            raise from_hive(type(error).__name__, message) from None
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        return result

    def _take(self) -> _Connection:
        if self._process != os.getpid():
            # The parent's connections are kept, not closed; see close().
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

    def _unavailable(
        self, method: str, lost: _AnswerLostError, effect: str = ""
    ) -> MetastoreUnavailableError:
        return MetastoreUnavailableError(
            f"metastore {self.url}: no answer to {method} from {lost.server}: {lost.reason}{effect}",
            method=method,
        )

    def _refused(self, method: str, error: TApplicationException) -> TableServiceError:
        if error.type == TApplicationException.UNKNOWN_METHOD:
            return UnsupportedByServerError(
                f"metastore {self.url} has no method {method}; a Hive of version 2 has no write ids",
                method=method,
            )
        server_error = from_hive("", str(error.message))
        if type(server_error) is not MetastoreError:
            return server_error  # from a server of ours, in a method that declares no exception
        # Hive raises it, for example, after a deadlock of two calls in its database.
        kind = (
            MetastoreUnavailableError
            if error.type == TApplicationException.INTERNAL_ERROR
            else MetastoreError
        )
        return kind(f"metastore {self.url} failed in {method}: {error.message}", method=method)


class _AnswerLostError(Exception):
    """A connection broke before the answer came."""

    def __init__(self, server: Server, reason: str) -> None:
        super().__init__(server, reason)
        self.server, self.reason = server, reason


class _Connection:
    def __init__(self, server: Server, timeout: float, url: ThriftUrl, tls: ssl.SSLContext | None) -> None:
        self.server = server
        # TSocket would support IPv4 only.
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
        """The transport for requests, after the authentication."""
        plain = TSocket(sock=self._socket)
        if url.username is None:
            return TBufferedTransportFactory().get_transport(plain)
        transport = TSaslClientTransport(lambda: _SaslPlain(url), _PLAIN, plain)
        try:
            transport.open()
        except TTransportException as error:
            if error.type != TTransportException.NOT_OPEN:
                raise
            raise MetastoreAccessError(
                f"metastore {url} did not let user {url.username!r} in: it has no such user, or another "
                "password of theirs"
            ) from None
        return transport

    def call(self, method: str, *arguments: Any) -> Any:
        return getattr(self._client, method)(*arguments)

    def is_alive(self) -> bool:
        """Whether the server has not closed the connection, the only thing to read between two requests."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        self._transport.close()


class _SaslPlain:
    """The mechanism PLAIN (RFC 4616) with the methods that thriftpy2's transport calls."""

    def __init__(self, url: ThriftUrl) -> None:
        self._response = f"\0{url.username}\0{url.password}".encode()

    def start(self, mechanism: str) -> tuple[bool, str, bytes]:
        return True, mechanism, self._response

    def encode(self, data: bytes) -> tuple[bool, bytes]:
        return True, data  # PLAIN authenticates only; TLS encrypts


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
