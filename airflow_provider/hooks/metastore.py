"""The hook of connection type ``table_metastore``."""

from __future__ import annotations

import socket
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from airflow.configuration import get_airflow_home
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import amask_secret, mask_secret
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from airflow_provider.exceptions import InvalidConnectionError, InvalidInputError, TableServiceError
from airflow_provider.hooks.connection_form import read_extras
from airflow_provider.metastore import Metastore, TableTransaction, open_metastore, table_transaction

if TYPE_CHECKING:
    from airflow.sdk import Connection


class MetastoreHook(BaseHook):
    """The catalog, its transactions and its notification log, by a connection of type ``table_metastore``.

    Without a connection ``table_metastore_default`` it is an embedded SQLite database,
    ``$AIRFLOW_HOME/table_services/metastore.db``.

    :param metastore_conn_id: id of the connection.
    """

    conn_name_attr = "metastore_conn_id"
    default_conn_name = "table_metastore_default"
    conn_type = "table_metastore"
    hook_name = "Table Metastore"

    def __init__(self, metastore_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.metastore_conn_id = metastore_conn_id
        self._metastore: Metastore | None = None

    def get_metastore(self) -> Metastore:
        """The metastore, opened once per hook.

        :raises InvalidConnectionError: when the connection does not exist (the default one
            may be missing), is of another type or cannot work.
        :raises MetastoreUnavailableError: when the database cannot be reached.
        """
        if self._metastore is None:
            url = self._url(self._connection())
            if url.password:
                mask_secret(url.password)
            self._metastore = open_metastore(url.render_as_string(hide_password=False))
        return self._metastore

    async def aget_url(self) -> str:
        """The metastore's SQLAlchemy URL, for the event loop of a triggerer; masked in its logs.

        :raises InvalidConnectionError: see :meth:`get_metastore`.
        """
        try:
            connection = await self.aget_connection(self.metastore_conn_id)
        except AirflowNotFoundException:
            connection = self._missing()
        url = self._url(connection)
        if url.password:
            await amask_secret(url.password)
        return url.render_as_string(hide_password=False)

    def get_conn(self) -> Metastore:
        """Same as :meth:`get_metastore`."""
        return self.get_metastore()

    def test_connection(self) -> tuple[bool, str]:
        """Open the metastore and read its notification log's head.

        :return: whether that worked, and a sentence for a person.
        """
        try:
            event_id = self.get_metastore().current_event_id()
        except (TableServiceError, OSError) as error:
            return False, f"{type(error).__name__}: {error}"
        return True, f"metastore answers; its newest event is {event_id}"

    def transaction(
        self, table: str, *, user: str = "airflow", host: str | None = None, txn_id: int | None = None
    ) -> AbstractContextManager[TableTransaction]:
        """A transaction with a write id for one table; commits when left, aborts on an error.

        :param table: ``database.table``.
        :param user: who writes.
        :param host: where; this machine when None.
        :param txn_id: a transaction opened by somebody else, who also ends it; a new one when None.
        :raises InvalidInputError: when the table's name has not two parts.
        :raises NoSuchObjectError: when the table is not registered.
        """
        database, name = split_table_name(table)
        return table_transaction(
            self.get_metastore(), database, name, user=user, host=host or socket.gethostname(), txn_id=txn_id
        )

    def allocate_write_id(self, txn_id: int, table: str) -> int:
        """The write id of a transaction in a table; the same one each time it is asked for.

        :param txn_id: an open transaction.
        :param table: ``database.table``.
        :raises NoSuchTransactionError: when the transaction is not open.
        """
        return self.get_metastore().allocate_table_write_id(txn_id, *split_table_name(table))

    def _connection(self) -> Connection | None:
        try:
            return self.get_connection(self.metastore_conn_id)
        except AirflowNotFoundException:
            return self._missing()

    def _missing(self) -> None:
        if self.metastore_conn_id != self.default_conn_name:
            raise InvalidConnectionError(
                f"connection {self.metastore_conn_id!r} does not exist; create it with type "
                "'table_metastore', or leave the argument out for the embedded database",
                connection=self.metastore_conn_id,
            ) from None

    def _url(self, connection: Connection | None) -> URL:
        if connection is None:
            return URL.create("sqlite", database=str(_embedded_database()))
        where = f"connection {connection.conn_id!r}"
        extras = read_extras(connection, self.conn_type)
        try:
            if "url" in extras:
                url = make_url(extras["url"])
            else:
                url = URL.create(
                    extras.get("dialect", "sqlite"),
                    connection.login or None,
                    connection.password or None,
                    connection.host or None,
                    connection.port,
                    connection.schema or None,
                )
            url.get_dialect()
        except (ArgumentError, NoSuchModuleError) as error:
            # make_url repeats the text it cannot parse, and a password may stand in it.
            reason = "it cannot be parsed" if isinstance(error, ArgumentError) else str(error)
            raise InvalidConnectionError(
                f"{where}: no SQLAlchemy URL, {reason}; a URL looks like sqlite:////srv/lake/metastore.db",
                connection=connection.conn_id,
                extra="url" if "url" in extras else "dialect",
            ) from None
        if not url.database:
            raise InvalidConnectionError(
                f"{where} names no database; fill in the field 'Database' or the extra 'url'",
                connection=connection.conn_id,
                extra="url",
            )
        return url


def split_table_name(table: str) -> tuple[str, str]:
    """Database and name of a registered table.

    :param table: ``database.table``.
    :raises InvalidInputError: when it has not two non-empty parts.
    """
    database, dot, name = table.partition(".")
    if not (database and dot and name) or "." in name:
        raise InvalidInputError(
            f"table {table!r} is not a name of the form database.table, such as lake.flights", table=table
        )
    return database, name


def _embedded_database() -> Path:
    database = Path(get_airflow_home()) / "table_services" / "metastore.db"
    database.parent.mkdir(parents=True, exist_ok=True)
    return database


__all__ = ["MetastoreHook", "split_table_name"]
