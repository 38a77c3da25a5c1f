"""Connections to Hive Metastore servers: failover, retries, and errors in this package's words."""

from __future__ import annotations

import os
import select
import socket
from collections import deque
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from thriftpy2.protocol import TBinaryProtocolFactory
from thriftpy2.protocol.exc import TProtocolException
from thriftpy2.thrift import TApplicationException, TClient, TException
from thriftpy2.transport import TBufferedTransportFactory, TSocket, TTransportException

from airflow_provider.exceptions import (
    AlreadyExistsError,
    InvalidInputError,
    MetastoreError,
    MetastoreUnavailableError,
    NoSuchLockError,
    NoSuchObjectError,
    NoSuchTransactionError,
    TransactionAbortedError,
    TransactionOpenError,
)
from airflow_provider.metastore.thrift.idl import hive

DEFAULT_PORT = 9083

_ERRORS: dict[type[TException], type[MetastoreError]] = {
    hive.AlreadyExistsException: AlreadyExistsError,
    hive.NoSuchLockException: NoSuchLockError,
    hive.NoSuchObjectException: NoSuchObjectError,
    hive.NoSuchTxnException: NoSuchTransactionError,
    hive.TxnAbortedException: TransactionAbortedError,
    hive.TxnOpenException: TransactionOpenError,
    hive.UnknownDBException: NoSuchObjectError,
    hive.UnknownTableException: NoSuchObjectError,
}
_BROKEN = (OSError, EOFError, TTransportException, TProtocolException)


class Server(NamedTuple):
    """Where a Hive Metastore listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_thrift_url(url: str) -> tuple[Server, ...]:
    """The servers that a URL names.

    :param url: ``thrift://host:port,host2:port2``; each may have its own ``thrift://``, as in Hive's
        ``hive.metastore.uris``. The port is 9083 where none is given.
    :raises InvalidInputError: when it has another form. The message does not hold the URL.
    """
    servers = []
    for one in url.removeprefix("thrift://").split(","):
        try:
            parts = urlsplit(f"thrift://{one.strip().removeprefix('thrift://')}")
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        extra = host is None or parts.username or parts.path.strip("/") or parts.query or parts.fragment
        if extra or host is None or not url.startswith("thrift://"):
            raise InvalidInputError(
                "the metastore's Thrift URL must be thrift://host:port, or several servers of one "
                "metastore as thrift://host:port,host2:port2, without user and path"
            )
        servers.append(Server(host, port or DEFAULT_PORT))
    return tuple(servers)


class ThriftConnections:
    """Calls methods of a Hive Metastore on whichever of its servers can be reached.

    Unframed binary protocol, Hive's default. May be used from several threads at once, and after a
    fork; each call under way has a connection of its own.

    :param servers: several servers of one metastore; the first that can be reached is used until it fails.
    :param timeout_seconds: how long a connection may take to be made, and an answer to come.
    """

    def __init__(self, servers: tuple[Server, ...], timeout_seconds: float) -> None:
        self.url = f"thrift://{','.join(map(str, servers))}"
        self._servers = deque(servers)
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
                raise _ERRORS.get(type(error), MetastoreError)(f"{said} (metastore {self.url})") from None
            except BaseException:
                connection.close()
                raise
            self._idle.append(connection)
            return result

    def close(self) -> None:
        """Close idle connections; the next call opens a new one."""
        while self._idle:
            self._idle.pop().close()

    def _take(self) -> _Connection:
        if self._process != os.getpid():
            # The parent's: closing them here would shut them down there.
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
                return _Connection(server, self._timeout)
            except OSError as error:
                failures.append(f"{server}: {error.strerror or error or type(error).__name__}")
        raise MetastoreUnavailableError(
            f"metastore {self.url} cannot be reached ({'; '.join(failures)}); check that it runs and that "
            "host and port are right"
        )

    def _lost(
        self, method: str, server: Server, error: Exception, repeatable: bool
    ) -> MetastoreUnavailableError:
        effect = "" if repeatable else "; whether it was done is not known"
        return MetastoreUnavailableError(
            f"metastore {self.url}: no answer to {method} from {server}: "
            f"{str(error) or type(error).__name__}{effect}",
            method=method,
        )

    def _refused(self, method: str, error: TApplicationException) -> MetastoreError:
        if error.type == TApplicationException.UNKNOWN_METHOD:
            return MetastoreError(
                f"metastore {self.url} has no method {method}; a Hive of version 2 has no write ids",
                method=method,
            )
        # Hive says so, for example, when two of its calls met in a deadlock of its database.
        kind = (
            MetastoreUnavailableError
            if error.type == TApplicationException.INTERNAL_ERROR
            else MetastoreError
        )
        return kind(f"metastore {self.url} failed in {method}: {error.message}", method=method)


class _Connection:
    def __init__(self, server: Server, timeout: float) -> None:
        self.server = server
        # Not by TSocket, which knows IPv4 only.
        self._socket = socket.create_connection(server, timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transport = TBufferedTransportFactory().get_transport(TSocket(sock=self._socket))
        protocol = TBinaryProtocolFactory().get_protocol(self._transport)
        self._client = TClient(hive.ThriftHiveMetastore, protocol)

    def call(self, method: str, *arguments: Any) -> Any:
        return getattr(self._client, method)(*arguments)

    def is_alive(self) -> bool:
        """Whether the server has not closed it; nothing else can be there to be read."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        self._transport.close()
