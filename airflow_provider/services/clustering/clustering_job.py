"""The execution of a clustering plan as data: an operator makes it, and a Spark job executes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.jobs import PlanJob


@dataclass(frozen=True)
class ClusteringJob(PlanJob):
    """One execution of a clustering plan of one table.

    :param parallel_groups: number of clustering groups that are written at the same time; the number of the
        session's cores when None.
    :param extra_metadata: added to the commit metadata.
    :raises InvalidInputError: when a number is out of range.
    """

    kind_of_job: ClassVar[str] = "clustering"
    operation: ClassVar[str] = "cluster"

    parallel_groups: int | None = field(default=None, kw_only=True)
    extra_metadata: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        if self.parallel_groups is not None and self.parallel_groups < 1:
            raise InvalidInputError(f"parallel_groups must be 1 or more, not {self.parallel_groups!r}")
