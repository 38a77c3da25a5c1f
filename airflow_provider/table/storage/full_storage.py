"""Storage that has no room for a file: which errors say so, and what there is to do."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from airflow_provider.exceptions import StorageFullError
from airflow_provider.table.storage.storage import Storage

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def storage_full_errors(storage: Storage, path: str) -> Iterator[None]:
    """Within it a file is written; other errors than those of full storage go through as they are.

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
