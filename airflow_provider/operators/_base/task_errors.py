"""Which errors Airflow retries."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from airflow.sdk.exceptions import AirflowFailException

from airflow_provider.exceptions import (
    AlreadyExistsError,
    InvalidInputError,
    NoSuchObjectError,
    ServiceStoppedError,
    TableError,
)

_P = ParamSpec("_P")
_R = TypeVar("_R")

_NO_RETRY_HELPS = (InvalidInputError, TableError, NoSuchObjectError, AlreadyExistsError, ServiceStoppedError)


def failing_without_retries(
    execute: Callable[Concatenate[Any, _P], _R],
) -> Callable[Concatenate[Any, _P], _R]:
    """Decorator of ``execute``: an error that the same call would meet again fails the task at once.

    That is wrong input, a table that is not what it must be, and a service that has stopped itself. All
    other errors keep their own type and are retried as the task says (``retries``, ``retry_policy``): a
    lost conflict, a lock, a metastore or a cluster that is away, a job that died.

    :raises AirflowFailException: in place of such an error, and caused by it; its text begins
        with the error's type.
    """

    @functools.wraps(execute)
    def wrapped(self: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return execute(self, *args, **kwargs)
        except _NO_RETRY_HELPS as error:
            raise AirflowFailException(f"{type(error).__name__}: {error}") from error

    return wrapped
