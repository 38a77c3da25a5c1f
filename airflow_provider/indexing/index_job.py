"""What the run of an indexing plan is to do, as data: made by an operator, carried out on Spark."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

from airflow_provider.concurrency import HeartbeatSettings
from airflow_provider.concurrency.plans import MAX_FAILURES
from airflow_provider.exceptions import InvalidInputError
from airflow_provider.indexing.run import CATCH_UP_TIMEOUT_SECONDS, IndexRunSettings


@dataclass(frozen=True)
class IndexJob:
    """One run of an indexing plan of one table.

    :param location: absolute path or URL of the table.
    :param instant: requested time of the plan.
    :param storage_options: keyword arguments of the table's fsspec file system; executors need
        them too.
    :param lock: configuration for :func:`~airflow_provider.locks.open_lock`.
    :param timeout_seconds: for the catch-up.
    :param poll_seconds: between two looks during the catch-up.
    :param heartbeat_interval: seconds between two beats.
    :param tolerable_misses: missed beats after which others may run the plan.
    :param operation_key: the same for all tries of one operation.
    :param max_failures: failures in a row after which the plan is not built any more; None never.
    :param table_name: the table's name for people; the one in its properties when None.
    :param job_id: names the outcome's file.
    :param spark_conf: configuration of a session that the job opens for itself.
    """

    operation: ClassVar[str] = "index"

    location: str
    instant: str
    storage_options: Mapping[str, Any] = field(default_factory=dict)
    lock: Mapping[str, Any] = field(default_factory=dict)
    timeout_seconds: float = CATCH_UP_TIMEOUT_SECONDS
    poll_seconds: float = 5.0
    heartbeat_interval: float = 10.0
    tolerable_misses: int = 6
    operation_key: str | None = None
    max_failures: int | None = MAX_FAILURES
    table_name: str | None = None
    job_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    spark_conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> IndexRunSettings:
        """How the run goes about it.

        :raises InvalidInputError: when a number is not above zero.
        """
        heartbeat = HeartbeatSettings(self.heartbeat_interval, self.tolerable_misses)
        return IndexRunSettings(self.timeout_seconds, self.poll_seconds, heartbeat, self.max_failures)

    def to_json(self) -> str:
        """The job as text; holds the storage options, so mind who may read it."""
        return json.dumps({"operation": self.operation, **asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> IndexJob:
        """Read what :meth:`to_json` made.

        :raises InvalidInputError: when it is not such a job.
        """
        try:
            described = json.loads(text)
            if described.pop("operation") != cls.operation:
                raise InvalidInputError(f"not the description of an indexing: {text[:200]!r}")
            if unknown := sorted(set(described) - {each.name for each in fields(cls)}):
                raise InvalidInputError(f"an indexing has no field {unknown[0]!r}")
            return cls(**described)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise InvalidInputError(
                f"not the description of an indexing ({error}): {text[:200]!r}"
            ) from error
