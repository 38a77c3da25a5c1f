"""The run of an indexing plan as data: an operator makes it, and a Spark job executes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.indexing.run import IndexRunSettings
from airflow_provider.jobs import TableJob


@dataclass(frozen=True)
class IndexJob(TableJob):
    """One run of an indexing plan of one table.

    :param instant: requested time of the plan.
    :param settings: settings of the run.
    :raises InvalidInputError: when no plan is named.
    """

    kind_of_job: ClassVar[str] = "indexing"
    operation: ClassVar[str] = "index"

    instant: str = ""
    settings: IndexRunSettings = field(default_factory=IndexRunSettings, kw_only=True)

    def __post_init__(self) -> None:
        if not self.instant:
            raise InvalidInputError(f"an indexing of {self.location} needs the instant of its plan")
