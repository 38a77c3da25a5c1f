"""A contender's session with ZooKeeper: servers, TLS, authentication and ACL."""

from __future__ import annotations

import importlib.util
import logging
import threading
from collections.abc import MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.hosts import collect_hosts
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from airflow_provider.locks.contender import invalid_option, missing_library

log = logging.getLogger(__name__)

_PROVIDER = "zookeeper"
_CHOICES = {
    "authentication": ("none", "digest", "sasl"),
    "acl": ("open", "creator"),
    "tls": ("off", "on", "unverified"),
}


REFUSED = "it refuses the username or the password"


class ZookeeperUnreachableError(Exception):
    """No session can be opened; the text has the reason, without any secret."""


@dataclass(frozen=True)
class ZookeeperSettings:
    """The settings of a ZooKeeper ensemble.

    :param hosts: ``host:port,host:port``, with a chroot after the last one if there is one.
    :param session_timeout: seconds; the servers may raise or lower it to the range that they allow.
    :param connection_timeout: seconds after which an ensemble counts as unreachable.
    :param authentication: ``none``; ``digest``, ZooKeeper's own scheme; ``sasl``, DIGEST-MD5.
    :param acl: ``open``: every client may change the nodes, which is Curator's default; or ``creator``.
    :param tls: ``off``; ``on``, with the servers' certificates and host names verified; ``unverified``.
    :param tls_ca: PEM file of the authorities; the system's when None.
    :param tls_certificate: PEM file of the client's certificate, where servers ask for one.
    :param tls_key: PEM file of its key.
    :param tls_key_password: the key's password.
    :raises InvalidConnectionError: when an option is missing, is not known, or contradicts another one.
    """

    hosts: str
    session_timeout: float
    connection_timeout: float
    authentication: str = "none"
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    acl: str = "open"
    tls: str = "off"
    tls_ca: str | None = None
    tls_certificate: str | None = None
    tls_key: str | None = None
    tls_key_password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        try:
            servers, _ = collect_hosts(self.hosts)
        except ValueError:
            servers = []
        if not self.hosts or not all(host for host, _ in servers) or not servers:
            raise invalid_option(
                _PROVIDER, "hosts", f"must be host:port[,host:port...][/chroot], not {self.hosts!r}"
            )
        for option, known in _CHOICES.items():
            if getattr(self, option) not in known:
                raise invalid_option(
                    _PROVIDER, option, f"{getattr(self, option)!r} is not known; known: {', '.join(known)}"
                )
        if self.authentication != "none" and not (self.username and self.password):
            raise invalid_option(
                _PROVIDER, "authentication", f"{self.authentication!r} needs username and password"
            )
        if self.authentication == "none" and self.acl == "creator":
            raise invalid_option(_PROVIDER, "acl", "'creator' needs authentication 'digest' or 'sasl'")
        if self.authentication == "sasl" and importlib.util.find_spec("puresasl") is None:
            raise missing_library("zookeeper", "puresasl", "zookeeper-sasl")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise invalid_option(_PROVIDER, "tls_certificate", "goes together with 'tls_key'")
        for option in ("tls_ca", "tls_certificate", "tls_key"):
            path = getattr(self, option)
            if path is not None and self.tls == "off":
                raise invalid_option(_PROVIDER, option, "needs 'tls', which is 'off'")
            if path is not None and not Path(path).is_file():
                raise invalid_option(_PROVIDER, option, f"names a file that is not there: {path}")


def open_session(settings: ZookeeperSettings, limit: float) -> KazooClient:
    """Open a new session.

    A server that refuses connections, or accepts them and is silent, uses up its share of the connection
    timeout, and never more than half of it. A server that is starting accepts connections that it never
    answers; kazoo alone would wait for such a server until the session expires.

    :param limit: seconds to wait at most, and never longer than the connection timeout.
    :raises ZookeeperUnreachableError: when no session is open after that time.
    """
    handler = _Handler(settings.connection_timeout / max(2, len(collect_hosts(settings.hosts)[0])))
    reasons = _Reasons(log, {})
    is_digest, is_sasl = settings.authentication == "digest", settings.authentication == "sasl"
    client = KazooClient(
        hosts=settings.hosts,
        timeout=settings.session_timeout,
        handler=handler,
        # After so long without a server the session has expired, and calls must fail instead of waiting.
        connection_retry=KazooRetry(
            max_tries=-1,
            delay=0.05,
            max_delay=1.0,
            deadline=settings.session_timeout,
            sleep_func=handler.sleep_func,
        ),
        default_acl=CREATOR_ALL_ACL if settings.acl == "creator" else OPEN_ACL_UNSAFE,
        auth_data=[("digest", f"{settings.username}:{settings.password}")] if is_digest else None,
        sasl_options={
            "mechanism": "DIGEST-MD5",
            "username": settings.username,
            "password": settings.password,
        }
        if is_sasl
        else None,
        use_ssl=settings.tls != "off",
        verify_certs=settings.tls == "on",
        check_hostname=settings.tls == "on",
        ca=settings.tls_ca,
        certfile=settings.tls_certificate,
        keyfile=settings.tls_key,
        keyfile_password=settings.tls_key_password,
        logger=reasons,
    )
    client.start_async().wait(min(limit, settings.connection_timeout))
    if not client.connected:
        why = REFUSED if was_refused(client) else reasons.last or "no answer"
        close_session(client)
        raise ZookeeperUnreachableError(f"ZooKeeper at {settings.hosts} cannot be reached: {why}")
    return client


def was_refused(client: KazooClient) -> bool:
    """Whether a session ended because the servers refused its authentication."""
    # The state soon changes to CLOSED; then only the log has the reason.
    return client.client_state == KeeperState.AUTH_FAILED or "AUTH_FAILED" in (client.logger.last or "")


def close_session(client: KazooClient) -> None:
    """End a session and its nodes, in the background, because the servers may not answer."""

    def close() -> None:
        with suppress(KazooException, OSError):
            client.stop()
            client.close()

    threading.Thread(target=close, name="zookeeper-close", daemon=True).start()


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Kazoo's handler, with a limit for each server, so that one silent server leaves time for the others."""

    def __init__(self, timeout: float) -> None:
        super().__init__()
        self._timeout = timeout

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        kwargs["timeout"] = min(kwargs["timeout"], self._timeout)
        return super().create_connection(*args, **kwargs)

    def select(self, reads: list[Any], writes: list[Any], errors: list[Any], timeout: float) -> Any:
        # Kazoo watches two sockets only while it waits for no answer. Then the session's pings find a silent
        # server.
        timeout = min(timeout, self._timeout) if len(reads) < 2 else timeout
        return super().select(reads, writes, errors, timeout)


class _Reasons(logging.LoggerAdapter[logging.Logger]):
    """Remembers kazoo's last warning, the only place where kazoo says why it cannot connect."""

    last: str | None = None

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if level >= logging.WARNING:
            self.last = str(msg) % args if args else str(msg)
            level = logging.INFO  # the raised error has the reason; the log has it as a detail
        super().log(level, msg, *args, **kwargs)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, kwargs
