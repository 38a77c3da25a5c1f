"""What an execution of a clustering plan is to do, as data: made by an operator, carried out on Spark."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

from airflow_provider.exceptions import InvalidInputError


@dataclass(frozen=True)
class ClusteringJob:
    """One execution of a clustering plan of one table.

    :param location: absolute path or URL of the table.
    :param instant: requested time of the plan; the oldest one that nobody carries out when None.
    :param storage_options: keyword arguments of the table's fsspec file system; executors need
        them too.
    :param lock: configuration for :func:`~airflow_provider.locks.open_lock`.
    :param heartbeat_interval: seconds between two beats.
    :param tolerable_misses: missed beats after which others roll this write back.
    :param operation_key: the same for all tries of one operation, so that a later try finds what
        an earlier one did.
    :param operation_since: an instant time at or before the first of these tries, so that only the
        commit log's end has to be read.
    :param parallel_groups: clustering groups that are written at the same time; as many as the
        session has cores when None.
    :param extra_metadata: goes into the commit metadata.
    :param table_name: the table's name for people; the one in its properties when None.
    :param job_id: names the outcome's file.
    :param spark_conf: configuration of a session that the job opens for itself.
    """

    operation: ClassVar[str] = "cluster"

    location: str
    instant: str | None = None
    storage_options: Mapping[str, Any] = field(default_factory=dict)
    lock: Mapping[str, Any] = field(default_factory=dict)
    heartbeat_interval: float = 10.0
    tolerable_misses: int = 6
    operation_key: str | None = None
    operation_since: str | None = None
    parallel_groups: int | None = None
    extra_metadata: Mapping[str, str] = field(default_factory=dict)
    table_name: str | None = None
    job_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    spark_conf: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """The job as text; holds the storage options, so mind who may read it."""
        return json.dumps({"operation": self.operation, **asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> ClusteringJob:
        """Read what :meth:`to_json` made.

        :raises InvalidInputError: when it is not such a job.
        """
        try:
            described = json.loads(text)
            if described.pop("operation") != cls.operation:
                raise InvalidInputError(f"not the description of a clustering: {text[:200]!r}")
            if unknown := sorted(set(described) - {each.name for each in fields(cls)}):
                raise InvalidInputError(f"a clustering has no field {unknown[0]!r}")
            return cls(**described)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise InvalidInputError(
                f"not the description of a clustering ({error}): {text[:200]!r}"
            ) from error

    def validate(self) -> None:
        """Check what can be checked without the table and without Spark.

        :raises InvalidInputError: when a field cannot work.
        """
        if self.parallel_groups is not None and self.parallel_groups < 1:
            raise InvalidInputError(f"parallel_groups must be 1 or more, not {self.parallel_groups!r}")
        if self.heartbeat_interval <= 0 or self.tolerable_misses < 1:
            raise InvalidInputError(
                "heartbeat_interval must be above 0 seconds and tolerable_misses at least 1, not "
                f"{self.heartbeat_interval!r} and {self.tolerable_misses!r}"
            )
