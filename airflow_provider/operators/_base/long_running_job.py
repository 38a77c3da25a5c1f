"""The operator's side of a Spark job that answers requests: one session for all windows."""

from __future__ import annotations

import dataclasses
import threading
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from airflow_provider.exceptions import JobFailedError
from airflow_provider.ingestion.ingest_job import IngestJob
from airflow_provider.operators._base.spark_job import SparkJob
from airflow_provider.spark.job_answer import result_of_answer, take_answer
from airflow_provider.spark.job_request import LOOK_EVERY_SECONDS, JobRequest, put_request, request_id
from airflow_provider.table.storage import Storage

_SECONDS_TO_END = 60.0


class LongRunningSparkJob:
    """A Spark job that starts at the first request, and answers one request after the other.

    Leaving the context manager ends the job.

    :param start: creates the job, without starting it.
    :param job: the description that requests refer to.
    :param storage: the table's storage.
    """

    def __init__(self, start: Callable[[], SparkJob], job: IngestJob, storage: Storage) -> None:
        self._start = start
        self._job = dataclasses.replace(job, serves=True)
        self._storage = storage
        self._run: _Run | None = None

    def ask(self, request: JobRequest) -> dict[str, Any]:
        """Send a request, and wait for its answer.

        :param request: the request.
        :return: the request's result.
        :raises TableServiceError: the request's error; the job continues.
        :raises JobFailedError: when the job ended, or was killed; with the end of its log.
        """
        if self._run is None or self._run.is_over:
            # A job without requests ends by itself after a while, and releases its executors.
            job = dataclasses.replace(self._job, job_id=uuid.uuid4().hex)
            self._run = _Run(self._start(), job, self._storage)
        return self._run.ask(request)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._run is not None:
            self._run.end()


class _Run:
    """One process of the job; a thread reads its output while the task's own thread waits for answers."""

    def __init__(self, running: SparkJob, job: IngestJob, storage: Storage) -> None:
        self._running = running
        self._job = job
        self._storage = storage
        self._asked = 0
        self._over = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._follow, name=f"spark-job-{job.job_id}", daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    def ask(self, request: JobRequest) -> dict[str, Any]:
        self._asked += 1
        put_request(self._storage, self._job.job_id, self._asked, request)
        try:
            answer = self._wait(request_id(self._job.job_id, self._asked))
        except BaseException:
            # For example a timeout of the task: no process of the job may write after the rollback.
            self._running.kill()
            self._thread.join(_SECONDS_TO_END)
            raise
        return result_of_answer(answer)

    def end(self) -> None:
        if not self.is_over:
            self._asked += 1
            put_request(self._storage, self._job.job_id, self._asked, JobRequest())
        if not self._over.wait(_SECONDS_TO_END):
            self._running.kill()
        self._thread.join(_SECONDS_TO_END)

    def _wait(self, answer_id: str) -> dict[str, Any]:
        while (answer := take_answer(self._storage, answer_id)) is None:
            if not self._over.wait(LOOK_EVERY_SECONDS):
                continue
            if (answer := take_answer(self._storage, answer_id)) is not None:
                break
            job_id = self._job.job_id
            raise self._error or JobFailedError(f"Spark job {job_id} ended without an answer", job_id=job_id)
        return answer

    def _follow(self) -> None:
        try:
            self._running.run(self._job, self._storage)
        except BaseException as error:  # noqa: BLE001 - the thread that waits for an answer raises it
            self._error = error
        finally:
            self._over.set()
