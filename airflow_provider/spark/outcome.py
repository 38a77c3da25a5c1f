"""How a job tells what came of it: a line of its output, and a file in the table's storage."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from airflow_provider import exceptions
from airflow_provider.concurrency import CommitResult
from airflow_provider.exceptions import NoSuchInstantError
from airflow_provider.spark.ingest_job import IngestJob
from airflow_provider.table.hudi_table import PROPERTIES_PATH, HudiTable
from airflow_provider.table.metadata import WriteStat
from airflow_provider.table.storage import Storage

RESULT_PREFIX = "TABLE_SERVICES_RESULT "
"""The line of a job's output that begins with this holds the outcome as JSON."""

JOBS_FOLDER = ".hoodie/.temp/jobs"
_KEPT_SECONDS = 7 * 24 * 3600


def success(result: dict[str, Any]) -> dict[str, Any]:
    """The outcome of a job that did its work.

    :param result: what :func:`~airflow_provider.spark.ingest` returned.
    """
    return {"status": "success", "result": result}


def failure(error: BaseException) -> dict[str, Any]:
    """The outcome of a job that did not.

    :param error: why; :func:`airflow_provider.exceptions.from_dict` makes it an exception again.
    """
    return {"status": "failed", "error": exceptions.to_dict(error)}


def write_outcome(storage: Storage, job_id: str, outcome: dict[str, Any]) -> None:
    """Leave an outcome where the operator looks when the line did not reach it.

    Outcomes of long ago, which nobody will ask for any more, are removed.

    :param storage: the table's storage; nothing is left where there is no table.
    :param job_id: the job's id.
    :param outcome: from :func:`success` or :func:`failure`.
    """
    if storage.stat(PROPERTIES_PATH) is None:
        return
    storage.put(_path(job_id), json.dumps(outcome).encode())
    for status in storage.list(JOBS_FOLDER):
        if status.modified < time.time() - _KEPT_SECONDS:
            storage.delete(status.path)


def read_outcome(storage: Storage, job_id: str) -> dict[str, Any] | None:
    """What became of a job.

    :param storage: the table's storage.
    :param job_id: the job's id.
    :return: the outcome; None when the job has not said.
    """
    try:
        outcome: dict[str, Any] = json.loads(storage.read(_path(job_id)))
    except FileNotFoundError:
        return None
    return outcome


def result_of(
    job: IngestJob,
    table: HudiTable,
    commit: CommitResult,
    write_stats: Sequence[WriteStat],
    *,
    already_committed: bool = False,
) -> dict[str, Any]:
    """What a person wants to know of an ingestion.

    :param job: the ingestion.
    :param table: its table.
    :param commit: its commit.
    :param write_stats: one a file written.
    :param already_committed: whether an earlier try did it.
    :return: JSON-able dict.
    """
    return {
        "table": job.table_name or table.config.name,
        "location": table.location,
        "instant": commit.instant,
        "completion_time": commit.completion_time,
        "action": str(commit.action),
        "operation": job.operation,
        "txn_id": job.txn_id,
        "write_id": job.write_id,
        "rows_inserted": sum(stat.num_inserts for stat in write_stats),
        "rows_updated": sum(stat.num_update_writes for stat in write_stats),
        "rows_deleted": sum(stat.num_deletes for stat in write_stats),
        "files_written": len(write_stats),
        "bytes_written": sum(stat.total_write_bytes for stat in write_stats),
        "partitions": sorted({stat.partition_path for stat in write_stats}),
        "already_committed": already_committed,
    }


def earlier_result(job: IngestJob, table: HudiTable, commit: CommitResult) -> dict[str, Any]:
    """The result of an earlier try of the same operation, from its commit metadata.

    :param job: the ingestion.
    :param table: its table.
    :param commit: what the earlier try committed.
    :raises NoSuchInstantError: when the commit is no longer on the active timeline.
    """
    timeline = table.timeline()
    instant = timeline.find(commit.instant)
    if instant is None:
        raise NoSuchInstantError(
            f"table {table.location}: commit {commit.instant} of operation {job.operation_key} is archived; "
            "what it did is no longer known",
            instant=commit.instant,
        )
    stats = timeline.commit_metadata(instant).write_stats
    return result_of(job, table, commit, stats, already_committed=True)


def _path(job_id: str) -> str:
    return f"{JOBS_FOLDER}/{job_id}.json"
