"""How often a writer or reader beats, and how long it may be silent."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider.exceptions import InvalidInputError


@dataclass(frozen=True)
class HeartbeatSettings:
    """How often a writer or reader beats, and after how many missed beats others take it for dead.

    :param heartbeat_interval: seconds between two beats.
    :param tolerable_misses: missed beats after which other processes roll the writer back, or no longer keep
        the reader's files (Hudi's ``hoodie.client.heartbeat.tolerable.misses``).
    :raises InvalidInputError: when the interval is not above zero, or no miss is tolerable.
    """

    heartbeat_interval: float = 10.0
    tolerable_misses: int = 6

    def __post_init__(self) -> None:
        for number in (self.heartbeat_interval, self.tolerable_misses):
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise InvalidInputError(
                    "heartbeat_interval must be a number of seconds and tolerable_misses a whole number, "
                    f"not {number!r}"
                )
        if self.heartbeat_interval <= 0 or self.tolerable_misses < 1:
            raise InvalidInputError(
                "heartbeat_interval must be above 0 seconds and tolerable_misses at least 1, "
                f"not {self.heartbeat_interval!r} and {self.tolerable_misses!r}"
            )
