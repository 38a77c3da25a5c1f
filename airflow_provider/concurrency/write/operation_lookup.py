"""Finding the result of an earlier try of the same operation, and ending its pending instants."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

from airflow_provider.concurrency.commit import CommitResult, publish_head
from airflow_provider.concurrency.conflicts import PendingInstant, pending_instants
from airflow_provider.concurrency.log import Commit, CommitLog, Restore, Revert
from airflow_provider.concurrency.undo import rollback
from airflow_provider.exceptions import TableError
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.timeline import WRITE_ACTIONS, archived, earliest_zone, format_time, parse_time

log = logging.getLogger(__name__)

_SECONDS_BETWEEN_LOOKS = 2.0


def find_operation(
    table: HudiTable, operation_key: str, *, since: str | None = None
) -> CommitResult | PendingInstant | None:
    """The commit or the pending instant of an earlier try of the same operation.

    :param table: the table.
    :param operation_key: the key that :func:`begin_write` was given.
    :param since: an instant time in UTC at or before the first try, so that only the log's end has to be
        read; None reads the whole log and the archived timeline.
    :return: the commit when the try has completed; the pending instant when it has not ended; None when there
        was no try, or it was rolled back or undone.
    """
    storage = table.storage
    commit_log = CommitLog(storage)
    pending = [instant for instant in pending_instants(table) if instant.operation_key == operation_key]
    publish_head(storage, commit_log)
    for key, commit in _commits(table, commit_log, since):
        if key == operation_key:
            return commit
    return pending[-1] if pending else None


def settle_operation(
    table: HudiTable,
    operation_key: str,
    *,
    since: str | None = None,
    reason: str,
    wait_for: Callable[[PendingInstant], bool] | None = None,
) -> CommitResult | None:
    """End the earlier tries of an operation: find the commit, or roll back the pending instant.

    A rollback is safe at any time, even while the writer is alive. Either the rollback's entry precedes the
    writer's commit, which then fails, or the rollback finds the commit.

    :param table: the table.
    :param operation_key: the key that :func:`begin_write` was given.
    :param since: see :func:`find_operation`.
    :param reason: why a pending instant is rolled back, for the log.
    :param wait_for: called with a pending instant every two seconds: True gives its writer more time, False
        rolls it back. None rolls a pending instant back at once.
    :return: the commit; None when no try has committed, or ever will.
    :raises TableError: when a pending instant cannot be rolled back.
    """
    while isinstance(found := find_operation(table, operation_key, since=since), PendingInstant):
        if wait_for is not None and wait_for(found):
            time.sleep(_SECONDS_BETWEEN_LOOKS)
            continue
        log.info("rolling back instant %s of an earlier try: %s", found.instant, reason)
        try:
            rollback(table, found.instant, reason=reason)
        except TableError:
            # The instant may have ended between the two calls; if it has not, the error stands.
            again = find_operation(table, operation_key, since=since)
            if isinstance(again, PendingInstant) and again.instant == found.instant:
                raise
    return found


def roll_back_operation(table: HudiTable, operation_key: str, *, reason: str) -> None:
    """Roll back the pending instants of earlier tries of an operation; completed ones stay.

    This is for an operation of several instants, such as all compactions that were due. It is as safe as
    :func:`settle_operation`.

    :param table: the table.
    :param operation_key: the key that :func:`begin_planned` and :func:`schedule` were given.
    :param reason: why the instants are rolled back, for the log.
    :raises TableError: when a pending instant cannot be rolled back.
    """
    for pending in pending_instants(table):
        if pending.operation_key == operation_key:
            log.info("rolling back instant %s of an earlier try: %s", pending.instant, reason)
            try:
                rollback(table, pending.instant, reason=reason)
            except TableError:
                # The instant may have ended between the two calls; if it has not, the error stands.
                if any(pending.instant == each.instant for each in pending_instants(table)):
                    raise


def find_operations(table: HudiTable, prefix: str, *, since: str | None = None) -> dict[str, CommitResult]:
    """The commits of many operations, from one pass over the log.

    :param table: the table.
    :param prefix: the beginning of the operations' keys.
    :param since: see :func:`find_operation`.
    :return: commits by operation key.
    """
    commit_log = CommitLog(table.storage)
    publish_head(table.storage, commit_log)
    found: dict[str, CommitResult] = {}
    for key, commit in _commits(table, commit_log, since):
        if key.startswith(prefix):
            found.setdefault(key, commit)
    return found


def _commits(
    table: HudiTable, commit_log: CommitLog, since: str | None
) -> Iterator[tuple[str, CommitResult]]:
    """Commits that were not undone, with their operation keys; first those in the log, newest first."""
    if since is not None:
        since = format_time(parse_time(since), earliest_zone(table.storage))
    reverted: set[int] = set()
    restored: set[str] = set()
    for entry in commit_log.backwards():
        if since is not None and entry.completion_time < since:
            return
        if isinstance(entry, Restore):
            restored |= entry.undoes
        elif isinstance(entry, Revert):
            reverted.add(entry.reverts)
        elif entry.instant in restored or entry.sequence in reverted:
            continue
        elif isinstance(entry, Commit) and entry.operation_key:
            yield (
                entry.operation_key,
                CommitResult(entry.instant, entry.completion_time, entry.action, entry.sequence),
            )
    # Every trimmed entry's instant is archived, and an archived commit cannot be undone any more.
    for found in archived(table.storage, table.config.layout, actions=WRITE_ACTIONS, completed_after=since):
        instant = found.instant
        if (key := found.commit_metadata.extra_metadata.get("operation_key")) is not None:
            yield key, CommitResult(instant.requested_time, instant.completion_time or "", instant.action, 0)
