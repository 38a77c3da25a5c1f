"""Folders of databases, tables and partitions, when Hive's clients leave them to the metastore."""

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

# Names of one file system.
_SAME = {"s3a": "s3", "s3n": "s3", "local": "file", "gcs": "gs"}


class Warehouse:
    """Says where things go, and keeps their folders if it was asked to.

    Folders are made on the file systems of the warehouse and of the managed locations. They are moved and
    deleted only below one of these, after links and ``..`` are resolved.

    :param root: folder or URL under which databases go that have no location of their own; None for none.
    :param manages_folders: make folders of databases and tables, move and delete those of managed tables, as
        Hive does. Otherwise no file is ever touched: Spark's ``DROP TABLE`` then leaves the data there.
    :param managed_locations: folders or URLs outside of the warehouse below which folders are managed, too.
    :raises InvalidInputError: when folders are to be managed, and neither a root nor a location is given.
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
        """Where a database's tables go by default; None when nobody said."""
        return database.location or self.default_location(database.name)

    def default_location(self, database: str) -> str | None:
        """Where the tables of a database go that has no location of its own; None without a warehouse."""
        if self._root is None:
            return None
        return self._root if database == "default" else f"{self._root}/{database}.db"

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

    @contextmanager
    def made(self, *locations: str | None) -> Iterator[None]:
        """Make folders before what they are for is committed; when that fails, the new ones are removed.

        :raises MetastoreError: when one cannot be made; then nothing may be committed.
        """
        with ExitStack() as undo:
            for location in locations:
                if location and self._is_on_listed_file_system(location):
                    self._make(location, undo)
            yield
            undo.pop_all()

    def remove(self, location: str, of: str) -> None:
        """Delete the folder of something that was dropped; what cannot be deleted is logged, and stays.

        :param of: what it belonged to, for the log.
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
        """Delete what is in a folder, before it is told that its rows are gone.

        :param of: the table that it belongs to.
        :raises InvalidInputError: when the folder is not below a listed one.
        :raises MetastoreError: when something cannot be deleted.
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
        """Delete the folder of a database that was dropped, unless something is in it."""
        if location and self._is_listed(location):
            _remove_empty(*url_to_fs(location))

    def owns_folder(self, table: TableInfo) -> bool:
        """Whether the folder of a table is moved and deleted with it: the table is managed."""
        return self._manages and table.table_type == MANAGED_TABLE and bool(table.location)

    def moves_with_name(self, table: TableInfo, database: DatabaseInfo) -> bool:
        """Whether a rename takes the table's folder along: it is managed, and where its name says."""
        default = self.database_location(database)
        return (
            self.owns_folder(table)
            and default is not None
            and self._is_listed(table.location)
            and _place(table.location) == _place(f"{default.rstrip('/')}/{table.name}")
        )

    def moves_with_values(self, table: TableInfo, location: str, name: str) -> bool:
        """The same for a partition.

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
        """Move a folder before its new place is committed; when that fails, it moves back.

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
        """Whether a folder is below a listed one, and is none of those itself."""
        if not self._is_on_listed_file_system(location):
            return False
        protocol, path = _place(location)
        return any(protocol == one and path.startswith(f"{folder}/") for one, folder in self._listed)


def _protocol(location: str) -> str:
    # One in another's name (`zip::file:/x`) is none that can be listed.
    if "::" in location:
        return location
    protocol = str(get_protocol(location))
    return _SAME.get(protocol, protocol)


def _place(location: str) -> tuple[str, str]:
    """The file system, and the path there without links. Clients write one folder in several ways."""
    protocol = _protocol(location)
    path = str(url_to_fs(location)[1])
    return protocol, os.path.realpath(path) if protocol == "file" else posixpath.normpath(path)


def _remove_empty(files: Any, path: str) -> None:
    with suppress(Exception):
        files.rmdir(path)


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__
