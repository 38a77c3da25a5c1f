"""A client of a Hive Metastore server: ours, or a Hive of version 2 to 4."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from airflow_provider.exceptions import UnsupportedByServerError
from airflow_provider.metastore.thrift.client.catalog_client import CatalogClient
from airflow_provider.metastore.thrift.client.lock_client import LockClient
from airflow_provider.metastore.thrift.client.notification_client import NotificationClient
from airflow_provider.metastore.thrift.client.partition_client import PartitionClient
from airflow_provider.metastore.thrift.client.replication_client import TargetByServer
from airflow_provider.metastore.thrift.client.transaction_client import TransactionClient


def _unsupported(method: str) -> Callable[..., NoReturn]:
    def refuse(metastore: ThriftMetastore, *arguments: object, **options: object) -> NoReturn:
        raise UnsupportedByServerError(
            f"Hive's protocol has no word for {method}(), and {metastore.url} is asked by it; open the "
            "metastore by the SQLAlchemy URL of its database",
            method=method,
        )

    refuse.__name__ = method
    return refuse


class ThriftMetastore(CatalogClient, PartitionClient, TransactionClient, LockClient, NotificationClient):
    """Implements the methods of :class:`~airflow_provider.metastore.api.Metastore` by calls of a server.

    The errors are the same, too. All methods may be called from any thread and after a fork. All of them
    raise :class:`~airflow_provider.exceptions.MetastoreUnavailableError` when no server can be reached. The
    client never sends a request twice that must not be done twice; then the error says that its answer was
    lost.

    A method that only the database's owner can serve raises
    :class:`~airflow_provider.exceptions.UnsupportedByServerError`. A method that only a server of ours has,
    for example about consumers of the notification log, raises it from a Hive.

    :param url: see :func:`~airflow_provider.metastore.thrift.url.parse_thrift_url`.
    :param timeout_seconds: seconds to wait for a connection, and for each answer.
    :raises InvalidInputError: when the URL has another form, or a file that it names cannot be used.
    """

    def replication_target(self) -> TargetByServer:
        """See :meth:`AnyMetastore.replication_target`."""
        return TargetByServer(self._server)

    purge_events = _unsupported("purge_events")
    remove_timed_out_locks = _unsupported("remove_timed_out_locks")

    def ping(self) -> str:
        """Ask for the server's version.

        :return: one line for people.
        """
        return f"{self.url}: Hive Metastore {self._server.read('getVersion')}"
