"""An ingestion as one commit, for a table that is given by its location or by its name in a metastore."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from airflow_provider.concurrency import settle_operation
from airflow_provider.exceptions import InvalidInputError
from airflow_provider.ingestion.ingest_job import IngestJob
from airflow_provider.ingestion.result import earlier_result
from airflow_provider.managed import (
    ManagedWrite,
    RepeatedOperation,
    ResolvedTable,
    refuse_living_writer,
    resolve_table,
)
from airflow_provider.metastore import AnyMetastore
from airflow_provider.metastore.model import is_location
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.writable import check_takes_operation

log = logging.getLogger(__name__)


def commit_once(
    job: IngestJob,
    write: Callable[[IngestJob, HudiTable], dict[str, Any]],
    *,
    metastore: AnyMetastore | None = None,
    table: HudiTable | None = None,
) -> dict[str, Any]:
    """Write an ingestion's commit, unless an earlier try of its operation has committed.

    A table that the job names as ``database.table`` is written in a transaction, as by an operator.

    :param job: the ingestion.
    :param write: writes one commit; it does not look for earlier tries.
    :param metastore: the metastore that knows the table's name.
    :param table: the open table; None opens it.
    :return: see :func:`~airflow_provider.ingestion.result.result_of`; for a table given by its name also
        ``event_id``, the id of the COMMIT_TXN event.
    :raises InvalidInputError: when the job is invalid, or a name is given without a metastore.
    :raises NoSuchObjectError: when the metastore does not know the name.
    :raises TableError: when the location holds no table that can be written.
    :raises WriteConflictError: when an earlier try is still running.
    """
    if is_location(job.location):
        table = table or HudiTable.open(job.location, job.storage_options)
        table.check_writable()
        return earlier_commit(job, table) or write(job, table)
    if metastore is None:
        raise InvalidInputError(
            f"table {job.location!r} is given by its name in a metastore; give the metastore too, or the "
            "table's absolute path or URL",
            table=job.location,
        )
    resolved = resolve_table(job.location, lambda: metastore)
    job = replace(job, location=resolved.location, table_name=resolved.given)
    table = HudiTable.open(resolved.location, job.storage_options)
    table.check_writable()
    check_operation(job, table, resolved)
    operation = RepeatedOperation(job.operation_key, job.operation_since)
    job = replace(job, operation_key=operation.key)
    managed = ManagedWrite(
        resolved,
        table,
        lambda: metastore,
        operation,
        lambda commit: earlier_result(job, table, commit),
        joined_txn=job.transaction.txn_id,
        wait_for=refuse_living_writer(table),
    )
    return managed.run(lambda transaction: write(replace(job, transaction=transaction), table))


def check_operation(job: IngestJob, table: HudiTable, resolved: ResolvedTable) -> None:
    """Make sure that a table takes a job's operation, by its own properties and by the metastore's.

    :param job: the ingestion.
    :param table: its table.
    :param resolved: the table's entry in the metastore.
    :raises UnsupportedTableError: see :func:`~airflow_provider.table.writable.check_takes_operation`.
    """
    check_takes_operation(
        resolved.given,
        table.config,
        job.operation,
        tells_rows_apart=job.kind.looks_up_keys,
        parameters=resolved.parameters,
    )


def earlier_commit(job: IngestJob, table: HudiTable) -> dict[str, Any] | None:
    """The result of an earlier try of the job's operation that has committed.

    :param job: the ingestion.
    :param table: its table.
    :return: None when the job has no operation key, or no try has committed. Then the instant of a dead try
        is rolled back.
    :raises WriteConflictError: when an earlier try is still running.
    """
    if job.operation_key is None:
        return None
    commit = settle_operation(
        table,
        job.operation_key,
        since=job.operation_since,
        reason="its operation is tried again",
        wait_for=refuse_living_writer(table),
    )
    if commit is None:
        return None
    log.info("an earlier try committed instant %s; nothing is written again", commit.instant)
    return earlier_result(job, table, commit)
