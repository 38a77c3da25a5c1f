"""Reads a server's tables so that a reader who goes to another replica loses nothing that it has seen."""

from __future__ import annotations

from typing import Any, Unpack

from airflow_provider.exceptions import WriteIdsRequiredError
from airflow_provider.metastore.model import EXTERNAL_TABLE, NOW, Reader, ReaderSession, TableInfo
from airflow_provider.metastore.thrift.client.connections import ThriftConnections
from airflow_provider.metastore.thrift.protocol import hive, read_table

EXTERNAL_PROPERTY = "EXTERNAL"
"""Hive believes this property, not the table's type."""


class TableReader:
    """A client is one reader: its session goes with every read to whichever server it asks.

    A Hive does not know the fields for it, and ignores them.

    :param server: where to read.
    """

    def __init__(self, server: ThriftConnections) -> None:
        self._server = server
        self._session = ReaderSession()
        self._names_write_ids = False

    def get(self, database: str, name: str, **reader: Unpack[Reader]) -> TableInfo:
        """See :meth:`AnyMetastore.get_table`."""
        table = read_table(self.struct(database, name, reader))
        if table.table_type == EXTERNAL_TABLE:
            table.parameters.pop(EXTERNAL_PROPERTY, None)
        return table

    def struct(self, database: str, name: str, reader: Reader) -> Any:
        """A table as the server describes it."""
        # Not get_table, which a Hive does not have since 4.0.1.
        request = hive.GetTableRequest(dbName=database, tblName=name)
        return self.read("get_table_req", request, reader).table

    def read(self, method: str, request: Any, reader: Reader) -> Any:
        """Call a method that reads a table.

        A server that requires write ids gets the reader's. If the reader has none, it gets those of now.

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
            answer = self._server.read(method, request)
        except WriteIdsRequiredError:
            if request.validWriteIdList is not None:
                raise
            self._names_write_ids = True
            self._name_write_ids(request)
            answer = self._server.read(method, request)
        if answer.eventId is not None:
            session.saw(answer.eventId)
            self._session.saw(answer.eventId)
        return answer

    def _name_write_ids(self, request: Any) -> None:
        name = f"{request.dbName}.{request.tblName}"
        snapshot = self._server.read("get_read_snapshot", hive.ReadSnapshotRequest(fullTableNames=[name]))
        [table] = snapshot.tables
        request.validWriteIdList, request.id = table.validWriteIdList, table.tableId


def as_of_now() -> Reader:
    """A reader who is about to change a table: no copy is new enough, so the server asks its database."""
    return Reader(session=ReaderSession(NOW))
