"""The hook for a pair of metastores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import BaseHook

from airflow_provider.hooks.metastore import MetastoreHook
from airflow_provider.hooks.table import TableHook
from airflow_provider.replication import (
    ReplicationLag,
    ReplicationPolicy,
    ReplicationSettings,
    Replicator,
    replication_lag,
)


class ReplicationHook(BaseHook):
    """A replication between two metastores, by two connections of type ``table_metastore``.

    Each connection names a metastore's database, or its servers.

    :param source_metastore_conn_id: connection of the source's metastore.
    :param target_metastore_conn_id: connection of the target's metastore.
    :param source_storage_conn_id: connection of the source tables' storage; see :class:`TableHook`.
    :param target_storage_conn_id: connection of the target tables' storage; see :class:`TableHook`.
    """

    def __init__(
        self,
        source_metastore_conn_id: str,
        target_metastore_conn_id: str,
        source_storage_conn_id: str | None = None,
        target_storage_conn_id: str | None = None,
    ) -> None:
        super().__init__()
        self.source = MetastoreHook(source_metastore_conn_id)
        self.target = MetastoreHook(target_metastore_conn_id)
        self._source_storage = TableHook(source_metastore_conn_id, source_storage_conn_id)
        self._target_storage = TableHook(target_metastore_conn_id, target_storage_conn_id)

    def get_policy(
        self, name: str, databases: Mapping[str, str], locations: Mapping[str, str]
    ) -> ReplicationPolicy:
        """The policy of a replication, with the arguments of the storages' file systems.

        :param name: name of the replication.
        :param databases: the target's database for each database of the source.
        :param locations: the target's folder or URL for each folder or URL of the source.
        :raises InvalidInputError: see :class:`ReplicationPolicy`.
        :raises InvalidConnectionError: when a storage connection does not exist, or is invalid.
        """
        options: list[dict[str, Any]] = [
            each.storage_options() for each in (self._source_storage, self._target_storage)
        ]
        return ReplicationPolicy(name, dict(databases), dict(locations), *options)

    def get_replicator(
        self, policy: ReplicationPolicy, settings: ReplicationSettings | None = None
    ) -> Replicator:
        """A replicator of a policy; see :class:`Replicator`.

        :raises InvalidInputError: when both metastores are the same.
        :raises InvalidConnectionError: when a connection does not exist, or is invalid.
        :raises MetastoreUnavailableError: when a database cannot be reached.
        """
        return Replicator(policy, self.source.get_metastore(), self.target.get_metastore(), settings=settings)

    def get_lag(self, policy: str) -> ReplicationLag:
        """How far a target is behind its source; see :func:`replication_lag`.

        :raises NoSuchObjectError: when there is no such replication.
        """
        return replication_lag(policy, self.source.get_metastore(), self.target.get_metastore())
