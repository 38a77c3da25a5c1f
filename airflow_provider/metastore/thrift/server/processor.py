"""The processor: reads a request, calls its method, and writes the answer or the error."""

from __future__ import annotations

import copy
import functools
import logging
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

from thriftpy2.thrift import TApplicationException, TException, TMessageType, TProcessor, TType
from thriftpy2.utils import serialize

from airflow_provider.exceptions import MetastoreUnavailableError, TableServiceError
from airflow_provider.metastore.database import OF_DATABASE, GroupedRequest, GroupOperation, SqlDatabase
from airflow_provider.metastore.thrift.protocol import (
    EncodedNames,
    EncodedPartitions,
    EncodedTable,
    hive,
    in_hive,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

# Bytes of the binary protocol: the type before a struct in a field, and the end of a struct.
_FIELD, _LIST, _STOP = bytes([TType.STRUCT]), bytes([TType.LIST]), bytes([TType.STOP])
# GetTableResult.eventId: type, number, value.
_EVENT_ID = struct.Struct(">bhq")
_NUMBER = struct.Struct(">h")
_EVENT_ID_NUMBER = next(at for at, spec in hive.GetTableResult.thrift_spec.items() if spec[1] == "eventId")


_LONGEST_NAME = 100  # characters of a method's name in the log and in answers


@dataclass(frozen=True)
class Grouped(Generic[T]):
    """The result of a method whose request is done in a group with the requests of other clients.

    :param sql: the database.
    :param operation: does requests of this kind.
    :param request: the request.
    :param answer: makes the method's answer from the request's answer.
    """

    sql: SqlDatabase
    operation: GroupOperation
    request: GroupedRequest[T]
    answer: Callable[[T], Any]

    def now(self) -> Any:
        """Wait for the answer."""
        return self.answer(self.sql.write_together(self.operation, self.request))

    def later(self, tell: Callable[[Callable[[], Any]], None]) -> None:
        """Do the request, and deliver its answer later.

        See :meth:`~airflow_provider.metastore.database.group_commit.GroupCommit.leave`.
        """
        self.sql.leave_with_others(
            self.operation, self.request, lambda found: tell(lambda: self.answer(found()))
        )


class Later(Protocol):
    """Lets other threads than the reading one write a connection's answers, in the order of the requests.

    :param protocol: writes the answers; it must not wait for the client.
    """

    protocol: Any

    def begin(self) -> None:
        """Wait until the last request is answered, because answers come in the order of the requests.

        :raises TTransportException: when the last request could not be answered; then the caller does not do
            this one.
        """

    def end(self) -> None:
        """Record that the request is answered; any thread may call it."""

    def hang_up(self, error: Exception) -> None:
        """Record that an answer could not be written."""


class MetastoreProcessor(TProcessor):
    """Answers one request after the other. No error of a method ends the connection.

    :param handlers: objects with the methods of ``ThriftHiveMetastore``. The first object that has a method
        answers it.
    """

    def __init__(self, *handlers: object) -> None:
        super().__init__(hive.ThriftHiveMetastore, _Methods(handlers))

    def process(self, iprot: Any, oprot: Any, later: Later | None = None) -> None:
        """Read a request, and write its answer.

        :param later: writes the answer after this method has returned, when a group does the request; None to
            wait for the group.
        """
        method, number, result, call = self.process_in(iprot)
        if later is None:
            self._answer(oprot, method, number, result, lambda: _waited_for(self._called(method, call)))
            return
        later.begin()
        is_left = False
        try:
            found = self._start(method, call)
            if isinstance(found, Grouped):
                is_left = True
                found.later(lambda answer: self._answer_later(later, method, number, result, answer))
            else:
                self._answer(oprot, method, number, result, found)
        finally:
            if not is_left:
                later.end()

    def refuse(self, oprot: Any, method: str, number: int, reason: str) -> None:
        """Answer a request that could not be read to its end.

        :param method: the request's method.
        :param number: the request's number.
        :param reason: the error's text for the client.
        """
        log.warning("a request for %r was refused: %s", method[:_LONGEST_NAME], reason)
        exception = TApplicationException(TApplicationException.PROTOCOL_ERROR, reason)
        self.send_exception(oprot, method, exception, number)

    def _start(self, method: str, call: Any) -> Grouped[Any] | Callable[[], Any]:
        """Start a request.

        :return: a grouped request, or a function that returns the answer or raises its error.
        """
        try:
            found = self._called(method, call)
        except Exception as error:  # noqa: BLE001 - the client gets every error
            return functools.partial(_raise, error)
        return found if isinstance(found, Grouped) else lambda: found

    def _answer_later(
        self, later: Later, method: str, number: int, result: Any, answer: Callable[[], Any]
    ) -> None:
        try:
            self._answer(later.protocol, method, number, result, answer)
        except Exception as error:  # noqa: BLE001 - other requests of the group must not suffer
            later.hang_up(error)
        finally:
            later.end()

    def _answer(self, oprot: Any, method: str, number: int, result: Any, answer: Callable[[], Any]) -> None:
        try:
            result.success = answer()
        except Exception as error:  # noqa: BLE001 - as above
            exception = _exception_for(method, error, result)
            if isinstance(exception, TApplicationException):
                self.send_exception(oprot, method, exception, number)
                return
            self.handle_exception(exception, result)
        if not result.oneway:
            self.send_result(oprot, method, result, number)

    def send_result(self, oprot: Any, api: str, result: Any, seqid: int) -> None:
        """Write an answer; what comes with its bytes is not encoded again."""
        encoded = _encoded(getattr(result, "success", None))
        if encoded is None:
            super().send_result(oprot, api, result, seqid)
            return
        oprot.write_message_begin(api, TMessageType.REPLY, seqid)
        oprot.trans.write(encoded)
        oprot.write_message_end()
        oprot.trans.flush()

    def _called(self, method: str, call: Any) -> Any:
        if call is None:
            raise _unknown(method)
        return call()


class _Methods:
    """One object with the methods of several objects, and those of fb303."""

    def __init__(self, handlers: Sequence[object]) -> None:
        self._handlers = handlers
        self._started = int(time.time())

    def __getattr__(self, name: str) -> Any:
        for handler in self._handlers:
            method = getattr(handler, name, None)
            if method is not None:
                return method
        raise TApplicationException(TApplicationException.UNKNOWN_METHOD, f"Invalid method name: '{name}'")

    def getName(self) -> str:  # noqa: N802 (fb303's names, here and below)
        return "airflow-provider-table-services"

    def getVersion(self) -> str:  # noqa: N802
        return "4.1.0"

    def getStatus(self) -> Any:  # noqa: N802
        return hive.fb_status.ALIVE

    def aliveSince(self) -> int:  # noqa: N802
        return self._started

    def shutdown(self) -> None:
        """Do nothing: Hive's Java client calls it when it closes a connection."""

    def set_ugi(self, user: str, groups: list[str]) -> list[str]:
        return [user, *(groups or [])]

    def getMetaConf(self, key: str) -> str:  # noqa: N802
        return ""

    def flushCache(self) -> None:  # noqa: N802
        """Do nothing: no copy is ever older than its reader's snapshot."""


def _waited_for(answer: Any) -> Any:
    return answer.now() if isinstance(answer, Grouped) else answer


def _raise(error: Exception) -> Any:
    raise error


def _encoded(answer: Any) -> bytes | None:
    """The bytes of a result that holds a table, names or partitions in theirs; None for another result."""
    if isinstance(answer, EncodedNames | EncodedPartitions):
        return _LIST + b"\x00\x00" + answer.encoded + _STOP
    if isinstance(partitions := getattr(answer, "partitions", None), EncodedPartitions):
        number = next(at for at, spec in answer.thrift_spec.items() if spec[1] == "partitions")
        others = copy.copy(answer)
        others.partitions = None  # the fields of a struct may come in any order
        encoded = _LIST + _NUMBER.pack(number) + partitions.encoded + serialize(others)
    elif isinstance(answer, EncodedTable):
        encoded = answer.encoded
    elif isinstance(answer, hive.GetTableResult) and isinstance(answer.table, EncodedTable):
        answered_at = answer.eventId
        event_id = b"" if answered_at is None else _EVENT_ID.pack(TType.I64, _EVENT_ID_NUMBER, answered_at)
        encoded = _FIELD + b"\x00\x01" + answer.table.encoded + event_id + _STOP
    else:
        return None
    return _FIELD + b"\x00\x00" + encoded + _STOP


def _without_place(method: str, error: TableServiceError) -> TableServiceError:
    """The error for clients. Only the log names the database's address and its users."""
    if not error.details.get(OF_DATABASE):
        return error
    log.warning("%s: %s", method, error)
    if isinstance(error, MetastoreUnavailableError):
        return MetastoreUnavailableError(
            "the metastore's database cannot be used now; try again, and if it lasts ask the operator of "
            "the metastore, whose log says more"
        )
    return type(error)("the metastore's database refuses the request; the metastore's log says more")


def _unknown(method: str) -> TApplicationException:
    # A client may send anything as a name, line breaks too.
    log.warning("a client asked for %r, which this metastore does not have", method[:_LONGEST_NAME])
    return TApplicationException(
        TApplicationException.UNKNOWN_METHOD, f"Invalid method name: '{method[:_LONGEST_NAME]}'"
    )


def _exception_for(method: str, error: Exception, result: Any) -> TException:
    """The exception for a client: the declared one of the method that fits, if there is one."""
    if isinstance(error, TApplicationException):
        return error
    declared = {spec[2].__name__: spec[2] for at, spec in result.thrift_spec.items() if at != 0}
    if isinstance(error, tuple(declared.values())):
        return cast(TException, error)
    if isinstance(error, TableServiceError):
        chosen, message = in_hive(_without_place(method, error), declared)
        log.debug("%s: %s", method, message)
    else:
        log.error("%s failed", method, exc_info=error)
        message = f"{type(error).__name__} in {method}; the metastore's log has more"
        chosen = "MetaException" if "MetaException" in declared else None
    if chosen is None:
        return TApplicationException(TApplicationException.INTERNAL_ERROR, message)
    return declared[chosen](message=message)  # type: ignore[no-any-return]
