"""The hook of connection type ``table_metastore``."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.configuration import conf, get_airflow_home
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import amask_secret, mask_secret
from sqlalchemy import URL

from airflow_provider.exceptions import (
    InvalidConnectionError,
    InvalidInputError,
    TableServiceError,
)
from airflow_provider.hooks.connection_form import form_fields, read_extras
from airflow_provider.metastore import AnyMetastore, TableTransaction, open_metastore, table_transaction
from airflow_provider.metastore.database import parse_url
from airflow_provider.metastore.model import split_table_name
from airflow_provider.metastore.thrift.url import ThriftUrl, is_thrift_url, parse_thrift_url, shows_password

if TYPE_CHECKING:
    from airflow.sdk import Connection


log = logging.getLogger(__name__)

# Executors that run tasks on other machines, by their class names or modules in Airflow's providers.
_ELSEWHERE = re.compile(r"(?:Celery|Kubernetes|Ecs|Batch|Lambda|Edge)Executor")
_TLS = frozenset({"tls", "tls_ca", "tls_certificate", "tls_key"})


class MetastoreHook(BaseHook):
    """The catalog, its transactions and its notification log, from a connection of type ``table_metastore``.

    The connection names the metastore's database, or the servers of a Hive Metastore, ours or another one.
    Without a connection ``table_metastore_default``, the metastore is an embedded SQLite database,
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
        self._metastore: AnyMetastore | None = None

    def get_metastore(self, *, must_exist: bool = False) -> AnyMetastore:
        """The metastore; each hook opens it once.

        :param must_exist: True for a caller that only reads: a missing SQLite database is not created.
        :raises InvalidConnectionError: when the connection does not exist (the default connection may be
            missing if all tasks run on one machine), is of another type or is invalid.
        :raises NoSuchObjectError: when the database must exist, and does not.
        :raises MetastoreUnavailableError: when the database cannot be reached.
        """
        if self._metastore is None:
            connection: Connection | None = None
            try:
                connection = self.get_connection(self.metastore_conn_id)
            except AirflowNotFoundException:
                self._check_default()
            url = self._url(connection)
            if url.password:
                mask_secret(url.password)
            self._metastore = open_metastore(url.render_as_string(hide_password=False), must_exist=must_exist)
        return self._metastore

    async def aget_url(self) -> str:
        """The URL for :func:`~airflow_provider.metastore.open_metastore`, with its password.

        This is for the event loop of a triggerer; the password is masked in its logs.

        :raises InvalidConnectionError: see :meth:`get_metastore`.
        """
        connection: Connection | None = None
        try:
            connection = await self.aget_connection(self.metastore_conn_id)
        except AirflowNotFoundException:
            self._check_default()
        url = self._url(connection)
        if url.password:
            await amask_secret(url.password)
        return url.render_as_string(hide_password=False)

    def exists(self) -> bool:
        """Whether the connection exists, or, without one, the embedded database that replaces it."""
        try:
            self.get_connection(self.metastore_conn_id)
        except AirflowNotFoundException:
            return self.metastore_conn_id == self.default_conn_name and _embedded_database().exists()
        return True

    def table_connections(self) -> dict[str, str]:
        """The connections with which the page reads the metastore's tables.

        :return: ``storage_conn_id`` and ``lock_conn_id``, if the metastore's connection names them.
        :raises InvalidConnectionError: see :meth:`get_metastore`.
        """
        try:
            extras = read_extras(self.get_connection(self.metastore_conn_id), self.conn_type)
        except AirflowNotFoundException:
            return {}
        return {name: extras[name] for name in ("storage_conn_id", "lock_conn_id") if name in extras}

    def get_conn(self) -> AnyMetastore:
        """Same as :meth:`get_metastore`."""
        return self.get_metastore()

    def test_connection(self) -> tuple[bool, str]:
        """Open the metastore and read its notification log's head.

        :return: whether it succeeded, and a sentence for people.
        """
        try:
            return True, self.get_metastore().ping()
        except (TableServiceError, OSError) as error:
            return False, f"{type(error).__name__}: {error}"

    def transaction(
        self, table: str, *, agent: str | None = None, txn_id: int | None = None
    ) -> TableTransaction:
        """A transaction with a write id for one table; it commits at the end, and aborts on an error.

        :param table: ``database.table``.
        :param agent: a description of the writer, such as a task instance.
        :param txn_id: an open transaction that its own caller ends; a new one when None.
        :raises InvalidInputError: when the table's name is not ``database.table``.
        """
        database, name = split_table_name(table)
        return table_transaction(self.get_metastore(), database, name, agent=agent, txn_id=txn_id)

    def allocate_write_id(self, txn_id: int, table: str) -> int:
        """The write id of a transaction in a table; further calls return the same one.

        :param txn_id: an open transaction.
        :param table: ``database.table``.
        :raises NoSuchTransactionError: when the transaction is not open.
        """
        return self.get_metastore().allocate_table_write_id(txn_id, *split_table_name(table))

    def _check_default(self) -> None:
        """Only the default connection may be missing."""
        if self.metastore_conn_id != self.default_conn_name:
            raise InvalidConnectionError(
                f"connection {self.metastore_conn_id!r} does not exist; create it with type "
                "'table_metastore', or leave the argument out for the embedded database",
                connection=self.metastore_conn_id,
            ) from None

    def _url(self, connection: Connection | None) -> URL | ThriftUrl:
        if connection is None:
            _check_one_machine()
            _tell_embedded(_embedded_database())
            return URL.create("sqlite", database=str(_embedded_database()))
        extras = read_extras(connection, self.conn_type)
        try:
            return _given_url(connection, extras)
        except InvalidInputError as error:
            # From None: SQLAlchemy's own error repeats the text that it could not parse, with passwords.
            raise InvalidConnectionError(
                f"connection {connection.conn_id!r}: {error}. A connection of type 'table_metastore' takes "
                f"the extras {' and '.join(sorted(form_fields(self.conn_type)))}, or the fields host, port, "
                "login, password and schema",
                connection=connection.conn_id,
                extra="url" if "url" in extras else "dialect",
            ) from None


def has_password(url: str) -> bool:
    """Whether the URL of a database or of servers contains a password."""
    if is_thrift_url(url):
        return shows_password(url)
    try:
        parsed = parse_url(url)
    except InvalidInputError:
        return False  # the caller that opens the URL raises the error
    return bool(parsed.password or "password" in parsed.query)


def _given_url(connection: Connection, extras: Mapping[str, Any]) -> URL | ThriftUrl:
    """The URL from the connection, in one field or from parts.

    :raises InvalidInputError: when it is invalid or contains a password: Airflow hides a
        connection's password in its API and its pages, but it shows extras.
    """
    url = extras.get("url")
    if url is not None and has_password(url):
        raise InvalidInputError(
            "the extra 'url' has a password in it, which Airflow would show; put it into the "
            "connection's field 'Password'"
        )
    tls = {name: value for name, value in extras.items() if name in _TLS and value != "off"}
    if is_thrift_url(url or f"{extras.get('dialect')}:"):
        port = f":{connection.port}" if connection.port else ""
        return parse_thrift_url(
            url or f"thrift://{connection.host or ''}{port}",
            username=connection.login,
            password=connection.password,
            **tls,
        )
    if tls:
        raise InvalidInputError(f"{' and '.join(sorted(tls))} are for a metastore by Thrift")
    if url is not None:
        parsed = parse_url(url)
        return parsed.set(password=connection.password) if connection.password else parsed
    made = URL.create(
        extras.get("dialect", "sqlite"),
        connection.login or None,
        connection.password or None,
        connection.host or None,
        connection.port,
        connection.schema or None,
    )
    return parse_url(made.render_as_string(hide_password=False))


def _embedded_database() -> Path:
    return Path(get_airflow_home()) / "table_services" / "metastore.db"


@cache
def _tell_embedded(file: Path) -> None:
    """Log the metastore that replaces the connection, once a process."""
    message = "no connection %s: the metastore is the file %s of this machine"
    log.info(message, MetastoreHook.default_conn_name, file)


def _check_one_machine() -> None:
    """Refuse the embedded database if each worker would have a database of its own.

    :raises InvalidConnectionError: when the executor runs tasks on other machines.
    """
    executors = conf.get("core", "executor")
    if found := _ELSEWHERE.search(executors):
        raise InvalidConnectionError(
            f"without a connection {MetastoreHook.default_conn_name!r} the metastore is the file "
            f"{_embedded_database()} of this machine, and executor {executors!r} runs tasks on several "
            f"({found[0]}): each would have a metastore of its own; create the connection, with type "
            "'table_metastore', for a database that all workers reach",
            connection=MetastoreHook.default_conn_name,
        )
