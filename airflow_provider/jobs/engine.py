"""The choice of a job's engine: Spark, or pyarrow in one process."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider.jobs.table_job import ARROW, SPARK

AUTO = "auto"
ENGINES = (AUTO, SPARK, ARROW)
"""The engines that a caller can ask for."""

ARROW_MAX_BYTES = 32 * 1024 * 1024
"""Bytes of input up to which ``auto`` chooses pyarrow; Parquet needs twenty times as much memory."""


@dataclass(frozen=True)
class Choice:
    """The engine of a job, and the reason for it.

    :param engine: :data:`~airflow_provider.jobs.SPARK` or :data:`~airflow_provider.jobs.ARROW`.
    :param why: the reason, for people.
    :param is_asked_for: whether the caller has asked for it, so that no other engine may run the job.
    """

    engine: str
    why: str
    is_asked_for: bool = False

    def __str__(self) -> str:
        return f"engine {self.engine}: {self.why}"


def choose_engine(engine: str, size: int, what: str, arrow_max_bytes: int) -> Choice:
    """Choose an engine by the size of the input.

    :param engine: the caller's choice, one of :data:`ENGINES`.
    :param size: bytes of the input.
    :param what: a description of the input, for people.
    :param arrow_max_bytes: bytes up to which ``auto`` chooses pyarrow.
    """
    sized = f"{what}, {size:,} bytes"
    if engine != AUTO:
        return Choice(engine, f"as engine={engine!r} says", is_asked_for=True)
    if size <= arrow_max_bytes:
        return Choice(ARROW, f"{sized}, not more than arrow_max_bytes={arrow_max_bytes:,}")
    return Choice(SPARK, f"{sized}, more than arrow_max_bytes={arrow_max_bytes:,}")
