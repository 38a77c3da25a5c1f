"""The metastores of connections of type ``table_metastore``, and their registered tables."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

from airflow.models import Connection
from airflow.utils.session import create_session
from sqlalchemy import select

from airflow_provider.exceptions import TableServiceError
from airflow_provider.hooks import LockProviderHook, MetastoreHook, TableHook
from airflow_provider.locks import LockProvider, open_lock
from airflow_provider.metastore import AnyMetastore
from airflow_provider.metastore.model import is_location, split_table_name
from airflow_provider.replication import is_source_of, replication_lag, replications
from airflow_provider.reports import TableHistory
from airflow_provider.table.hudi_table import HudiTable

_FROM_ENVIRONMENT = "AIRFLOW_CONN_"
_PROVIDER = "spark.sql.sources.provider"


@dataclass(frozen=True)
class KnownTable:
    """A table that the page can show.

    :param metastore: id of its metastore's connection.
    :param name: ``database.table``, or its location.
    :param location: absolute path or URL.
    :param storage_conn_id: see :class:`~airflow_provider.hooks.TableHook`.
    :param lock_conn_id: see :class:`~airflow_provider.hooks.LockProviderHook`.
    """

    metastore: str
    name: str
    location: str
    storage_conn_id: str | None = None
    lock_conn_id: str = LockProviderHook.default_conn_name

    @property
    def place(self) -> str:
        """The table's storage: reads of one storage share threads."""
        split = urlsplit(self.location)
        return f"{split.scheme}://{split.netloc}"


class Metastores:
    """The metastores of this Airflow, each opened once, and the tables that were read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hooks: dict[str, MetastoreHook] = {}
        self._histories: dict[KnownTable, TableHistory] = {}

    def conn_ids(self) -> list[str]:
        """Ids of the connections of type ``table_metastore``: those in Airflow's database and in the
        environment, and the default one if its metastore exists."""
        with create_session() as session:
            query = select(Connection.conn_id).where(Connection.conn_type == MetastoreHook.conn_type)
            found = set(session.scalars(query))
        for name, value in os.environ.items():
            if name.startswith(_FROM_ENVIRONMENT) and _type_of(value) == MetastoreHook.conn_type:
                found.add(name.removeprefix(_FROM_ENVIRONMENT).lower())
        if MetastoreHook().exists():
            found.add(MetastoreHook.default_conn_name)
        return sorted(found)

    def opened(self, conn_id: str) -> AnyMetastore:
        """A metastore; see :meth:`~airflow_provider.hooks.MetastoreHook.get_metastore`."""
        with self._lock:
            hook = self._hooks.setdefault(conn_id, MetastoreHook(conn_id))
        return hook.get_metastore(must_exist=True)

    def tables(self, conn_id: str) -> list[KnownTable]:
        """The Hudi tables that are registered in a metastore, by name."""
        metastore = self.opened(conn_id)
        conns = self._hooks[conn_id].table_connections()
        found = []
        for database in metastore.list_databases():
            for name in metastore.list_tables(database):
                info = metastore.get_table(database, name)
                if info.parameters.get(_PROVIDER, "hudi").lower() == "hudi":
                    found.append(KnownTable(conn_id, f"{database}.{name}", info.location, **conns))
        return found

    def table(self, conn_id: str, name: str) -> KnownTable:
        """A table by its name in a metastore, or by its location."""
        if is_location(name):
            return KnownTable(conn_id, name, name)
        info = self.opened(conn_id).get_table(*split_table_name(name))
        return KnownTable(conn_id, name, info.location, **self._hooks[conn_id].table_connections())

    def replications(self, conn_id: str, others: Sequence[str]) -> list[dict[str, Any]]:
        """The replications into a metastore, each with its lag if ``others`` contains its source.

        :param conn_id: the target's connection.
        :param others: ids of the connections among which the method looks for the sources.
        :return: JSON-able: see :class:`ReplicationLag`, and ``source``: a connection, or a metastore's URL.
        """
        target, found = self.opened(conn_id), []
        for known in replications(target):
            lag = None
            for other in others:
                # A metastore that cannot be reached says so in its own row.
                with suppress(TableServiceError):
                    if other != conn_id and is_source_of(known.policy, source := self.opened(other), target):
                        hook = TableHook(other, self._hooks[other].table_connections().get("storage_conn_id"))
                        options = hook.storage_options()
                        lag = replication_lag(known.policy, source, target, source_options=options).to_dict()
                        found.append({"source": other, **lag})
                        break
            if lag is None:
                found.append({"source": known.source, **asdict(known), "replicator": known.lease_owner})
        return found

    def history(self, table: KnownTable) -> TableHistory:
        """A table with the cache of earlier reads; its properties are read again.

        :raises NotATableError: when there is no table at the location.
        """
        with self._lock:
            history = self._histories.get(table)
        if history is None:
            options = TableHook(storage_conn_id=table.storage_conn_id).storage_options()
            history = TableHistory(HudiTable.open(table.location, options))
            with self._lock:
                return self._histories.setdefault(table, history)
        history.table = HudiTable.at(history.table.storage)
        return history

    def lock_of(self, known: KnownTable, table: HudiTable) -> LockProvider:
        """A contender for a table's lock, made as the table's operators make it."""
        config = LockProviderHook(known.lock_conn_id).lock_config(table.hudi_options.lock)
        return open_lock(config, table.storage)


def _type_of(value: str) -> str | None:
    """The type of a connection in an environment variable: JSON, or a URI."""
    if value.lstrip().startswith("{"):
        try:
            described: Any = json.loads(value)
        except ValueError:
            return None
        return described.get("conn_type") if isinstance(described, dict) else None
    return urlsplit(value).scheme.replace("-", "_") or None
