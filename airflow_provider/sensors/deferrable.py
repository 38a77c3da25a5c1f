"""The base of this provider's sensors: one look at a time, in a worker or in the triggerer."""

from __future__ import annotations

import abc
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue, conf
from airflow.sdk.exceptions import AirflowSensorTimeout, AirflowSkipException

from airflow_provider import exceptions
from airflow_provider.hooks.task_errors import fail_unless_retryable
from airflow_provider.triggers.polling import TRIGGER_TIMEOUT_SLACK, PollingTrigger, Progress

if TYPE_CHECKING:
    from airflow.sdk import Context


class PollingSensor(BaseSensorOperator, abc.ABC):
    """A sensor that looks in a worker (``mode`` poke or reschedule) or defers to a trigger.

    An error that no retry can avoid fails the task at once, as in an operator. ``soft_fail`` skips the task
    only after a timeout: a missing table fails it.

    :param deferrable: wait in the triggerer and free the worker's slot.
    """

    def __init__(
        self,
        *,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.deferrable = deferrable
        self._before = Progress()

    @abc.abstractmethod
    def look(self) -> Progress:
        """Look once.

        :raises TableServiceError: when the sensor would wait in vain.
        """

    @abc.abstractmethod
    def trigger(self, deadline: float) -> PollingTrigger:
        """The trigger that looks in this sensor's place.

        :param deadline: seconds since the epoch.
        """

    def result_of(self, found: dict[str, Any]) -> dict[str, Any]:
        """The task's result.

        :param found: the progress of the last look, in which nothing blocks.
        """
        return found

    def poke(self, context: Context) -> PokeReturnValue:
        """See :meth:`airflow.sdk.BaseSensorOperator.poke`."""
        progress = self.look()
        for line in progress.news(self._before):
            self.log.info("waiting: %s", line)
        self._before = progress
        return PokeReturnValue(
            progress.is_done, self.result_of(progress.result) if progress.is_done else None
        )

    @fail_unless_retryable
    def execute(self, context: Context) -> Any:
        """See :meth:`airflow.sdk.BaseSensorOperator.execute`."""
        if not self.deferrable:
            return self._wait_in_the_worker(context)
        looked = self.poke(context)
        if not looked.is_done:
            self.defer(
                trigger=self.trigger(time.time() + self.timeout),
                method_name="execute_complete",
                timeout=timedelta(seconds=self.timeout) + TRIGGER_TIMEOUT_SLACK,
            )
        return looked.xcom_value

    @fail_unless_retryable
    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """See :meth:`airflow.sdk.BaseSensorOperator.resume_execution`."""
        return super().resume_execution(next_method, next_kwargs, context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """End the task as the trigger's event says.

        :raises AirflowSensorTimeout: when the deadline has passed; the message names what still blocks.
        :raises TableServiceError: the trigger's error, in its original type.
        """
        if event["status"] == "success":
            return self.result_of(event["result"])
        if event["status"] == "timeout":
            raise AirflowSensorTimeout(self._timed_out(event["blocking"]))
        raise exceptions.from_dict(event["error"])

    def _wait_in_the_worker(self, context: Context) -> Any:
        try:
            return super().execute(context)
        except AirflowSensorTimeout as error:
            raise AirflowSensorTimeout(self._timed_out(self._before.blocking)) from error
        except AirflowSkipException as error:
            if error.__cause__ is not None or not self._before.blocking:  # no timeout
                raise
            raise AirflowSkipException(self._timed_out(self._before.blocking)) from error

    def _timed_out(self, blocking: Sequence[str]) -> str:
        return f"timed out after {self.timeout:g} s; still waiting: {'; '.join(blocking)}"
