"""What surrounds every ``execute``: which errors Airflow retries, and what its stats are told."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from airflow.sdk.exceptions import AirflowFailException

from airflow_provider.exceptions import TableServiceError
from airflow_provider.hooks.stats import task_stats

_P = ParamSpec("_P")
_R = TypeVar("_R")


def fail_unless_retryable(
    execute: Callable[Concatenate[Any, _P], _R],
) -> Callable[Concatenate[Any, _P], _R]:
    """Decorator of ``execute``: an error of ours that is not ``retryable`` fails the task at once.

    The error's class decides; see :mod:`airflow_provider.exceptions`. A retryable error, and an error of
    another library, keeps its type, and Airflow retries it as the task says (``retries``, ``retry_policy``).
    What the task measures goes to Airflow's stats (:mod:`airflow_provider.hooks.stats`).

    :raises AirflowFailException: in place of such an error, and caused by it; its text begins with the
        error's type.
    """

    @functools.wraps(execute)
    def wrapped(self: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            with task_stats(self):
                return execute(self, *args, **kwargs)
        except TableServiceError as error:
            if error.retryable:
                raise
            raise AirflowFailException(f"{type(error).__name__}: {error}") from error

    return wrapped
