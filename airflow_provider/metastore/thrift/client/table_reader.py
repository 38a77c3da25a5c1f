"""Reads a server's tables, so that a reader sees no older state when it goes to another replica."""

from __future__ import annotations

from typing import Any, Unpack

from airflow_provider.exceptions import WriteIdsRequiredError
from airflow_provider.metastore.model import EXTERNAL_TABLE, NOW, Reader, ReaderSession, TableInfo
from airflow_provider.metastore.thrift.client.connections import ThriftConnections
from airflow_provider.metastore.thrift.protocol import hive, read_table

EXTERNAL_PROPERTY = "EXTERNAL"
"""The table property by which Hive decides whether a table is external; it ignores the table's type."""

# A Hive since 3 shows an insert-only table only to clients that know what it is.
_CAPABILITIES = hive.ClientCapabilities(values=[hive.ClientCapability.INSERT_ONLY_TABLES])


class TableReader:
    """Reads tables as one reader, whose session goes with every read to each server.

    A Hive ignores the fields of the session.

    :param server: the connections to the servers.
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
        """The server's struct of a table."""
        # A Hive has no get_table since 4.0.1.
        request = hive.GetTableRequest(dbName=database, tblName=name, capabilities=_CAPABILITIES)
        return self.read("get_table_req", request, reader).table

    def read(self, method: str, request: Any, reader: Reader) -> Any:
        """Call a method that reads a table.

        A server that requires write ids gets the reader's. If the reader has none, the server gets the
        present ones.

        :param request: Hive's request, with ``dbName``, ``tblName``, and fields for the reader's arguments.
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
    """The arguments of a reader that changes the table next: only the database is new enough for it."""
    return Reader(session=ReaderSession(NOW))
