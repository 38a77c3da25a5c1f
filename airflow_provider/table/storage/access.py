"""Storages that deny access."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow_provider.exceptions import InvalidInputError


@contextmanager
def told_of_access(location: str) -> Iterator[None]:
    """A context for the first access to a storage: if it is denied, the error names the remedy.

    :param location: location of the table.
    :raises InvalidInputError: instead of the file system's own error.
    """
    try:
        yield
    except Exception as error:
        # Each client library has a class of its own for missing credentials; botocore's is no OSError.
        if not isinstance(error, PermissionError) and "Credentials" not in type(error).__name__:
            raise
        raise InvalidInputError(
            f"table location {location!r} cannot be accessed: {type(error).__name__}: {error}; give the file "
            "system's credentials, as the extra of storage_conn_id or as storage_options",
            location=location,
        ) from error
