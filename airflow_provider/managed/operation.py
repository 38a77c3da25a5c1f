"""An operation over all its tries: one key, and the facts that one try leaves for the next."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, Protocol

from airflow_provider.concurrency import PendingInstant
from airflow_provider.exceptions import WriteConflictError
from airflow_provider.table.hudi_table import HudiTable


class Operation(Protocol):
    """One operation, which may be tried several times under one key."""

    @property
    def key(self) -> str:
        """The key under which :func:`~airflow_provider.concurrency.find_operation` finds the commit."""

    @property
    def since(self) -> str | None:
        """An instant time at or before the first try; None when the whole log has to be read."""

    @property
    def is_retry(self) -> bool:
        """Whether an earlier try may have begun."""

    def remember(self, **facts: Any) -> None:
        """Store facts for the next try.

        :param facts: JSON-able; the value None deletes a fact.
        """

    def recall(self, name: str) -> Any:
        """The fact that an earlier call of :meth:`remember` stored; None when there is none."""


class RepeatedOperation:
    """An operation whose caller repeats a call with the same key, such as a person in a Python shell.

    Only the table and the metastore outlive a try: the commit's metadata names its transaction, and recovery
    ends a transaction that a killed try left open.

    :param key: the caller's key; a new one, which no earlier try has, when None.
    :param since: see :attr:`Operation.since`.
    """

    def __init__(self, key: str | None = None, since: str | None = None) -> None:
        self.is_retry = key is not None
        self.key = key or uuid.uuid4().hex
        self.since = since
        self._facts: dict[str, Any] = {}

    def remember(self, **facts: Any) -> None:
        """See :meth:`Operation.remember`."""
        self._facts.update(facts)

    def recall(self, name: str) -> Any:
        """See :meth:`Operation.recall`."""
        return self._facts.get(name)


def refuse_living_writer(table: HudiTable) -> Callable[[PendingInstant], bool]:
    """The ``wait_for`` of ``settle_operation`` that refuses to run beside another try.

    :param table: the table.
    :return: a function that is False for the instant of a dead writer, which is then rolled back, and raises
        :class:`~airflow_provider.exceptions.WriteConflictError` for the instant of a live one.
    """

    def wait_for(pending: PendingInstant) -> bool:
        if pending.alive:
            raise WriteConflictError(
                f"table {table.location}: an earlier try of operation {pending.operation_key!r} by "
                f"{pending.owner} still writes instant {pending.instant}; wait for its end, or stop it, and "
                "try again",
                instant=pending.instant,
            )
        return False

    return wait_for
