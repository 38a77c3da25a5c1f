"""A Hive Metastore by its wire protocol: ours, or a Hive of version 2 to 4."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from airflow_provider.exceptions import UnsupportedByServerError
from airflow_provider.metastore.thrift.client.catalog_client import CatalogClient
from airflow_provider.metastore.thrift.client.lock_client import LockClient
from airflow_provider.metastore.thrift.client.notification_client import NotificationClient
from airflow_provider.metastore.thrift.client.partition_client import PartitionClient
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
    """The methods of :class:`~airflow_provider.metastore.api.Metastore`, asked of a server.

    Errors are the same, too. All methods may be called from any thread and after a fork. All of them
    raise :class:`~airflow_provider.exceptions.MetastoreUnavailableError` when no server can be reached;
    one that must not be done twice is not sent twice, and the error says when its answer got lost.

    What only the database's keeper does raises
    :class:`~airflow_provider.exceptions.UnsupportedByServerError`; so does, from a Hive, what only a server
    of ours has: consumers of the notification log, for example.

    :param url: see :func:`~airflow_provider.metastore.thrift.url.parse_thrift_url`.
    :param timeout_seconds: how long a connection may take to be made, and an answer to come.
    :raises InvalidInputError: when the URL has another form, or a file that it names cannot be used.
    """

    purge_events = _unsupported("purge_events")
    remove_timed_out_locks = _unsupported("remove_timed_out_locks")

    def ping(self) -> str:
        """Ask for the server's version.

        :return: one line for people.
        """
        return f"{self.url}: Hive Metastore {self._server.read('getVersion')}"
