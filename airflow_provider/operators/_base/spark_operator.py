"""The base of operators that run a Spark job on a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider.concurrency import PendingInstant
from airflow_provider.operators._base.spark_job import Job, SparkJob, spark_job
from airflow_provider.operators._base.table_operator import TableOperator
from airflow_provider.operators._base.task_operation import TaskOperation
from airflow_provider.plugins.links import InstantLink, SparkLink, TableLink
from airflow_provider.table.storage import Storage


class SparkOperator(TableOperator):
    """Base of operators that run a Spark job on a table.

    Arguments beside those of :class:`~airflow_provider.operators._base.TableOperator`:

    :param spark_conn_id: where the job runs: a connection of type ``spark`` (by spark-submit) or
        ``spark_connect``; a local session in a process of its own when None (templated).
    :param spark_conf: Spark's configuration, for a local session and for spark-submit (templated).
    :param spark_submit_options: further arguments of the Spark provider's ``SparkSubmitHook``,
        such as ``executor_memory`` (templated).
    """

    operator_extra_links = (TableLink(), InstantLink(), SparkLink())
    template_fields: Sequence[str] = (
        *TableOperator.template_fields,
        "spark_conn_id",
        "spark_conf",
        "spark_submit_options",
    )

    def __init__(
        self,
        *,
        spark_conn_id: str | None = None,
        spark_conf: Mapping[str, str] | None = None,
        spark_submit_options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.spark_conn_id = spark_conn_id
        self.spark_conf = spark_conf
        self.spark_submit_options = spark_submit_options
        self._running: SparkJob | None = None
        self._is_killed = False

    def on_kill(self) -> None:
        """End the job at once; :meth:`execute` then rolls its write back.

        :meth:`execute` waits for nothing but the job's end. A rollback here, in a signal handler, could
        interrupt the use of the same database connection or lock.
        """
        self._is_killed = True
        if self._running is not None:
            self.log.info("killing the job and its processes")
            self._running.kill()

    def _spark_job(self, operation: TaskOperation) -> SparkJob:
        running = self._running = spark_job(
            self.log, self.spark_conn_id, self.spark_conf or {}, self.spark_submit_options or {}
        )
        operation.remember(waits_for_writer=running.outlives_task)
        if self._is_killed:
            running.kill()
        return running

    def _run(self, running: SparkJob, job: Job, storage: Storage) -> dict[str, Any]:
        """Run a job to its end; when this raises, nothing of the job runs any more."""
        try:
            return running.run(job, storage)
        except BaseException:
            running.kill()
            raise

    def _still_writing(self, pending: PendingInstant) -> bool:
        if pending.alive:
            self.log.info(
                "the job of an earlier try, %s, still writes instant %s (heartbeat %.0f s ago); waiting",
                pending.owner,
                pending.instant,
                pending.age_seconds or 0.0,
            )
        return bool(pending.alive)
