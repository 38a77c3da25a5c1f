"""A job's answer: a line of its output, and a file in the table's storage."""

from __future__ import annotations

import json
import time
from typing import Any

from airflow_provider import exceptions, metrics
from airflow_provider.table.properties import PROPERTIES_PATH
from airflow_provider.table.storage import Storage

RESULT_PREFIX = "TABLE_SERVICES_RESULT "
"""The prefix of the output line that contains a job's answer as JSON."""

JOBS_FOLDER = ".hoodie/.temp/jobs"
_KEPT_SECONDS = 7 * 24 * 3600


def success(result: dict[str, Any] | None) -> dict[str, Any]:
    """The answer of a job that succeeded.

    :param result: the result of :func:`~airflow_provider.spark.ingest` or
        :func:`~airflow_provider.spark.cluster`.
    """
    return {"status": "success", "result": result}


def failure(error: BaseException) -> dict[str, Any]:
    """The answer of a job that failed.

    :param error: the reason; :func:`airflow_provider.exceptions.from_dict` makes it an exception again.
    """
    return {"status": "failed", "error": exceptions.to_dict(error)}


def write_answer(storage: Storage, job_id: str, answer: dict[str, Any]) -> None:
    """Put an answer into the file that the operator reads if the line of output did not reach it.

    The function also removes answers of more than a week ago.

    :param storage: the table's storage; without a table there the function puts no file.
    :param job_id: the job's id.
    :param answer: from :func:`success` or :func:`failure`.
    """
    if storage.stat(PROPERTIES_PATH) is None:
        return
    storage.put(_path(job_id), json.dumps(answer).encode())
    for status in storage.list(JOBS_FOLDER):
        if status.modified < time.time() - _KEPT_SECONDS:
            storage.delete(status.path)


def read_answer(storage: Storage, job_id: str) -> dict[str, Any] | None:
    """The answer of a job.

    :param storage: the table's storage.
    :param job_id: the job's id.
    :return: the answer; None when there is none yet.
    """
    try:
        answer: dict[str, Any] = json.loads(storage.read(_path(job_id)))
    except FileNotFoundError:
        return None
    return answer


def take_answer(storage: Storage, job_id: str) -> dict[str, Any] | None:
    """Read an answer and remove it, for its only reader; see :func:`read_answer`."""
    answer = read_answer(storage, job_id)
    if answer is not None:
        storage.delete(_path(job_id))
    return answer


def result_of_answer(answer: dict[str, Any]) -> dict[str, Any]:
    """The result in an answer; the job's measurements are emitted in this process.

    :param answer: from :func:`success` or :func:`failure`, with ``measured``, if any.
    :raises TableServiceError: the job's error, in its original type.
    """
    metrics.tell_again(answer.get("measured", ()))
    if answer["status"] != "success":
        raise exceptions.from_dict(answer["error"])
    result: dict[str, Any] = answer["result"]
    return result


def _path(job_id: str) -> str:
    return f"{JOBS_FOLDER}/{job_id}.json"
