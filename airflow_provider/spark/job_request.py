"""Requests to a long-running job, one after the other, through files in the table's storage.

The operator leaves a request, and the job leaves an answer under the same id
(:mod:`~airflow_provider.spark.job_answer`). Both poll for files, because an operator and a driver on a
cluster may share only the table's storage. A request names a part of the job's own description, and never
contains a secret.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from airflow_provider import metrics
from airflow_provider.concurrency import WriteTransaction
from airflow_provider.exceptions import TableServiceError
from airflow_provider.ingestion.ingest_job import IngestJob
from airflow_provider.ingestion.windows import Window
from airflow_provider.jobs import read_dataclass
from airflow_provider.spark.job_answer import JOBS_FOLDER, failure, success, write_answer
from airflow_provider.table.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

LOOK_EVERY_SECONDS = 0.2
_IDLE_SECONDS = 900.0


@dataclass(frozen=True)
class JobRequest:
    """One request to a long-running job; an empty request ends the job.

    :param windows_of: find the windows of these columns; an empty list for the table's partitions.
    :param order: the order of these windows.
    :param window: write this window.
    :param transaction: metastore transaction of the window's commit.
    """

    windows_of: tuple[str, ...] | None = None
    order: str = "oldest_first"
    window: Window | None = None
    transaction: WriteTransaction = field(default_factory=WriteTransaction)


def request_id(job_id: str, number: int) -> str:
    """The id of a job's ``number``-th request, and of its answer."""
    return f"{job_id}-{number}"


def put_request(storage: Storage, job_id: str, number: int, request: JobRequest) -> None:
    """Send a request to a long-running job.

    :param storage: the table's storage.
    :param job_id: the job's id.
    :param number: 1 for the job's first request, then one more for each request.
    :param request: the request.
    """
    storage.put(_path(job_id, number), json.dumps(asdict(request)).encode())


def serve(
    job: IngestJob,
    open_session: Callable[[], SparkSession],
    *,
    is_alive: Callable[[], bool],
    idle_seconds: float = _IDLE_SECONDS,
) -> dict[str, Any]:
    """Answer requests until an empty request arrives, or no request for ``idle_seconds``.

    A job on a cluster does not notice the death of the worker that sends the requests. So the job ends when
    it has been idle for long; an operator that is alive then starts another job.

    :param job: the description that requests refer to.
    :param open_session: opens the session, when the first request has arrived.
    :param is_alive: called before every heartbeat; False stops a write.
    :param idle_seconds: seconds to wait for a request.
    :return: the number of answered requests.
    """
    storage = Storage(job.location, job.storage_options)
    spark: SparkSession | None = None
    number = 1
    while (request := _next(storage, job.job_id, number, idle_seconds)) not in (None, JobRequest()):
        spark = spark or open_session()
        with metrics.collected() as measured:
            try:
                answer = success(_do(spark, job, request or JobRequest(), is_alive))
            except Exception as error:  # the operator has to get any error
                if not isinstance(error, TableServiceError):
                    log.exception("request %d of job %s failed", number, job.job_id)
                answer = failure(error)
            except BaseException as error:
                write_answer(storage, request_id(job.job_id, number), failure(error))
                raise
        write_answer(storage, request_id(job.job_id, number), {**answer, "measured": measured})
        number += 1
    return {"served": number - 1}


def _do(
    spark: SparkSession, job: IngestJob, request: JobRequest, is_alive: Callable[[], bool]
) -> dict[str, Any]:
    from airflow_provider.spark.ingestion.ingestion import ingest
    from airflow_provider.spark.ingestion.windows import find_windows

    if request.window is None:
        found = find_windows(spark, job, order=request.order, columns=request.windows_of)
        return {"windows": [asdict(window) for window in found]}
    write = replace(request.window.job(job), transaction=request.transaction)
    return ingest(spark, write, is_alive=is_alive)


def _next(storage: Storage, job_id: str, number: int, idle_seconds: float) -> JobRequest | None:
    deadline = time.monotonic() + idle_seconds
    while time.monotonic() < deadline:
        try:
            asked = json.loads(storage.read(_path(job_id, number)))
        except FileNotFoundError:
            time.sleep(LOOK_EVERY_SECONDS)
            continue
        storage.delete(_path(job_id, number))
        request: JobRequest = read_dataclass(JobRequest, asked)
        return request
    log.info("job %s was not asked for anything for %.0f s, it ends", job_id, idle_seconds)
    return None


def _path(job_id: str, number: int) -> str:
    return f"{JOBS_FOLDER}/{request_id(job_id, number)}.request"
