"""The methods about the notification log; about its consumers and replications, which Hive does not have.

Beside the log stand the files that clients tell of a transaction's writes.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.metastore.api import Metastore
from airflow_provider.metastore.database import Counter, counted
from airflow_provider.metastore.model import (
    CATALOG,
    MESSAGE_FORMAT,
    ZIPPED_FORMAT,
    EventType,
    LogConsumer,
    NotificationEvent,
    Scope,
    decode_state,
    decode_table,
    encode_state,
    partition_values,
)
from airflow_provider.metastore.thrift.protocol import hive, partition_name
from airflow_provider.metastore.thrift.server.limits import ServerLimits
from airflow_provider.metastore.transactions import (
    WriteEventInfo,
    WriteNotification,
    add_write_notifications,
    write_events_of,
)

_BATCH = 1_000
# MessageBuilder.ALLOC_WRITE_ID_EVENT: the name of the type in Hive's log.
_HIVES_TYPES: dict[str, str] = {EventType.ALLOC_WRITE_ID: hive.ALLOC_WRITE_ID_EVENT}
_OUR_TYPES = {hives: ours for ours, hives in _HIVES_TYPES.items()}
_ALL = "*"
# Hive's ReplChangeManager writes a file as uri#checksum#cmroot#subdirectory, and "]" between two files.
_NO_CHANGE_MANAGER = "###"
_NEXT_FILE = "]"


class NotificationHandler:
    """Methods of ``ThriftHiveMetastore`` by their names in the interface definition.

    :param metastore: the metastore.
    :param message_format: the format of messages, ``json-0.2`` or ``gzip(json-2.0)``.
    :param limits: the limits of requests; this class uses ``message_bytes``.
    :raises InvalidInputError: when the format is another one.
    """

    def __init__(
        self, metastore: Metastore, message_format: str = MESSAGE_FORMAT, limits: ServerLimits | None = None
    ) -> None:
        if message_format not in (MESSAGE_FORMAT, ZIPPED_FORMAT):
            raise InvalidInputError(
                f"messages cannot be sent as {message_format!r}; give {MESSAGE_FORMAT!r} or {ZIPPED_FORMAT!r}"
            )
        self._metastore = metastore
        self._message_format = message_format
        self._most_bytes = (limits or ServerLimits()).message_bytes

    def get_current_notificationEventId(self) -> Any:  # noqa: N802 (Hive's name)
        return hive.CurrentNotificationEventId(eventId=self._metastore.current_event_id())

    def get_next_notification(self, request: Any) -> Any:
        left_out = {_OUR_TYPES.get(one, one) for one in request.eventTypeSkipList or ()}
        limit = request.maxEvents if request.maxEvents and request.maxEvents > 0 else None
        found: list[Any] = []
        for event in self._events(request.lastEvent, request.dbName, request.tableNames):
            if event.event_type in left_out:
                continue
            if limit is not None and len(found) == limit:
                break
            found.append(self._notification(event))
        return hive.NotificationEventResponse(events=found)

    def _notification(self, event: NotificationEvent) -> Any:
        message = json.dumps(event.message, ensure_ascii=False)
        message_format = event.message_format
        if self._message_format == ZIPPED_FORMAT:
            message = base64.b64encode(gzip.compress(message.encode(), mtime=0)).decode()
            message_format = ZIPPED_FORMAT
        return hive.NotificationEvent(
            eventId=event.event_id,
            eventTime=event.event_time,
            eventType=_HIVES_TYPES.get(event.event_type, event.event_type),
            dbName=event.database,
            tableName=event.table,
            message=message,
            messageFormat=message_format,
            catName=None if event.database is None else CATALOG,
        )

    def get_notification_events_count(self, request: Any) -> Any:
        counted = 0
        for event in self._events(request.fromEventId, request.dbName, request.tableNames):
            if (request.toEventId and event.event_id > request.toEventId) or counted == (request.limit or -1):
                break
            counted += 1
        return hive.NotificationEventsCountResponse(eventsCount=counted)

    def fire_listener_event(self, request: Any) -> Any:
        inserted = request.data.insertDatas or [request.data.insertData]
        if inserted == [None]:
            raise InvalidInputError("of the events that a client may fire only insertions are supported")
        fired = [
            self._metastore.fire_insert_event(
                request.dbName,
                request.tableName,
                one.filesAdded or [],
                values=one.partitionVal or request.partitionVals or None,
                replace=bool(one.replace),
                txn_id=request.txnId,
            )
            for one in inserted
        ]
        return hive.FireEventResponse(eventIds=fired)

    def add_write_notification_log(self, request: Any) -> Any:
        self._metastore.sql.write(
            lambda connection: add_write_notifications(
                connection, request.db, request.table, [_written(request)]
            )
        )
        return hive.WriteNotificationLogResponse()

    def add_write_notification_log_in_batch(self, request: Any) -> Any:
        told = request.requestList
        for one in told:
            if (one.db.lower(), one.table.lower()) != (request.db.lower(), request.table.lower()):
                raise InvalidInputError(
                    f"a batch about table {request.db}.{request.table} has a notification about "
                    f"{one.db}.{one.table}; send one batch for each table",
                    table=f"{one.db}.{one.table}",
                )
        if told:
            # As in Hive, a batch leaves out partitions that do not exist, and a single notification does not.
            self._metastore.sql.write(
                lambda connection: add_write_notifications(
                    connection, request.db, request.table, [*map(_written, told)], skip_missing=True
                )
            )
        return hive.WriteNotificationLogBatchResponse()

    def get_all_write_event_info(self, request: Any) -> list[Any]:
        database, table = (None if one == _ALL else one for one in (request.dbName, request.tableName))
        found = self._metastore.sql.read(
            lambda connection: write_events_of(connection, request.txnId, database, table)
        )
        return [_event_info(one) for one in found]

    def get_log_consumers(self) -> list[Any]:
        return [_struct(one) for one in self._metastore.consumers()]

    def register_log_consumer(self, request: Any) -> Any:
        return _struct(
            self._metastore.register_consumer(
                request.name,
                event_id=request.eventId,
                expiry_seconds=request.expirySeconds,
                if_not_exists=bool(request.ifNotExists),
            )
        )

    def advance_log_consumer(self, request: Any) -> Any:
        return _struct(self._metastore.advance_consumer(request.name, request.eventId))

    def restart_log_consumer(self, request: Any) -> Any:
        return _struct(self._metastore.restart_consumer(request.name, event_id=request.eventId))

    def unregister_log_consumer(self, name: str) -> None:
        self._metastore.unregister_consumer(name)

    def get_replication_state(self, request: Any) -> bytes:
        names = {name.lower() for name in request.dbNames}
        state = self._metastore.replication_state(names, request.txnIds)
        return gzip.compress(encode_state(state).encode(), mtime=0)

    def serve_replicator(self, request: Any) -> bytes:
        """Call a method of :class:`ReplicationTarget` with arguments as zipped JSON."""
        called = _OPERATIONS.get(request.operation)
        if called is None:
            raise InvalidInputError(
                f"a replicator asks for {request.operation!r}, which this server does not know; upgrade the "
                "server to the replicator's release"
            )
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(request.arguments)) as zipped:
                text = zipped.read(self._most_bytes + 1)
            if len(text) > self._most_bytes:  # a few bytes can unzip to any number
                raise InvalidInputError(
                    f"the arguments of {request.operation!r} unzip to more than {self._most_bytes} bytes; a "
                    "server allows more by --max-message-bytes"
                )
            arguments = json.loads(text)
        except (OSError, EOFError, ValueError) as error:
            raise InvalidInputError(
                f"arguments of {request.operation!r} are no zipped JSON: {error}"
            ) from error
        answer = called(self._metastore.replication_target(), *arguments)
        return gzip.compress(json.dumps(answer).encode(), mtime=0)

    def get_purged_event_id(self) -> int:
        return self._metastore.sql.read(lambda connection: counted(connection, Counter.PURGED_EVENT_ID))

    def _events(
        self, after: int, database: str | None, tables: Sequence[str] | None
    ) -> Iterator[NotificationEvent]:
        names = {name.lower() for name in tables or ()}
        while batch := self._metastore.next_events(after, _BATCH, database=database and database.lower()):
            yield from (one for one in batch if not names or one.table in names)
            after = batch[-1].event_id


def _struct(consumer: LogConsumer) -> Any:
    return hive.LogConsumer(
        name=consumer.name,
        eventId=consumer.event_id,
        updatedAt=consumer.updated_at,
        expirySeconds=consumer.expiry_seconds,
        isLive=consumer.is_live,
        silentSeconds=consumer.silent_seconds,
        hits=consumer.hits,
        misses=consumer.misses,
    )


def _written(request: Any) -> WriteNotification:
    files = request.fileInfo.filesAdded
    folders = _for_each(request, files, "subDirectoryList")
    _for_each(request, files, "filesAddedChecksum")  # a Hive without a change manager drops them, too
    encoded = [f"{file}{_NO_CHANGE_MANAGER}{folder}" for file, folder in zip(files, folders, strict=True)]
    values = partition_values(request.partitionVals or ())
    return WriteNotification(request.txnId, request.writeId, values, encoded)


def _for_each(request: Any, files: Sequence[str], field: str) -> Sequence[str]:
    """A text for each file; empty texts when the client sent none."""
    texts: Sequence[str] = getattr(request.fileInfo, field) or [""] * len(files)
    if len(texts) != len(files):
        raise InvalidInputError(
            f"transaction {request.txnId}: a notification about {request.db}.{request.table} has "
            f"{len(files)} files and {len(texts)} values of {field}; send one for each file, or none",
            txn_id=request.txnId,
        )
    return texts


def _event_info(event: WriteEventInfo) -> Any:
    # As in Hive: of a table without partition keys, the partition is an empty text.
    name = partition_name(decode_table(event.table_object), event.values) if event.values else ""
    return hive.WriteEventInfo(
        writeId=event.write_id,
        database=event.database,
        table=event.table,
        files=_NEXT_FILE.join(event.files),
        partition=name,
        tableObj=event.table_object,
        partitionObj=event.partition_object,
    )


def _scope(read: Mapping[str, Any]) -> Scope:
    return Scope(read["policy"], read["databases"], read["locations"])


def _same(name: str) -> Callable[..., Any]:
    """A method whose arguments and answer are JSON as they are."""
    return lambda target, *arguments: getattr(target, name)(*arguments)


_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "replications": lambda target: [asdict(each) for each in target.replications()],
    "replication": lambda target, policy: asdict(target.replication(policy)),
    "begin": lambda target, policy, source, databases, is_same: asdict(
        target.begin(policy, source, databases, is_same=is_same)
    ),
    "apply_events": lambda target, scope, events: target.apply_events(
        _scope(scope), [NotificationEvent(**each) for each in events]
    ),
    "bring_over": lambda target, scope, state: target.bring_over(_scope(scope), decode_state(state)),
    **{
        name: _same(name)
        for name in (
            "restart",
            "keep_lease",
            "release_lease",
            "note_error",
            "add_bytes",
            "mapped_txns",
            "last_write_id",
            "freeze",
            "thaw",
            "open_writers",
            "take_over",
            "forget",
            "follow_back",
        )
    },
}
