"""Writing rows as one commit: a write begins again if a rebase within its instant is not enough."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from airflow_provider import metrics
from airflow_provider.concurrency import begin_write, wait_for_instant
from airflow_provider.concurrency.conflicts import LOSSES_BEFORE_A_TURN, turn_seconds, why_no_turn_helps
from airflow_provider.exceptions import HigherPriorityWriteError, WriteConflictError
from airflow_provider.indexing import Build, build_in_process
from airflow_provider.ingestion.incoming_rows import IncomingRows
from airflow_provider.ingestion.ingest_job import IngestJob
from airflow_provider.ingestion.ingestion import BeginAgainError, Ingestion
from airflow_provider.ingestion.key_lookup import check_appendable
from airflow_provider.locks import LockProvider
from airflow_provider.managed import maintain
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.timeline import Action

log = logging.getLogger(__name__)


def write_rows(
    job: IngestJob,
    table: HudiTable,
    rows: IncomingRows,
    *,
    lock: LockProvider | None = None,
    is_alive: Callable[[], bool] | None = None,
    around: Callable[[Ingestion], AbstractContextManager[None]] = lambda _: nullcontext(),
    build: Build = build_in_process,
) -> dict[str, Any]:
    """Write rows into a table, as one commit.

    :param job: the ingestion.
    :param table: the table.
    :param rows: rows that fit into the table.
    :param lock: the table lock; by ``job.lock``, or the table's options, when None.
    :param is_alive: called before every heartbeat; False gives the write up.
    :param around: a context manager; it is entered before the write is planned, and left after the commit or
        a failure.
    :param build: writes the base files of indexes that the table's options enable and that are missing.
    :return: see :func:`~airflow_provider.ingestion.result.result_of`.
    :raises WriteConflictError: when another commit touched the same file groups, or added the same
        new key, first, and the policy is to raise, or the write was rebased too often.
    :raises HigherPriorityWriteError: when a live writer of higher priority works on the same file
        groups, and the policy is to fail, or the wait for it took too long.
    :raises CommitError: when the write ended otherwise without a commit.
    :raises UnsupportedTableError: when newer versions of a merge-on-read table's rows keep values of older
        ones.
    """
    if job.kind_on(table).looks_up_keys:
        check_appendable(table)
    lock = lock or job.open_lock(table)
    patience = time.monotonic() + job.settings.policy.yield_timeout
    begun_again = losses = 0
    while True:
        # A write that begins again rewrites all its rows. In its turn it does so before another writer
        # commits.
        takes_turn = begun_again > 0 and losses >= LOSSES_BEFORE_A_TURN
        with lock if takes_turn else nullcontext():
            writer = begin_write(
                table,
                operation=job.kind.hudi_type,
                action=table.write_action if job.kind.action is Action.COMMIT else job.kind.action,
                settings=job.settings,
                lock=lock,
                operation_key=job.operation_key,
                is_alive=is_alive,
                transaction=job.transaction,
                losses=losses,
            )
            log.info(
                "table %s: instant %s begun, operation %s, priority %d",
                *(table.location, writer.instant, job.operation, job.settings.priority),
            )
            ingestion = Ingestion(job, table, writer, rows.unsent())
            lost: HigherPriorityWriteError | BeginAgainError
            try:
                with writer, around(ingestion):
                    result, commit = ingestion.run()
            except (HigherPriorityWriteError, BeginAgainError) as error:
                lost, losses = error, writer.losses + 1
            else:
                break
        if isinstance(lost, HigherPriorityWriteError):
            _give_way(job, table, lost, patience)
            continue
        begun_again += 1
        takes, bound = ingestion.writing_took, turn_seconds(job.settings.priority)
        if begun_again > job.settings.policy.max_rebases or (
            losses >= LOSSES_BEFORE_A_TURN and takes > bound
        ):
            raise WriteConflictError(f"{lost}{why_no_turn_helps(takes, bound)}", **lost.details) from None
        log.info("begun again: %s", lost)
        metrics.count("rebases", **writer.tags)
    result["rebases"] += begun_again
    maintain(table, commit.sequence, build=build, lock=lock)
    return result


def _give_way(job: IngestJob, table: HudiTable, error: HigherPriorityWriteError, patience: float) -> None:
    """Wait for the end of a writer of higher priority, if the job's policy allows it."""
    left, other = patience - time.monotonic(), error.details["conflicting_instant"]
    if job.settings.policy.on_higher_priority != "wait" or left <= 0:
        raise error
    log.info("waiting for the end of %s: %s", other, error)
    if not wait_for_instant(table, other, left):
        raise error
