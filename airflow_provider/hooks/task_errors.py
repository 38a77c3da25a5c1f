"""The decorator of every ``execute``: it decides which errors Airflow retries, and emits metrics."""

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
    """Fail the task at once on an error of ours that is not ``retryable``; a decorator of ``execute``.

    The error's class decides; see :mod:`airflow_provider.exceptions`. A retryable error, and an error of
    another library, keeps its type, and Airflow retries it by the task's ``retries`` and ``retry_policy``.
    The task's measurements go to Airflow's stats (:mod:`airflow_provider.hooks.stats`).

    :raises AirflowFailException: instead of such an error, which is its cause; its text begins with the
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
