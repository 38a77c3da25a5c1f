"""The base of operators that run a Spark job on a table."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from airflow_provider.concurrency import PendingInstant
from airflow_provider.exceptions import InvalidInputError, JobFailedError, TableServiceError, from_dict
from airflow_provider.hooks.task_errors import fail_unless_retryable
from airflow_provider.jobs import (
    ARROW,
    ARROW_MAX_BYTES,
    AUTO,
    CONNECT_TIMEOUT_SECONDS,
    ENGINES,
    SPARK,
    TableJob,
    choose_engine,
)
from airflow_provider.operators._base.spark_job import (
    ChildSparkJob,
    Job,
    SparkJob,
    delete_shipped,
    spark_job,
)
from airflow_provider.operators._base.table_operator import TableOperator
from airflow_provider.operators._base.task_operation import TaskOperation
from airflow_provider.operators._base.template_values import byte_size, mapping, one_of, seconds
from airflow_provider.plugins.links import InstantLink, SparkLink, TableLink
from airflow_provider.spark.job_answer import result_of_answer, take_answer
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.storage import Storage
from airflow_provider.triggers.spark_job import SparkJobTrigger, kill_driver

if TYPE_CHECKING:
    from airflow.sdk import Context

# A trigger needs a deadline; a job may take days.
_FOREVER = timedelta(days=3650)
_LOOK_EVERY_SECONDS = 5.0


class SparkOperator(TableOperator):
    """Base of operators that run a Spark job on a table.

    Arguments beside those of :class:`~airflow_provider.operators._base.TableOperator`:

    :param spark_conn_id: where the job runs: a connection of type ``spark`` (by spark-submit) or
        ``spark_connect``; a local session in a process of its own when None (templated).
    :param spark_conf: Spark's configuration, for a local session and for spark-submit (templated).
    :param spark_submit_options: further arguments of the Spark provider's ``SparkSubmitHook``,
        such as ``executor_memory`` (templated).
    :param spark_connect_timeout: seconds, or a timedelta, within which a Spark Connect server has to be
        reached, before the job and during it (templated).
    :param engine: the engine of the job: ``spark``; ``arrow``, a process on the worker that starts no Spark
        and has all rows in memory; or ``auto``. ``auto`` chooses ``arrow`` for input of at most
        ``arrow_max_bytes``, and ``spark`` for more input, or for input that only Spark can read. The log has
        the choice and the reason (templated).
    :param arrow_max_bytes: bytes of input, or a text such as ``100 MB``, up to which ``auto`` chooses
        ``arrow``; 32 MiB by default (templated).
    """

    operator_extra_links = (TableLink(), InstantLink(), SparkLink())
    template_fields: Sequence[str] = (
        *TableOperator.template_fields,
        "spark_conn_id",
        "spark_conf",
        "spark_submit_options",
        "spark_connect_timeout",
        "engine",
        "arrow_max_bytes",
    )

    def __init__(
        self,
        *,
        spark_conn_id: str | None = None,
        spark_conf: Mapping[str, str] | None = None,
        spark_submit_options: Mapping[str, Any] | None = None,
        spark_connect_timeout: timedelta | float | str = CONNECT_TIMEOUT_SECONDS,
        engine: str = AUTO,
        arrow_max_bytes: int | str = ARROW_MAX_BYTES,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.spark_conn_id = spark_conn_id
        self.spark_conf = spark_conf
        self.spark_submit_options = spark_submit_options
        self.spark_connect_timeout = spark_connect_timeout
        self.engine = engine
        self.arrow_max_bytes = arrow_max_bytes
        self._end_of_job: Mapping[str, Any] | None = None
        self._running: SparkJob | None = None
        self._is_killed = False

    @fail_unless_retryable
    def execute_after_job(self, context: Context, event: Mapping[str, Any]) -> Any:
        """Continue after the trigger: the job that the task left on a cluster is over.

        :raises TableServiceError: the trigger's error, in its original type; also see :meth:`execute`.
        """
        if event["status"] == "error":
            raise from_dict(event["error"])
        self._end_of_job = event
        return self._work(context)  # execute() may be called by the task runner alone

    def _work(self, context: Context) -> Any:
        """The task's work, from its beginning, or after the job that it left on a cluster."""
        raise NotImplementedError

    def on_kill(self) -> None:
        """End the job at once; :meth:`execute` then rolls its write back.

        :meth:`execute` waits only for the job's end. A rollback here, in a signal handler, could interrupt
        the use of the same database connection or lock.
        """
        self._is_killed = True
        if self._running is not None:
            self.log.info("killing the job and its processes")
            self._running.kill()

    def _spark_settings(self) -> dict[str, Any]:
        """The fields of a job from which it gets its session.

        Operators call this before they write anything: it refuses a connection that cannot run a job, even if
        no job turns out to be due.
        """
        timeout = seconds(self.spark_connect_timeout, "spark_connect_timeout")
        self._engine_wanted()
        self._new_job()
        return {
            "spark_conf": self._conf(),
            "connect_timeout": CONNECT_TIMEOUT_SECONDS if timeout is None else timeout,
        }

    def _engine_wanted(self) -> tuple[str, int]:
        """``engine`` and ``arrow_max_bytes``, after rendering."""
        limit = byte_size(self.arrow_max_bytes, "arrow_max_bytes")
        return one_of(self.engine, "engine", ENGINES), ARROW_MAX_BYTES if limit is None else limit

    def _choose(self, sizes: Callable[[], Sequence[int]], what: str) -> str:
        """The engine for files of these sizes, in bytes. The method reads the sizes only if they decide."""
        engine, limit = self._engine_wanted()
        found = sizes() if engine == AUTO else ()
        choice = choose_engine(engine, sum(found), f"{len(found)} {what}", limit)
        self.log.info("%s", choice)
        return choice.engine

    def _conf(self) -> dict[str, Any]:
        conf = mapping(self.spark_conf, "spark_conf")
        for name, value in conf.items():
            if not isinstance(name, str) or value is None:
                raise InvalidInputError(f"spark_conf must map texts to values, not {name!r} to {value!r}")
        return conf

    def _new_job(self) -> SparkJob:
        options = mapping(self.spark_submit_options, "spark_submit_options")
        return spark_job(self.log, self.spark_conn_id, self._conf(), options)

    def _spark_job(self, operation: TaskOperation, engine: str = SPARK) -> SparkJob:
        running = self._new_job()
        if engine == ARROW:
            running = ChildSparkJob(
                self.log, {}, if_killed="; engine='spark', or a smaller arrow_max_bytes, needs less of it"
            )
        self._running = running
        operation.remember(waits_for_writer=running.outlives_task)
        if self._is_killed:
            running.kill()
        return running

    def _run(self, running: SparkJob, job: Job, storage: Storage) -> dict[str, Any]:
        """Run a job to its end; when this raises, no process of the job is running any more."""
        try:
            return running.run(job, storage)
        except BaseException:
            running.kill()
            raise

    def _leave(self, running: SparkJob, job: TableJob, table: HudiTable, operation: TaskOperation) -> None:
        """Start a job on a cluster; :meth:`_left_job` waits for it."""
        try:
            submission = running.leave(job, table.storage)
        except BaseException:
            running.kill()
            raise
        left = {"job_id": job.job_id, "submission": submission, "spark_conn_id": self.spark_conn_id}
        operation.remember(left_job=left)
        self.log.info(
            "driver %s of job %s runs on the cluster; the task waits without a slot", submission, job.job_id
        )

    def _left_job(self, table: HudiTable, operation: TaskOperation, *, txn_id: int | None) -> Exception:
        """Wait for the job that the task left on a cluster, in the triggerer.

        A try that finds the job of an earlier try waits for that one.

        :param txn_id: the transaction to keep alive; None if the write has no transaction of its own.
        :return: the reason why the job may have left no commit.
        :raises TaskDeferred: when the triggerer has not told yet that the job is over.
        """
        left = operation.recall("left_job")
        if self._end_of_job is None:
            deadline = time.time() + (self.execution_timeout or _FOREVER).total_seconds()
            self.defer(
                trigger=SparkJobTrigger(
                    location=table.location,
                    operation_key=operation.key,
                    **left,
                    txn_id=txn_id,
                    metastore_conn_id=self.metastore_conn_id,
                    storage_conn_id=self.storage_conn_id,
                    poke_interval=_LOOK_EVERY_SECONDS,
                    deadline=deadline,
                ),
                method_name="execute_after_job",
            )
        event, job_id = self._end_of_job or {}, left["job_id"]
        if event["status"] == "timeout":
            kill_driver(BaseHook.get_connection(left["spark_conn_id"]), left["submission"])
        operation.remember(left_job=None)
        answer = take_answer(table.storage, job_id)
        delete_shipped(table.storage, job_id)
        if answer is None:
            told = event.get("result", {}).get("state") or "; ".join(event.get("blocking", ()))
            return JobFailedError(
                f"job {job_id} ended without a result (driver {left['submission']}: {told}); the log of the "
                "driver on the cluster says why",
                job_id=job_id,
            )
        try:
            result_of_answer(answer)
        except TableServiceError as error:
            return error
        return JobFailedError(f"what job {job_id} has committed is undone", job_id=job_id)

    def _still_writing(self, pending: PendingInstant) -> bool:
        if pending.alive:
            self.log.info(
                "the job of an earlier try, %s, still writes instant %s (heartbeat %.0f s ago); waiting",
                pending.owner,
                pending.instant,
                pending.age_seconds or 0.0,
            )
        return bool(pending.alive)
