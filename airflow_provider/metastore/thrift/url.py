"""The URL by which a client reaches the servers of a metastore."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from airflow_provider.exceptions import InvalidInputError

DEFAULT_PORT = 9083
SCHEME = "thrift://"

_FORM = (
    "the metastore's Thrift URL must be thrift://host:port, or several servers of one metastore as "
    "thrift://host:port,host2:port2, with user:password@ before them where the metastore asks for a "
    "password, and options after them as ?tls=on&tls_ca=/file.pem&tls_certificate=/file.pem&tls_key=/file.pem"
)
_TLS = ("off", "on")
_OPTIONS = ("tls", "tls_ca", "tls_certificate", "tls_key")


class Server(NamedTuple):
    """The host and port of a Hive Metastore server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class ThriftUrl:
    """The servers of one metastore, and the options of a client's connections to them.

    :param servers: the servers. A client uses the first reachable one until it fails.
    :param username: the user for SASL's mechanism PLAIN; None for a metastore without authentication.
    :param password: the user's password.
    :param tls: ``on`` or ``off``.
    :param tls_ca: PEM file of the authorities that may sign the servers' certificates; None for the system's.
    :param tls_certificate: PEM file of the client's own certificate, for a metastore that asks for one.
    :param tls_key: PEM file of its key; None when the key is in the same file.
    :raises InvalidInputError: when the options cannot work together; also for a password that would cross the
        network in clear text.
    """

    servers: tuple[Server, ...]
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: str = "off"
    tls_ca: str | None = None
    tls_certificate: str | None = None
    tls_key: str | None = None

    def __post_init__(self) -> None:
        if self.tls not in _TLS:
            raise InvalidInputError(f"tls is {self.tls!r} in the metastore's Thrift URL; known: on, off")
        if self.tls == "off" and (self.tls_ca or self.tls_certificate or self.tls_key):
            raise InvalidInputError("the metastore's Thrift URL has files for TLS, and no tls=on")
        if (self.username is None) != (self.password is None):
            raise InvalidInputError("the metastore's Thrift URL needs a user and a password, or neither")
        if self.password and self.tls == "off" and not all(is_loopback(one.host) for one in self.servers):
            raise InvalidInputError(
                f"the password for {self} would cross the network in clear text; serve the metastore with "
                "TLS, and say tls=on"
            )

    def __str__(self) -> str:
        return self.render_as_string()

    def render_as_string(self, *, hide_password: bool = True) -> str:
        """The URL as text; with ``***`` for its password."""
        shown = "***" if hide_password else quote(self.password or "", safe="")
        user = "" if self.username is None else f"{quote(self.username, safe='')}:{shown}@"
        options = {name: value for name in _OPTIONS if (value := getattr(self, name)) and value != "off"}
        query = f"?{urlencode(options, safe='/')}" if options else ""
        return f"{SCHEME}{user}{','.join(map(str, self.servers))}{query}"

    def tls_context(self) -> ssl.SSLContext | None:
        """The TLS context of the connections; None without TLS.

        :raises InvalidInputError: when a file cannot be used.
        """
        if self.tls == "off":
            return None
        try:
            context = ssl.create_default_context(cafile=self.tls_ca)
            if self.tls_certificate:
                context.load_cert_chain(self.tls_certificate, self.tls_key)
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(filter(None, (self.tls_ca, self.tls_certificate, self.tls_key)))
            raise InvalidInputError(
                f"the files for TLS with the metastore cannot be used ({files}): {error.strerror or error}"
            ) from error
        return context


def is_thrift_url(url: str) -> bool:
    """Whether a URL names servers, and not a database."""
    return url.startswith("thrift:")


def parse_thrift_url(url: str, **apart: str | None) -> ThriftUrl:
    """Read a URL.

    :param url: ``thrift://user:password@host:port,host2:port2?tls=on&tls_ca=/ca.pem``. Only one host is
        required. Each server may have its own ``thrift://``, as in Hive's ``hive.metastore.uris``. The
        default port is 9083; user and password are percent-encoded.
    :param apart: fields from outside of the URL, such as a password, by the names of :class:`ThriftUrl`; None
        for the others.
    :raises InvalidInputError: when the URL has another form. The message does not hold the URL.
    """
    if not url.startswith(SCHEME):
        raise InvalidInputError(_FORM)
    credentials, hosts, query = _parts(url)
    username, _, password = credentials.partition(":")
    try:
        options = dict(parse_qsl(query, strict_parsing=True)) if query else {}
        servers = tuple(_server(one.strip().removeprefix(SCHEME)) for one in hosts.split(","))
    except ValueError:
        raise InvalidInputError(_FORM) from None
    if options.keys() - set(_OPTIONS):
        raise InvalidInputError(_FORM)
    given = {"username": unquote(username), "password": unquote(password), **options}
    given |= {name: value for name, value in apart.items() if value}
    return ThriftUrl(servers, **{name: value for name, value in given.items() if value})


def shows_password(url: str) -> bool:
    """Whether a URL has a password in it."""
    return ":" in _parts(url)[0]


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, so that connections to it cross no network."""
    return host in ("localhost", "::1") or host.startswith("127.")


def _parts(url: str) -> tuple[str, str, str]:
    """User and password, servers, options."""
    place, _, query = url.removeprefix(SCHEME).partition("?")
    credentials, _, hosts = place.rpartition("@")
    return credentials, hosts, query


def _server(text: str) -> Server:
    parts = urlsplit(f"{SCHEME}{text}")
    if not parts.hostname or "@" in parts.netloc or parts.path.strip("/") or parts.fragment:
        raise ValueError(text)
    return Server(parts.hostname, parts.port or DEFAULT_PORT)
