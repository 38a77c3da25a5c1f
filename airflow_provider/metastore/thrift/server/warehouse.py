"""Folders of databases and of managed tables, when Hive's clients leave them to the metastore."""

from __future__ import annotations

import logging

from fsspec.core import url_to_fs

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.metastore.model import MANAGED_TABLE, DatabaseInfo, TableInfo

log = logging.getLogger(__name__)


class Warehouse:
    """Says where things go, and keeps the folders of managed tables if it was asked to.

    :param root: folder or URL under which databases go that have no location of their own; None for none.
    :param manages_folders: make, move and delete the folders of managed tables as Hive does. Otherwise no
        file is ever touched: Spark's ``DROP TABLE`` then leaves the data there.
    """

    def __init__(self, root: str | None, *, manages_folders: bool = False) -> None:
        self._root = root.rstrip("/") if root else None
        self._manages = manages_folders

    def database_location(self, database: DatabaseInfo) -> str | None:
        """Where a database's tables go by default; None when nobody said."""
        if database.location or self._root is None:
            return database.location
        return self._root if database.name == "default" else f"{self._root}/{database.name}.db"

    def table_location(self, database: DatabaseInfo, table: str) -> str:
        """Where a table goes whose client says nothing.

        :raises InvalidInputError: when neither the database nor the warehouse has a location.
        """
        folder = self.database_location(database)
        if folder is None:
            raise InvalidInputError(
                f"table {database.name}.{table} has no location and database {database.name!r} has none to "
                "put it into; give one of them a location, or start the metastore with --warehouse",
                table=f"{database.name}.{table}",
            )
        return f"{folder.rstrip('/')}/{table}"

    def make(self, table: TableInfo, location: str | None = None) -> None:
        """Make a managed table's folder, or one in it."""
        if self._manages_of(table):
            files, path = url_to_fs(location or table.location)
            files.makedirs(path, exist_ok=True)

    def remove(self, table: TableInfo, location: str | None = None) -> None:
        """Delete the folder of a managed table that was dropped, or of a partition of it."""
        if self._manages_of(table):
            files, path = url_to_fs(location or table.location)
            if files.exists(path):
                files.rm(path, recursive=True)
                log.info("deleted %s, which belonged to table %s", path, table.full_name)

    def moves_with_name(self, table: TableInfo, database: DatabaseInfo) -> bool:
        """Whether a rename takes the table's folder along: it is managed, and where its name says."""
        default = self.database_location(database)
        return (
            self._manages_of(table)
            and default is not None
            and _path(table.location) == _path(f"{default.rstrip('/')}/{table.name}")
        )

    def moves_with_values(self, table: TableInfo, location: str, name: str) -> bool:
        """The same for a partition.

        :param location: the partition's folder.
        :param name: the partition's name.
        """
        return self._manages_of(table) and _path(location) == _path(f"{table.location.rstrip('/')}/{name}")

    def move(self, source: str, target: str) -> None:
        """Move a folder."""
        files, path = url_to_fs(source)
        if files.exists(path):
            files.mv(path, url_to_fs(target)[1], recursive=True)

    def _manages_of(self, table: TableInfo) -> bool:
        return self._manages and table.table_type == MANAGED_TABLE and bool(table.location)


def _path(location: str) -> str:
    # Clients write `file:/x`, `file:///x` and `/x` for one folder.
    return str(url_to_fs(location)[1]).rstrip("/")
