"""Tables inside one another's folder: readers of the outer one take the inner one for a partition, or read
nothing at all."""

from __future__ import annotations

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.table.properties import PROPERTIES_PATH
from airflow_provider.table.storage import Storage

_FOLDER, _, _NAME = PROPERTIES_PATH.rpartition("/")


def check_not_nested(storage: Storage) -> None:
    """Make sure that a table can be made in a folder: no folder around it, or below it, is a table's.

    A look at each folder around it, and, where the folder itself holds something, a walk through the folders
    below it up to the first table. What may not be looked at is taken for no table.

    :param storage: the folder.
    :raises InvalidInputError: when one is; names that table.
    """
    for outer in storage.parents():
        try:
            is_table = outer.stat(PROPERTIES_PATH) is not None
        except (PermissionError, NotADirectoryError):
            continue
        if is_table:
            raise InvalidInputError(
                f"{storage.root} is inside the folder of the table {outer.root}, whose readers would take it "
                "for a part of that table; choose a location outside of it",
                location=storage.root,
                outer=outer.root,
            )
    for folder, files in storage.walk():
        inner, _, last = folder.rpartition("/")
        if last == _FOLDER and inner and _NAME in files:
            raise InvalidInputError(
                f"{storage.root} holds the table {storage.url(inner)} in its folder, which readers would "
                "take for a part of the new table; choose a location that holds no table",
                location=storage.root,
                inner=storage.url(inner),
            )
