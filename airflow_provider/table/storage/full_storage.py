"""Full storage: the errors that it raises, and the remedy."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from airflow_provider.exceptions import StorageFullError
from airflow_provider.table.storage.storage import Storage

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def storage_full_errors(storage: Storage, path: str) -> Iterator[None]:
    """A context that writes a file and turns the errors of full storage into :class:`StorageFullError`.

    Other errors pass unchanged.

    :param storage: the table's storage.
    :param path: path of the file, relative to the table.
    :raises StorageFullError: when there is no room for the file.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise StorageFullError(
            f"there is no room for {storage.url(path)}: {error}; free space there, or raise the quota or the "
            "limit of a file's size, and run the write again: nothing of it is visible",
            path=path,
            errno=error.errno,
        ) from error


@contextmanager
def temporary_storage_full_errors(instead: str) -> Iterator[None]:
    """The same for a temporary file of this process.

    :param instead: what else makes the file smaller, for people.
    :raises StorageFullError: when there is no room for the file.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        folder = tempfile.gettempdir()
        raise StorageFullError(
            f"there is no room for a temporary file in {folder}: {error}; free space there, name another "
            f"folder by TMPDIR, or {instead}",
            path=folder,
            errno=error.errno,
        ) from error
