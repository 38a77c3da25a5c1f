"""A server's tables, read so that nothing that was seen is lost by going to another replica."""

from __future__ import annotations

from typing import Any

from airflow_provider.exceptions import WriteIdsRequiredError
from airflow_provider.metastore.model import NOW, Reader, ReaderSession
from airflow_provider.metastore.thrift.client.connections import ThriftClient
from airflow_provider.metastore.thrift.protocol import hive


class ReaderClient(ThriftClient):
    """A client is one reader: its session goes with every read to whichever server it asks.

    A Hive does not know the fields for it, and ignores them.
    """

    def __init__(self, url: str, *, timeout_seconds: float = 30.0) -> None:
        super().__init__(url, timeout_seconds=timeout_seconds)
        self._session = ReaderSession()
        self._names_write_ids = False

    def _read_as(self, method: str, request: Any, reader: Reader) -> Any:
        """Call a method that reads a table.

        To a server that asks for them, write ids are named: those of now, where the reader has no others.

        :param request: with ``dbName``, ``tblName``, and places for what the reader says.
        """
        session = reader.get("session") or self._session
        write_ids, table_id = reader.get("valid_write_ids"), reader.get("table_id")
        request.seenEventId = session.event_id
        request.validWriteIdList = None if write_ids is None else str(write_ids)
        request.id = -1 if table_id is None else table_id
        if write_ids is None and self._names_write_ids:
            self._name_write_ids(request)
        try:
            answer = self._read(method, request)
        except WriteIdsRequiredError:
            if request.validWriteIdList is not None:
                raise
            self._names_write_ids = True
            self._name_write_ids(request)
            answer = self._read(method, request)
        if answer.eventId is not None:
            session.saw(answer.eventId)
            self._session.saw(answer.eventId)
        return answer

    def _name_write_ids(self, request: Any) -> None:
        name = f"{request.dbName}.{request.tblName}"
        snapshot = self._read("get_read_snapshot", hive.ReadSnapshotRequest(fullTableNames=[name]))
        [table] = snapshot.tables
        request.validWriteIdList, request.id = table.validWriteIdList, table.tableId


def as_of_now() -> Reader:
    """A reader to whom nothing is new enough but what the database says: who is about to change it."""
    return Reader(session=ReaderSession(NOW))
