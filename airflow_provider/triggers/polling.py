"""The base of this provider's triggers: a trigger looks, logs what blocks, and looks again."""

from __future__ import annotations

import abc
import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import tenacity
from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider.exceptions import LockUnavailableError, MetastoreUnavailableError, to_dict

# A metastore that restarts answers within these attempts. A sensor must not wait for ever for one that is
# gone.
_UNAVAILABLE_ATTEMPTS = 5
_UNAVAILABLE_LONGEST_WAIT_SECONDS = 4.0

TRIGGER_TIMEOUT_SLACK = timedelta(minutes=5)
"""A trigger ends at its own deadline. Airflow ends a trigger in a hanging triggerer this much later."""

while_briefly_unavailable = tenacity.retry(
    retry=tenacity.retry_if_exception_type((MetastoreUnavailableError, LockUnavailableError)),
    stop=tenacity.stop_after_attempt(_UNAVAILABLE_ATTEMPTS),
    wait=tenacity.wait_exponential(multiplier=0.5, max=_UNAVAILABLE_LONGEST_WAIT_SECONDS),
    reraise=True,
)
"""Decorator: tries again, at most four times in about eight seconds, while a backend is unavailable."""


@dataclass(frozen=True)
class Progress:
    """The state that one look found.

    :param blocking: one line for each thing that still blocks; the wait is over when it is empty.
    :param result: the result, once nothing blocks any more; JSON-able.
    """

    blocking: tuple[str, ...] = ()
    result: dict[str, Any] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        """Whether nothing blocks any more."""
        return not self.blocking

    def news(self, before: Progress) -> list[str]:
        """The lines that the previous look did not have, so that the log repeats no line."""
        return [line for line in self.blocking if line not in before.blocking]


class PollingTrigger(BaseTrigger, abc.ABC):
    """Looks until nothing blocks, or until the deadline.

    It fires one event, plain JSON: ``{"status": "success", "result": {..}}``, ``{"status": "timeout",
    "blocking": [..]}`` or ``{"status": "error", "error": {..}}``, the last as
    :func:`airflow_provider.exceptions.to_dict` describes it.

    The deadline is absolute and belongs to the trigger: ``dag.test`` ignores the timeout of a deferral, and a
    trigger that moves to another triggerer must not begin to count anew.

    :param poke_interval: seconds between two looks.
    :param deadline: seconds since the epoch.
    """

    def __init__(self, *, poke_interval: float, deadline: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.poke_interval = poke_interval
        self.deadline = deadline

    @abc.abstractmethod
    async def connect(self) -> None:
        """Read Airflow's connections, in the event loop; :meth:`run` calls this once, before any look."""

    @abc.abstractmethod
    def look(self) -> Progress:
        """Look once, in a thread: the engine's calls block."""

    @abc.abstractmethod
    def arguments(self) -> dict[str, Any]:
        """The subclass's own constructor arguments."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """See :meth:`airflow.triggers.base.BaseTrigger.serialize`."""
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        arguments = {**self.arguments(), "poke_interval": self.poke_interval, "deadline": self.deadline}
        return path, arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """See :meth:`airflow.triggers.base.BaseTrigger.run`."""
        try:
            event = await self._wait()
        except Exception as error:  # noqa: BLE001 - a trigger that raises tells the task nothing but a traceback
            event = {"status": "error", "error": to_dict(error)}
        yield TriggerEvent(event)  # type: ignore[no-untyped-call]

    async def _wait(self) -> dict[str, Any]:
        await self.connect()
        before = Progress()
        while True:
            progress = await asyncio.to_thread(self.look)
            if progress.is_done:
                return {"status": "success", "result": progress.result}
            for line in progress.news(before):
                self.log.info("waiting: %s", line)
            before = progress
            left = self.deadline - time.time()
            if left <= 0:
                return {"status": "timeout", "blocking": list(progress.blocking)}
            await asyncio.sleep(min(self.poke_interval, left))
