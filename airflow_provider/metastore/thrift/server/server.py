"""A server of Hive's wire protocol on a port, with a thread for each connection."""

from __future__ import annotations

import contextlib
import logging
import socket
import socketserver
import ssl
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import tenacity
from thriftpy2.protocol import TBinaryProtocolFactory
from thriftpy2.protocol.exc import TProtocolException
from thriftpy2.transport import TBufferedTransportFactory, TTransportException

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.metastore.thrift.server.limits import (
    LimitedProtocol,
    LimitedSocket,
    RequestLimitError,
    ServerLimits,
)
from airflow_provider.metastore.thrift.server.processor import MetastoreProcessor

log = logging.getLogger(__name__)

Authenticate = Callable[[Any], Any]
"""Takes a connection's ``TSocket`` before the first request, and returns the transport for the requests. It
raises ``TTransportException`` to refuse the client. An installation's Kerberos goes here."""

_BROKEN = (OSError, EOFError, TTransportException, TProtocolException)
_HANDSHAKE_SECONDS = 10.0
_DRAIN_SECONDS = 2.0
# The server detects after about two minutes that a client's machine is gone, whether it reads or writes.
_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 120_000}
# The layout of C's struct timeval.
_TIMEVAL = struct.Struct("@ll")


class MetastoreServer(socketserver.ThreadingTCPServer):
    """Serves the unframed binary protocol, Hive's default. Several processes may listen on one port.

    :param processor: answers the requests.
    :param host: the address to listen on.
    :param port: the port, 0 for any that is free.
    :param tls: the context of TLS; None for no TLS.
    :param authenticate: see :data:`Authenticate`.
    :param limits: the limits of requests and connections.
    :param shares_port: whether other processes of the same service listen on the port, too.
    :raises InvalidInputError: when the server cannot listen on the address or the port.
    """

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(
        self,
        processor: MetastoreProcessor,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        authenticate: Authenticate | None = None,
        limits: ServerLimits | None = None,
        shares_port: bool = False,
    ) -> None:
        # With SO_REUSEPORT on a single process, a service of another database could take half of its clients.
        self.allow_reuse_port = shares_port
        self._limits = limits or ServerLimits()
        self._processor = processor
        self._tls = tls
        self._authenticate = authenticate
        self._open: dict[socket.socket, threading.Thread] = {}
        self._lock = threading.Lock()
        self._connections = 0
        try:
            self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            super().__init__((host, port), _Connection)
        except OSError as error:
            raise InvalidInputError(
                f"cannot listen on {host}:{port}: {error.strerror}; give another --host or --port"
            ) from error

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start the thread of a new connection, or close it when there are too many."""
        with self._lock:
            is_refused = self._connections >= self._limits.connections
            self._connections += not is_refused
        if is_refused:
            log.warning(
                "a connection was refused: there are %d, and --max-connections allows no more",
                self._limits.connections,
            )
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._is_closed()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection in its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._is_closed()

    def _is_closed(self) -> None:
        with self._lock:
            self._connections -= 1

    def serve_connection(self, connection: socket.socket) -> None:
        """Answer all requests of one connection."""
        with self._lock:
            self._open[connection] = threading.current_thread()
        try:
            self._answer(connection)
        except _BROKEN as error:
            if getattr(error, "type", None) != TTransportException.END_OF_FILE:
                log.info("a connection broke: %s", getattr(error, "message", None) or error)
        finally:
            with self._lock:
                del self._open[connection]

    def stop(self, grace_seconds: float = 10.0) -> None:
        """Accept no more connections, let running requests end, and close all connections.

        :param grace_seconds: seconds to wait for the end of running requests.
        """
        self.shutdown()
        self.server_close()
        with self._lock:
            under_way = dict(self._open)
        for connection in under_way:
            # A thread that waits for a request reads the end; a thread with a request may still answer.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RD)
        until = time.monotonic() + grace_seconds
        for thread in under_way.values():
            thread.join(max(0.0, until - time.monotonic()))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error of this module, which ends one connection, not the server."""
        log.exception("a connection from %s failed", client_address[0])

    def _begun(self, connection: socket.socket) -> LimitedProtocol:
        """The connection's protocol, after TLS and authentication."""
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _find_dead_clients(connection)
        connection.settimeout(_HANDSHAKE_SECONDS)
        if self._tls is not None:
            # A copy, because stop() ends the plain socket.
            connection = self._tls.wrap_socket(connection.dup(), server_side=True)
        begin = self._authenticate or TBufferedTransportFactory().get_transport
        limited = LimitedSocket(connection, self._limits)
        transport = begin(limited)
        connection.settimeout(None)
        # Not settimeout, which would also let a write wait, while answers of other threads must not wait.
        connection.setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEVAL.pack(self._limits.idle_seconds, 0)
        )
        return LimitedProtocol(transport, limited, self._limits)

    def _answer(self, connection: socket.socket) -> None:
        protocol = self._begun(connection)
        # Only a plain socket may be read and written by two threads at the same time.
        is_plain = self._tls is None and self._authenticate is None
        later = _Later(connection) if is_plain else None
        try:
            while True:
                self._processor.process(protocol, protocol, later)
        except RequestLimitError as error:
            if later is not None:
                later.begin()
                later.end()
            if protocol.header is not None:
                self._processor.refuse(protocol, *protocol.header, error.message)
                _drain(connection)
            raise
        finally:
            if later is not None:
                later.wait()
            protocol.trans.close()


def _find_dead_clients(connection: socket.socket) -> None:
    """Let the operating system probe silent clients, and close connections that do not acknowledge."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        # Not every system has all these options.
        if (option := getattr(socket, name, None)) is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


def wait_for_free_port(host: str, port: int, seconds: float) -> None:
    """Wait until no process listens on a port, such as a process of a service that was just killed.

    :raises InvalidInputError: when a process still listens after so many seconds, or this process cannot
        listen on the host.
    """
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    attempts = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(OSError),
        stop=tenacity.stop_after_delay(seconds),
        wait=tenacity.wait_fixed(0.1),
        reraise=True,
    )

    def bind() -> None:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)

    try:
        attempts(bind)
    except OSError as error:
        raise InvalidInputError(
            f"cannot listen on {host}:{port}: {error.strerror}; give another --host or --port"
        ) from error


def _drain(connection: socket.socket) -> None:
    """Read the rest of a refused request, because a client that is still sending would not see the answer."""
    until = time.monotonic() + _DRAIN_SECONDS
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(_DRAIN_SECONDS)
        while time.monotonic() < until and connection.recv(65_536):
            pass


class _Later:
    """The answers of one connection that other threads write."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._turn = threading.Lock()
        self._is_hung_up = False
        self.protocol = _protocol(TBufferedTransportFactory().get_transport(_WaitsForNobody(connection)))

    def begin(self) -> None:
        self.wait()
        if self._is_hung_up:  # earlier requests can still be read, but not answered
            self.end()
            raise TTransportException(TTransportException.END_OF_FILE, "the connection was hung up")

    def wait(self) -> None:
        """Wait until the last request is answered."""
        self._turn.acquire()

    def end(self) -> None:
        self._turn.release()

    def hang_up(self, error: Exception) -> None:
        """End the connection, so that its thread, which reads, sees the end."""
        if isinstance(error, _BROKEN):
            log.info("a connection broke: %s", getattr(error, "message", None) or error)
        else:
            log.error("an answer could not be written", exc_info=error)
        self._is_hung_up = True
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)


class _WaitsForNobody:
    """Writes to a socket without waiting, so that a client that reads no answers does not delay others."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def write(self, data: bytes) -> None:
        if self._connection.send(data, socket.MSG_DONTWAIT) < len(data):
            raise TTransportException(message="a client does not read its answers")

    def flush(self) -> None:
        """Do nothing: each write is complete already."""


def _protocol(transport: Any) -> Any:
    return TBinaryProtocolFactory().get_protocol(transport)


class _Connection(socketserver.BaseRequestHandler):
    server: MetastoreServer

    def handle(self) -> None:
        self.server.serve_connection(self.request)
