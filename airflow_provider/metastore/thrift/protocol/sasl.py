"""SASL for connections of a server: authentication by user and password.

``pysasl`` implements the mechanisms; this module carries them in Thrift's messages (``TSaslTransport``: a
status byte, a length, the payload). It has no Kerberos: a GSSAPI implementation may replace
:class:`SaslPlain`, see :data:`~airflow_provider.metastore.thrift.server.Authenticate`.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pysasl.exception import AuthenticationError
from pysasl.hashing import BuiltinHash
from pysasl.identity import HashedIdentity
from pysasl.mechanism import ChallengeResponse
from pysasl.mechanism.plain import PlainMechanism
from thriftpy2.transport import TFramedTransportFactory, TTransportException
from thriftpy2.transport.base import readall

from airflow_provider.exceptions import InvalidInputError

log = logging.getLogger(__name__)

_START, _OK, _BAD, _COMPLETE = 1, 2, 3, 5
_MAX_PAYLOAD = 10_000
_MECHANISM = PlainMechanism()


class SaslPlain:
    """Authenticates users by their passwords, with SASL's mechanism PLAIN; use it with TLS only.

    :param digests: the :func:`password_digest` of each user's password, by user.
    """

    def __init__(self, digests: Mapping[str, str]) -> None:
        self._hash = verifier = BuiltinHash()
        # A password that nobody has: to check it for an unknown user takes as long as to check a user's.
        self._unknown_digest = password_digest(secrets.token_hex())
        self._known = {user: HashedIdentity(user, digest, hash=verifier) for user, digest in digests.items()}

    def __call__(self, transport: Any) -> Any:
        """Authenticate a client.

        :param transport: the client's ``TSocket``, before the first request.
        :return: the transport for the requests, whose messages are framed.
        :raises TTransportException: when the authentication fails.
        """
        status, mechanism = _receive(transport)
        if status != _START or mechanism != _MECHANISM.name:
            raise self._refused(transport, f"it asked for the mechanism {mechanism[:32]!r}, not PLAIN")
        _, response = _receive(transport)
        try:
            given, _ = _MECHANISM.server_attempt([ChallengeResponse(b"", response)])
            unknown_user = HashedIdentity(given.authcid, self._unknown_digest, hash=self._hash)
            is_right = given.verify(self._known.get(given.authcid, unknown_user))
        except (AuthenticationError, ValueError) as error:
            raise self._refused(transport, f"its answer cannot be read: {type(error).__name__}") from None
        if not is_right or not hmac.compare_digest(given.authcid.encode(), given.authzid.encode()):
            raise self._refused(transport, f"user {given.authcid[:64]!r} or the password is wrong")
        _send(transport, _COMPLETE, b"")
        return TFramedTransportFactory().get_transport(transport)

    def _refused(self, transport: Any, why: str) -> TTransportException:
        _send(transport, _BAD, b"not let in")
        return TTransportException(TTransportException.NOT_OPEN, f"a client was not let in: {why}")


def password_digest(password: str) -> str:
    """The digest of a password for the file of users: salted PBKDF2."""
    return str(BuiltinHash().hash(password))


def read_users(path: str | Path) -> dict[str, str]:
    """Read a file of users, with a line ``user:digest`` for each.

    :raises InvalidInputError: when the file cannot be read, or a line has another form. The message holds no
        digest.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InvalidInputError(f"the file of users {path} cannot be read: {error.strerror}") from error
    users = {}
    for number, line in enumerate(lines, 1):
        user, colon, digest = line.strip().partition(":")
        if not user and not colon:
            continue
        if not user or not digest.startswith("$pbkdf2"):
            raise InvalidInputError(
                f"{path}, line {number}: a user is written user:digest; make a line with "
                "`table-services metastore user NAME`"
            )
        users[user] = digest
    return users


def _receive(transport: Any) -> tuple[int, bytes]:
    status, length = struct.unpack(">BI", readall(transport.read, 5))
    if length > _MAX_PAYLOAD:
        raise TTransportException(TTransportException.NOT_OPEN, "a client does not begin with SASL")
    return status, readall(transport.read, length)


def _send(transport: Any, status: int, payload: bytes) -> None:
    transport.write(struct.pack(">BI", status, len(payload)) + payload)
