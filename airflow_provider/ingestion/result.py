"""The result of an ingestion."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from airflow_provider.concurrency import CommitResult
from airflow_provider.exceptions import NoSuchInstantError
from airflow_provider.ingestion.ingest_job import IngestJob
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.schema import ColumnChange
from airflow_provider.table.timeline import WriteStat


def result_of(
    job: IngestJob,
    table: HudiTable,
    commit: CommitResult,
    write_stats: Sequence[WriteStat],
    *,
    rebases: int = 0,
    schema_changes: Sequence[ColumnChange] = (),
    already_committed: bool = False,
) -> dict[str, Any]:
    """The result of an ingestion.

    :param job: the ingestion.
    :param table: its table.
    :param commit: its commit.
    :param write_stats: statistics of each file written.
    :param rebases: how often conflicting file groups were merged again.
    :param schema_changes: changes of the table's columns.
    :param already_committed: whether an earlier try made the commit.
    :return: JSON-able dict: table, location, instant, completion_time, action, operation, txn_id,
        write_id, rows_inserted, rows_updated, rows_deleted, files_written, bytes_written,
        partitions (paths that got files), rebases, already_committed, schema_changes (a list of dicts with
        column, change, from and to, see :class:`~airflow_provider.table.schema.ColumnChange`).
    """
    return {
        "table": job.table_name or table.config.name,
        "location": table.location,
        "instant": commit.instant,
        "completion_time": commit.completion_time,
        "action": str(commit.action),
        "operation": job.operation,
        "txn_id": job.transaction.txn_id,
        "write_id": job.transaction.write_id,
        "rows_inserted": sum(stat.num_inserts for stat in write_stats),
        "rows_updated": sum(stat.num_update_writes for stat in write_stats),
        "rows_deleted": sum(stat.num_deletes for stat in write_stats),
        "files_written": len(write_stats),
        "bytes_written": sum(stat.total_write_bytes for stat in write_stats),
        "partitions": sorted({stat.partition_path for stat in write_stats}),
        "rebases": rebases,
        "schema_changes": [change.to_dict() for change in schema_changes],
        "already_committed": already_committed,
    }


_CHANGES = "schema_changes"


def told_in_commit(changes: Sequence[ColumnChange]) -> dict[str, str]:
    """The entry of the commit metadata with an ingestion's changes of columns, for a later try of the
    operation.

    :param changes: changes of the table's columns.
    """
    return {_CHANGES: json.dumps([change.to_dict() for change in changes])} if changes else {}


def earlier_result(job: IngestJob, table: HudiTable, commit: CommitResult) -> dict[str, Any]:
    """The result of an earlier try of the same operation, from its commit metadata.

    :param job: the ingestion.
    :param table: its table.
    :param commit: the earlier try's commit.
    :raises NoSuchInstantError: when the commit is neither on the active nor on the archived timeline.
    """
    found = table.find_commit(commit.instant)
    if found is None:
        raise NoSuchInstantError(
            f"table {table.location}: commit {commit.instant} of operation {job.operation_key} is gone; "
            "what it did is no longer known",
            instant=commit.instant,
        )
    _, metadata = found
    texts = {name: metadata.extra_metadata.get(name) for name in ("txn_id", "write_id")}
    ids = {name: None if text is None else int(text) for name, text in texts.items()}
    changes = json.loads(metadata.extra_metadata.get(_CHANGES, "[]"))
    result = result_of(job, table, commit, metadata.write_stats, already_committed=True)
    return {**result, **ids, _CHANGES: changes}
