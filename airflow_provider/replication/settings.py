"""The settings of a replicator."""

from __future__ import annotations

from dataclasses import dataclass, field

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.replication.copying import CopySettings


@dataclass(frozen=True)
class ReplicationSettings:
    """The settings of a replicator.

    :param copy: the settings of copies.
    :param lease_seconds: seconds for which another replicator waits after the death of this one.
    :param patience_seconds: seconds without a pass after which the source's log, cleans and archivals no
        longer wait for the replication.
    :param events_at_once: the number of events that are read at once.
    :param events_in_one_transaction: the number of events without data that one database transaction applies.
    :raises InvalidInputError: when a number is not above zero.
    """

    copy: CopySettings = field(default_factory=CopySettings)
    lease_seconds: float = 60.0
    patience_seconds: float = 7 * 86_400.0
    events_at_once: int = 1_000
    events_in_one_transaction: int = 100

    def __post_init__(self) -> None:
        numbers = (self.events_at_once, self.events_in_one_transaction)
        if min(self.lease_seconds, self.patience_seconds, *numbers) <= 0:
            raise InvalidInputError("lease, patience and numbers of events must be above zero")
