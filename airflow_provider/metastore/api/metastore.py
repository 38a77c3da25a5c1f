"""The metastore on a database: the class :class:`Metastore`."""

from __future__ import annotations

from airflow_provider.exceptions import NoSuchObjectError
from airflow_provider.metastore.api.catalog_api import CatalogApi
from airflow_provider.metastore.api.lock_api import LockApi
from airflow_provider.metastore.api.notification_api import NotificationApi
from airflow_provider.metastore.api.transaction_api import TransactionApi
from airflow_provider.metastore.database import (
    SCHEMA_REVISION,
    SqlDatabase,
    database_exists,
    mask_url,
    parse_url,
)
from airflow_provider.metastore.replication import TargetInDatabase


def open_embedded_metastore(
    url: str, *, timeout_seconds: float = 30.0, must_exist: bool = False
) -> Metastore:
    """Open a metastore's database, create its schema if it is new, and migrate it if it is old.

    Any number of processes may do this at once.

    :param url: SQLAlchemy URL: ``sqlite:////absolute/path.db`` (on a local disk; folders are made) or
        ``postgresql+<driver>://user:password@host/database``.
    :param timeout_seconds: seconds that a call may wait for other processes.
    :param must_exist: True for a caller that only reads: then a missing SQLite file is an error.
    :raises NoSuchObjectError: when the database must exist, and does not.
    :raises InvalidInputError: when the URL cannot be one of a metastore.
    :raises MetastoreUnavailableError: when the database cannot be reached.
    :raises MetastoreError: when the schema is of a newer release.
    """
    if must_exist and not database_exists(url):
        raise NoSuchObjectError(
            f"metastore {mask_url(parse_url(url))}: there is no such database yet; check the URL, or create "
            "a table first, which makes it"
        )
    sql = SqlDatabase(url, timeout_seconds)
    sql.upgrade_schema()
    return Metastore(sql)


class Metastore(CatalogApi, TransactionApi, LockApi, NotificationApi):
    """A metastore on a database: :class:`~airflow_provider.metastore.interface.AnyMetastore`.

    Every change writes its notification event in the same database transaction, so that both happen, or
    neither. All methods raise :class:`~airflow_provider.exceptions.MetastoreUnavailableError` when the
    database cannot be reached, or when others keep it locked, for longer than the timeout.

    :param sql: the database; :func:`open_metastore` makes it.
    """

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @property
    def url(self) -> str:
        """The database's URL, with ``***`` for its secrets."""
        return self._sql.masked_url

    @property
    def sql(self) -> SqlDatabase:
        """The database, for operations made of several functions of one connection."""
        return self._sql

    def replication_target(self) -> TargetInDatabase:
        """See :meth:`AnyMetastore.replication_target`."""
        return TargetInDatabase(self._sql)

    def ping(self) -> str:
        """Ask the database for its last event.

        :return: one line for people: the URL without secrets, the schema's revision, the last event id.
        """
        return f"{self.url}: schema {SCHEMA_REVISION}, last event {self.current_event_id()}"

    def close(self) -> None:
        """Close idle connections; the next call opens new ones."""
        self._sql.close()
