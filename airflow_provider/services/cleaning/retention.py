"""The retention of a clean: which superseded file slices it keeps for readers without a lease."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.services.orphans import DAY


class CleaningPolicy(StrEnum):
    """Which superseded file slices are kept (Hudi's ``hoodie.clean.policy``)."""

    KEEP_LATEST_COMMITS = "KEEP_LATEST_COMMITS"
    """The snapshots of the newest commits, and the snapshot before them."""
    KEEP_LATEST_FILE_VERSIONS = "KEEP_LATEST_FILE_VERSIONS"
    """The newest slices of every file group, but no slice of a replaced file group."""
    KEEP_LATEST_BY_HOURS = "KEEP_LATEST_BY_HOURS"
    """Every snapshot of the last hours."""


_DEFAULTS: Mapping[CleaningPolicy, float] = {
    CleaningPolicy.KEEP_LATEST_COMMITS: 10,
    CleaningPolicy.KEEP_LATEST_FILE_VERSIONS: 3,
    CleaningPolicy.KEEP_LATEST_BY_HOURS: 24,
}


@dataclass(frozen=True)
class Retention:
    """Which superseded file slices a clean keeps.

    :param policy: see :class:`CleaningPolicy`.
    :param retained: number of commits, of slices per file group, or of hours; Hudi's default (10, 3, 24) when
        None.
    :param reverted_after: seconds after a revert until the files of the reverted rewrite are deleted. It must
        be longer than any query runs.
    :raises InvalidInputError: when the policy is unknown or a number is out of range.
    """

    policy: CleaningPolicy | str = CleaningPolicy.KEEP_LATEST_COMMITS
    retained: float | None = None
    reverted_after: float = DAY

    def __post_init__(self) -> None:
        try:
            policy = CleaningPolicy(str(self.policy).upper())
        except ValueError:
            known = ", ".join(CleaningPolicy)
            raise InvalidInputError(f"cleaning policy {self.policy!r} is unknown; known: {known}") from None
        retained = _DEFAULTS[policy] if self.retained is None else self.retained
        is_whole = policy is CleaningPolicy.KEEP_LATEST_BY_HOURS or retained == int(retained)
        if isinstance(retained, bool) or not is_whole or retained <= 0:
            unit = {"KEEP_LATEST_BY_HOURS": "hours above 0"}.get(policy, "a whole number of 1 or more")
            raise InvalidInputError(f"retained with {policy} must be {unit}, not {self.retained!r}")
        if self.reverted_after < 0:
            raise InvalidInputError(f"reverted_after must be 0 seconds or more, not {self.reverted_after!r}")
        object.__setattr__(self, "policy", policy)
        object.__setattr__(self, "retained", retained)
