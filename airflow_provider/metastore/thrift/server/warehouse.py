"""The folders of databases, tables and partitions, when Hive's clients leave them to the metastore."""

from __future__ import annotations

import logging
import os
import posixpath
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from fsspec.core import url_to_fs
from fsspec.utils import get_protocol

from airflow_provider.exceptions import InvalidInputError, MetastoreError
from airflow_provider.metastore.model import MANAGED_TABLE, DatabaseInfo, TableInfo

log = logging.getLogger(__name__)

# Other schemes of the same file system.
_SAME = {"s3a": "s3", "s3n": "s3", "local": "file", "gcs": "gs"}


class Warehouse:
    """Chooses the locations of databases, tables and partitions, and manages their folders if it has to.

    It creates folders on the file systems of the warehouse and of the managed locations. It moves and deletes
    folders only below one of these, after it has resolved links and ``..``.

    :param root: folder or URL of databases that have no location of their own; None for none.
    :param manages_folders: create folders of databases and tables, move and delete those of managed tables,
        as Hive does. Otherwise the server never touches a file: Spark's ``DROP TABLE`` then leaves the data.
    :param managed_locations: folders or URLs outside of the warehouse below which it manages folders, too.
    :raises InvalidInputError: when ``manages_folders`` comes without a root and without a location.
    """

    def __init__(
        self, root: str | None, *, manages_folders: bool = False, managed_locations: Sequence[str] = ()
    ) -> None:
        self._root = root.rstrip("/") if root else None
        self._manages = manages_folders
        listed = [*([self._root] if self._root else []), *managed_locations]
        if manages_folders and not listed:
            raise InvalidInputError(
                "--manage-folders deletes only below folders that are listed, and none is: give --warehouse "
                "or --managed-location"
            )
        self._listed = [_place(one) for one in listed] if manages_folders else []

    def database_location(self, database: DatabaseInfo) -> str | None:
        """The default location of a database's tables; None when there is none."""
        return database.location or self.default_location(database.name)

    def default_location(self, database: str) -> str | None:
        """The location of a database that has none of its own; None without a warehouse."""
        if self._root is None:
            return None
        return self._root if database == "default" else f"{self._root}/{database}.db"

    def table_location(self, database: DatabaseInfo, table: str) -> str:
        """The location of a table whose client gives none.

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

    @contextmanager
    def made(self, *locations: str | None) -> Iterator[None]:
        """Create folders before the commit of their objects; remove the new ones when the commit fails.

        :raises MetastoreError: when a folder cannot be created; then nothing may be committed.
        """
        with ExitStack() as undo:
            for location in locations:
                if location and self._is_on_listed_file_system(location):
                    self._make(location, undo)
            yield
            undo.pop_all()

    def remove(self, location: str, of: str) -> None:
        """Delete the folder of a dropped object. Files that cannot be deleted stay, and the log names them.

        :param of: the object that the folder belonged to, for the log.
        """
        if not self._manages or not location:
            return
        if not self._is_listed(location):
            log.warning(
                "%s was dropped, and its folder %s stays: it is not below the warehouse; list it by "
                "--managed-location to have it deleted",
                of,
                location,
            )
            return
        try:
            files, path = url_to_fs(location)
            if files.exists(path):
                files.rm(path, recursive=True)
                log.info("deleted %s, which belonged to %s", path, of)
        except Exception:
            log.exception("%s was dropped, and its folder %s could not be deleted", of, location)

    def empty(self, location: str, of: str) -> None:
        """Delete the content of a folder, before the event that its rows are deleted.

        :param of: the table that the folder belongs to.
        :raises InvalidInputError: when the folder is not below a listed one.
        :raises MetastoreError: when a file cannot be deleted.
        """
        if not self._is_listed(location):
            raise InvalidInputError(
                f"table {of}: {location} is not below the warehouse, so its files are not deleted; list the "
                "place by --managed-location",
                table=of,
                location=location,
            )
        files, path = url_to_fs(location)
        try:
            for one in files.ls(path, detail=False) if files.isdir(path) else ():
                files.rm(one, recursive=True)
        except OSError as error:
            raise MetastoreError(f"table {of}: {location} cannot be emptied: {_reason(error)}") from error

    def remove_empty(self, location: str | None) -> None:
        """Delete the folder of a dropped database, if it is empty."""
        if location and self._is_listed(location):
            _remove_empty(*url_to_fs(location))

    def owns_folder(self, table: TableInfo) -> bool:
        """Whether the folder of a table is moved and deleted with the table, because it is managed."""
        return self._manages and table.table_type == MANAGED_TABLE and bool(table.location)

    def moves_with_name(self, table: TableInfo, database: DatabaseInfo) -> bool:
        """Whether a rename moves the table's folder: the table is managed, and its folder has its name."""
        default = self.database_location(database)
        return (
            self.owns_folder(table)
            and default is not None
            and self._is_listed(table.location)
            and _place(table.location) == _place(f"{default.rstrip('/')}/{table.name}")
        )

    def moves_with_values(self, table: TableInfo, location: str, name: str) -> bool:
        """Whether a change of a partition's values moves its folder, by the rule of :meth:`moves_with_name`.

        :param location: the partition's folder.
        :param name: the partition's name.
        """
        return (
            self.owns_folder(table)
            and self._is_listed(location)
            and _place(location) == _place(f"{table.location.rstrip('/')}/{name}")
        )

    @contextmanager
    def moved(self, source: str, target: str) -> Iterator[None]:
        """Move a folder before the commit of its new location; move it back when the commit fails.

        :raises MetastoreError: when it cannot be moved, or the target is not below a listed location.
        """
        if not self._is_listed(target):
            raise InvalidInputError(
                f"{source} cannot move to {target}, which is not below the warehouse; list the place by "
                "--managed-location",
                location=target,
            )
        files, path = url_to_fs(source)
        new = url_to_fs(target)[1]
        if not files.exists(path):
            yield
            return
        try:
            files.mv(path, new, recursive=True)
        except OSError as error:
            raise MetastoreError(f"{source} cannot be moved to {target}: {_reason(error)}") from error
        try:
            yield
        except BaseException:
            files.mv(new, path, recursive=True)
            raise

    def _make(self, location: str, undo: ExitStack) -> None:
        files, path = url_to_fs(location)
        try:
            if files.isdir(path):
                return
            files.makedirs(path, exist_ok=True)
        except OSError as error:
            raise MetastoreError(
                f"the folder {location} cannot be made, so nothing was registered: {_reason(error)}"
            ) from error
        undo.callback(_remove_empty, files, path)

    def _is_on_listed_file_system(self, location: str) -> bool:
        protocol = _protocol(location)
        return ".." not in location.split("/") and any(protocol == one for one, _ in self._listed)

    def _is_listed(self, location: str) -> bool:
        """Whether a folder is below a listed one, and is not itself a listed one."""
        if not self._is_on_listed_file_system(location):
            return False
        protocol, path = _place(location)
        return any(protocol == one and path.startswith(f"{folder}/") for one, folder in self._listed)


def _protocol(location: str) -> str:
    # A chained URL (`zip::file:/x`) is never below a listed location.
    if "::" in location:
        return location
    protocol = str(get_protocol(location))
    return _SAME.get(protocol, protocol)


def _place(location: str) -> tuple[str, str]:
    """The file system and the path without links, because clients write one folder in several ways."""
    protocol = _protocol(location)
    path = str(url_to_fs(location)[1])
    return protocol, os.path.realpath(path) if protocol == "file" else posixpath.normpath(path)


def _remove_empty(files: Any, path: str) -> None:
    with suppress(Exception):
        files.rmdir(path)


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__
