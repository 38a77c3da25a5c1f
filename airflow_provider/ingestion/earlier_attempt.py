"""What an earlier try of the same operation did."""

from __future__ import annotations

import logging
from typing import Any

from airflow_provider.concurrency import CommitResult, PendingInstant, find_operation, rollback
from airflow_provider.exceptions import TableError, WriteConflictError
from airflow_provider.ingestion.ingest_job import IngestJob
from airflow_provider.ingestion.result import earlier_result
from airflow_provider.table.hudi_table import HudiTable

log = logging.getLogger(__name__)


def earlier_try(job: IngestJob, table: HudiTable | None = None) -> dict[str, Any] | None:
    """Look for an earlier try of the same operation.

    :param job: the ingestion.
    :param table: its table; opened when None.
    :return: the result of the try that committed; None when the work is to be done, and what a
        try that died had left is removed.
    :raises InvalidInputError: when the job cannot work.
    :raises TableError: when the location holds no table that can be written.
    :raises WriteConflictError: when an earlier try still runs.
    """
    job.validate()
    table = table or HudiTable.open(job.location, job.storage_options)
    table.check_writable()
    if job.operation_key is None:
        return None
    commit = _settled(table, job.operation_key, job.operation_since)
    return None if commit is None else earlier_result(job, table, commit)


def _settled(table: HudiTable, key: str, since: str | None) -> CommitResult | None:
    found = find_operation(table, key, since=since)
    if not isinstance(found, PendingInstant):
        return found
    if found.alive:
        raise WriteConflictError(
            f"table {table.location}: an earlier try of operation {key!r} by {found.owner} still writes "
            f"instant {found.instant}; wait for its end, or stop it, and try again",
            instant=found.instant,
        )
    log.info("rolling back instant %s of an earlier try that died", found.instant)
    try:
        rollback(table, found.instant, reason="its operation is tried again")
    except TableError:
        # It may have ended by itself in between; then it is no longer pending.
        again = find_operation(table, key, since=since)
        if isinstance(again, PendingInstant):
            raise
        return again
    return None
