"""The whole interface of a metastore, from its parts."""

from __future__ import annotations

from typing import Protocol

from airflow_provider.metastore.interface.catalog import Catalog
from airflow_provider.metastore.interface.locks import Locks
from airflow_provider.metastore.interface.notification_log import NotificationLog
from airflow_provider.metastore.interface.replication import ReplicationTarget
from airflow_provider.metastore.interface.transactions import Transactions


class AnyMetastore(Catalog, Transactions, Locks, NotificationLog, Protocol):
    """Databases, tables, partitions, transactions, write ids, locks and the notification log.

    :class:`~airflow_provider.metastore.api.Metastore` implements it on a database, and
    :class:`~airflow_provider.metastore.thrift.client.ThriftMetastore` by asking a server. Code that works
    with one works with the other. All methods may be called from any thread (in async code through
    :func:`asyncio.to_thread`) and after a fork. All of them raise
    :class:`~airflow_provider.exceptions.MetastoreUnavailableError` when the database or the server cannot be
    reached within the timeout.
    """

    @property
    def url(self) -> str:
        """The metastore's URL, with ``***`` for its secrets."""

    def replication_target(self) -> ReplicationTarget:
        """The requests of replicators whose target this metastore is."""

    def ping(self) -> str:
        """Ask whether the metastore answers.

        :return: one line for people.
        """

    def close(self) -> None:
        """Close idle connections; the next call opens new ones."""
