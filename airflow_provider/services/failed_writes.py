"""Undoing what died, now, without waiting for the next writer."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider.concurrency import PendingInstant, pending_instants, rollback_dead_writers
from airflow_provider.services.orphans import DAY, delete_reverted_files
from airflow_provider.table.hudi_table import HudiTable

if TYPE_CHECKING:
    from airflow_provider.metastore import AnyMetastore

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FailedWrites:
    """What was undone, or is to be undone.

    :param rolled_back: requested times of the instants of dead writers.
    :param deleted: data files of long-reverted rewrites, relative to the table.
    :param alive: requested times of the instants that are left alone, because their writers live.
    """

    rolled_back: list[str]
    deleted: list[str]
    alive: list[str]

    def to_dict(self) -> dict[str, Any]:
        """The same, JSON-able."""
        return asdict(self)


def rollback_failed_writes(
    table: HudiTable,
    *,
    metastore: AnyMetastore | None = None,
    reverted_after: float | None = DAY,
    dry_run: bool = False,
) -> FailedWrites:
    """Roll back the writers whose heartbeat expired, and delete the files of long-reverted rewrites.

    Every writer does the first when it begins, so this is for tables that are written to seldom.

    :param table: the table.
    :param metastore: the one in which the table is registered: its transactions that timed out are ended,
        and what those wrote that were aborted is undone.
    :param reverted_after: seconds that a revert has to be over before the files of the rewrite that it
        undid are deleted: longer than any query runs; None deletes none.
    :param dry_run: whether only to tell what there is to be done; of transactions nothing is told.
    :raises UnsupportedTableError: when this package does not write such a table.
    :raises TableError: when a write of an aborted transaction cannot be undone.
    """
    table.check_writable()
    if metastore is not None and not dry_run:
        # Imported here: a table that is in no metastore needs no database.
        from airflow_provider.concurrency.transactions.recovery import recover_transactions
        from airflow_provider.concurrency.transactions.transactions import settle_transactions

        recover_transactions(metastore, storage_options=table.storage.options)
        settle_transactions(metastore, table)
    pending = pending_instants(table)
    for each in pending:
        log.info(
            "pending: %s %s by %s, priority %d, %s",
            each.operation or each.action,
            each.instant,
            each.owner,
            each.priority,
            _described(each),
        )
    if dry_run:
        rolled_back = [each.instant for each in pending if each.alive is False]
    else:
        rolled_back = rollback_dead_writers(table)
    deleted: list[str] = []
    if reverted_after is not None:
        deleted = delete_reverted_files(table, after_seconds=reverted_after, dry_run=dry_run)
    log.info(
        "%s %d dead writers: %s; and %d files of reverted rewrites",
        "to be undone:" if dry_run else "undone:",
        len(rolled_back),
        ", ".join(rolled_back) or "none",
        len(deleted),
    )
    return FailedWrites(rolled_back, deleted, [each.instant for each in pending if each.alive])


def _described(pending: PendingInstant) -> str:
    if pending.alive is None:
        return "without a heartbeat, left alone"
    return f"{'alive' if pending.alive else 'dead'}, last beat {pending.age_seconds or 0.0:.0f} s ago"
