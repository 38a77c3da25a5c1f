"""The hook that opens a table by its name, path or URL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import amask_secret, mask_secret

from airflow_provider.concurrency import PendingInstant, pending_instants
from airflow_provider.exceptions import InvalidConnectionError
from airflow_provider.hooks.connection_form import parse_extra
from airflow_provider.hooks.metastore import MetastoreHook
from airflow_provider.managed import ResolvedTable, resolve_table
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.reading import Increment, Order, increment
from airflow_provider.table.timeline import Timeline

if TYPE_CHECKING:
    from airflow.sdk import Connection


class TableHook(BaseHook):
    """Tables, by ``database.table`` in a metastore, or by path or URL.

    :param metastore_conn_id: connection of type ``table_metastore``; used for names only.
    :param storage_conn_id: a connection whose extra contains keyword arguments of the location's
        fsspec file system, such as keys and endpoint; none are passed when None.
    """

    def __init__(
        self,
        metastore_conn_id: str = MetastoreHook.default_conn_name,
        storage_conn_id: str | None = None,
    ) -> None:
        super().__init__()
        self.metastore_conn_id = metastore_conn_id
        self.storage_conn_id = storage_conn_id

    def resolve(self, table: str) -> ResolvedTable:
        """Find the location of a table.

        :param table: ``database.table``, an absolute path or a URL.
        :raises InvalidInputError: when ``table`` is none of these.
        :raises NoSuchObjectError: when the metastore does not know the name.
        """
        hook = MetastoreHook(self.metastore_conn_id)
        return resolve_table(table, lambda: hook.get_metastore(must_exist=True))

    def storage_options(self) -> dict[str, Any]:
        """Keyword arguments of the location's file system, masked in the task's log.

        :raises InvalidConnectionError: when the storage connection is missing or its extra is
            no JSON object.
        """
        if self.storage_conn_id is None:
            return {}
        try:
            options = parse_extra(self.get_connection(self.storage_conn_id))
        except AirflowNotFoundException:
            raise self._missing() from None
        mask_secret(list(_texts(options)))
        return options

    async def astorage_options(self) -> dict[str, Any]:
        """:meth:`storage_options` for the event loop of a triggerer."""
        if self.storage_conn_id is None:
            return {}
        try:
            connection: Connection = await self.aget_connection(self.storage_conn_id)
        except AirflowNotFoundException:
            raise self._missing() from None
        options = parse_extra(connection)
        await amask_secret(list(_texts(options)))
        return options

    def get_table(self, table: str) -> HudiTable:
        """Open a table.

        :param table: ``database.table``, an absolute path or a URL.
        :raises NoSuchObjectError: when the metastore does not know the name.
        :raises NotATableError: when there is no table at the location.
        """
        return HudiTable.open(self.resolve(table).location, self.storage_options())

    def timeline(self, table: str) -> Timeline:
        """A table's instants, completed and pending.

        :raises NotATableError: when there is no table at the location.
        """
        return self.get_table(table).timeline()

    def pending_instants(self, table: str) -> list[PendingInstant]:
        """Writes of a table that neither completed nor were rolled back.

        :raises NotATableError: when there is no table at the location.
        """
        return list(pending_instants(self.get_table(table)))

    def increment(
        self,
        table: str,
        start: str | None = None,
        *,
        order: Order | str = Order.COMPLETION,
        end: str | None = None,
    ) -> Increment:
        """The changes of a table since a checkpoint.

        :param table: ``database.table``, an absolute path or a URL.
        :param start: the ``end`` of the previous increment; None starts with a snapshot.
        :param order: see :class:`~airflow_provider.table.reading.Order`.
        :param end: the last checkpoint to read; later commits are left out.
        :raises NotATableError: when there is no table at the location.
        :raises InvalidInputError: when a checkpoint is not an instant time, or the order is unknown.
        :raises CheckpointExpiredError: when the window was archived or cleaned.
        """
        return increment(self.get_table(table), start, order=order, end=end)

    def _missing(self) -> InvalidConnectionError:
        return InvalidConnectionError(
            f"connection {self.storage_conn_id!r} does not exist; create it with the file system's keyword "
            "arguments as its extra, or leave storage_conn_id out",
            connection=self.storage_conn_id,
        )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
