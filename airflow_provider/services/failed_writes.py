"""Rollback of dead writers at once, without waiting for the next writer."""

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
    """The rollbacks and deletions that were done, or, for a dry run, are due.

    :param rolled_back: requested times of the instants of dead writers.
    :param deleted: data files of rewrites that were reverted long ago, relative to the table.
    :param alive: requested times of instants that stay, because their writers are alive.
    """

    rolled_back: list[str]
    deleted: list[str]
    alive: list[str]

    def to_dict(self) -> dict[str, Any]:
        """The result as a JSON-able dict."""
        return asdict(self)


def rollback_failed_writes(
    table: HudiTable,
    *,
    metastore: AnyMetastore | None = None,
    reverted_after: float | None = DAY,
    dry_run: bool = False,
) -> FailedWrites:
    """Roll back the writers whose heartbeat expired, and delete the files of rewrites reverted long ago.

    Every writer rolls back dead writers when it begins, so this is for tables with few writes.

    :param table: the table.
    :param metastore: the metastore in which the table is registered. Its expired transactions are aborted,
        and writes of its aborted transactions are undone.
    :param reverted_after: seconds after a revert until the files of the reverted rewrite are deleted. It must
        be longer than any query runs. None deletes none.
    :param dry_run: True only reports what is due on the table; it does not report transactions.
    :raises UnsupportedTableError: when this package does not write such a table.
    :raises TableError: when a write of an aborted transaction cannot be undone.
    """
    table.check_writable()
    if metastore is not None and not dry_run:
        # Imported here: a table without a metastore needs no database.
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
