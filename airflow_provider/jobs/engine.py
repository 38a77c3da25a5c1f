"""The choice of what runs a job: Spark, or pyarrow in one process."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider.jobs.table_job import ARROW, SPARK

AUTO = "auto"
ENGINES = (AUTO, SPARK, ARROW)
"""What a caller can ask for."""

ARROW_MAX_BYTES = 32 * 1024 * 1024
"""Bytes of input up to which ``auto`` takes pyarrow; of Parquet, twenty times as much memory is needed."""


@dataclass(frozen=True)
class Choice:
    """What runs a job, and why.

    :param engine: :data:`~airflow_provider.jobs.SPARK` or :data:`~airflow_provider.jobs.ARROW`.
    :param why: for a person.
    :param is_asked_for: whether the caller has said it, so that nothing else may run the job.
    """

    engine: str
    why: str
    is_asked_for: bool = False

    def __str__(self) -> str:
        return f"engine {self.engine}: {self.why}"


def choose_engine(engine: str, size: int, what: str, arrow_max_bytes: int) -> Choice:
    """Choose by the size of the input.

    :param engine: what the caller asks for, one of :data:`ENGINES`.
    :param size: bytes of the input.
    :param what: the input, for a person.
    :param arrow_max_bytes: bytes up to which ``auto`` takes pyarrow.
    """
    told = f"{what}, {size:,} bytes"
    if engine != AUTO:
        return Choice(engine, f"as engine={engine!r} says", is_asked_for=True)
    if size <= arrow_max_bytes:
        return Choice(ARROW, f"{told}, not more than arrow_max_bytes={arrow_max_bytes:,}")
    return Choice(SPARK, f"{told}, more than arrow_max_bytes={arrow_max_bytes:,}")
