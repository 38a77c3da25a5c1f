"""Limits of clients' requests and connections, so that no client can stop a server or take its memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from types import FunctionType
from typing import Any

from thriftpy2.protocol import TBinaryProtocol, binary
from thriftpy2.protocol.exc import TProtocolException
from thriftpy2.thrift import TType
from thriftpy2.transport import TSocket

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.metastore.model import MOST_IDS

_AT_ONCE = 65_536
_NUMBERS = (TType.BOOL, TType.BYTE, TType.DOUBLE, TType.I16, TType.I32, TType.I64)
_TYPES = frozenset({*_NUMBERS, *binary.BIN_TYPES, TType.STRUCT, TType.MAP, TType.SET, TType.LIST})


@dataclass(frozen=True)
class ServerLimits:
    """Limits of requests and connections. The server refuses a request above one with an error that names it.

    :param message_bytes: bytes of one request (Hive: ``hive.metastore.server.max.message.size``).
    :param elements: elements of all lists, sets and maps of one request together.
    :param write_ids: ids in one ``validWriteIdList`` or ``validTxnList``, with ranges written out.
    :param txn_range: transactions in one ``heartbeat_txn_range``.
    :param connections: connections at the same time, of one process.
    :param idle_seconds: the server closes a connection after so many seconds without a byte of a request.
    :raises InvalidInputError: when a limit is below 1.
    """

    message_bytes: int = 100_000_000
    elements: int = 2_000_000
    write_ids: int = MOST_IDS
    txn_range: int = 100_000
    connections: int = 1_000
    idle_seconds: int = 86_400

    def __post_init__(self) -> None:
        for one in fields(self):
            if getattr(self, one.name) < 1:
                raise InvalidInputError(
                    f"the limit {one.name} is {getattr(self, one.name)}; give 1 or more", limit=one.name
                )


class RequestLimitError(TProtocolException):
    """A request is above a limit. The server cannot read the rest of it from the connection.

    :param message: names the limit and its option.
    """

    def __init__(self, message: str) -> None:
        super().__init__(type=TProtocolException.SIZE_LIMIT, message=message)  # type: ignore[no-untyped-call]


class LimitedSocket(TSocket):
    """A socket that counts the bytes of one request.

    :param sock: the connection.
    :param limits: the limits; this class uses ``message_bytes``.
    """

    def __init__(self, sock: Any, limits: ServerLimits) -> None:
        super().__init__(sock=sock)  # type: ignore[no-untyped-call]
        self._most = limits.message_bytes
        self._received = 0

    def begin_request(self) -> None:
        """Count from zero. Bytes that the transport above has read ahead count for the last request."""
        self._received = 0

    def read(self, sz: int) -> bytes:
        """See ``TSocket.read``; it may return less than ``sz`` bytes."""
        found: bytes = super().read(min(sz, _AT_ONCE))  # type: ignore[no-untyped-call]
        self._received += len(found)
        if self._received > self._most + _AT_ONCE:
            raise RequestLimitError(
                f"a request has more than {self._most} bytes; the server's --max-message-bytes allows no more"
            )
        return found


class LimitedProtocol(TBinaryProtocol):
    """Thrift's binary protocol, with a limit on the elements in a request's containers.

    ``header`` is the method and the number of the request that began last.

    :param trans: the transport.
    :param socket: the socket below the transport.
    :param limits: the limits; this class uses ``elements`` and ``message_bytes``.
    """

    def __init__(self, trans: Any, socket: LimitedSocket, limits: ServerLimits) -> None:
        super().__init__(trans)  # type: ignore[no-untyped-call]
        self._socket = socket
        self._most, self._most_bytes = limits.elements, limits.message_bytes
        self._elements = 0
        self._read_struct, self._skip = _readers(self._check)
        self.header: tuple[str, int] | None = None

    def read_message_begin(self) -> tuple[str, int, int]:
        """See ``TBinaryProtocol``."""
        self._socket.begin_request()
        self._elements, self.header = 0, None
        name, kind, number = super().read_message_begin()  # type: ignore[no-untyped-call]
        self.header = (name, number)
        return name, kind, number

    def read_struct(self, obj: Any) -> Any:
        """See ``TBinaryProtocol``."""
        return self._read_struct(self.trans, obj, self.decode_response, self.strict_decode, self.max_depth)

    def skip(self, ttype: int) -> None:
        """See ``TBinaryProtocol``."""
        self._skip(self.trans, ttype, self.max_depth)

    def _check(self, size: int, *types: int) -> None:
        """Check a container's size before the first of its elements is read."""
        if size < 0 or (size and not _TYPES.issuperset(types)):
            raise TProtocolException(
                type=TProtocolException.INVALID_DATA, message=f"a container of {size} elements of {types}"
            )
        self._elements += size
        if self._elements > self._most:
            raise RequestLimitError(
                f"a request has {self._elements} elements or more in its lists, sets and maps; the server's "
                f"--max-elements allows {self._most}"
            )


def _readers(check: Callable[..., None]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The library's functions that read and skip structs, with a check before they read a container."""

    def list_begin(inbuf: Any) -> tuple[int, int]:
        kind, size = binary.read_list_begin(inbuf)
        check(size, kind)
        return kind, size

    def map_begin(inbuf: Any) -> tuple[int, int, int]:
        key, value, size = binary.read_map_begin(inbuf)
        check(size, key, value)
        return key, value, size

    names = {**vars(binary), "read_list_begin": list_begin, "read_map_begin": map_begin}
    for name in ("read_val", "read_struct", "skip"):
        known = getattr(binary, name)
        names[name] = FunctionType(known.__code__, names, name, known.__defaults__, known.__closure__)
    return names["read_struct"], names["skip"]
