"""How a write behaves towards other writes."""

from __future__ import annotations

from dataclasses import dataclass, field

from airflow_provider.concurrency.conflicts import PRIORITIES, ConflictPolicy
from airflow_provider.concurrency.heartbeats import HeartbeatSettings
from airflow_provider.exceptions import InvalidInputError


@dataclass(frozen=True)
class WriteSettings:
    """How a write behaves towards other writes of the same table.

    :param priority: the larger one goes first; see :data:`~airflow_provider.concurrency.PRIORITIES`.
    :param policy: the write's decision where the conflict rules leave a choice.
    :param heartbeat: how the writer shows that it is alive.
    :raises InvalidInputError: when the priority is no whole number.
    """

    priority: int = PRIORITIES["ingestion"]
    policy: ConflictPolicy = field(default_factory=ConflictPolicy)
    heartbeat: HeartbeatSettings = field(default_factory=HeartbeatSettings)

    def __post_init__(self) -> None:
        if isinstance(self.priority, bool) or not isinstance(self.priority, int):
            raise InvalidInputError(f"priority must be a whole number, not {self.priority!r}")
