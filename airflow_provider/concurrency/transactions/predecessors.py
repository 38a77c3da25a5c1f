"""The order of transactions: a commit's transaction ends after those of the commits that it was merged on.

A write completes on its table's timeline first, and its own transaction commits a moment later, or much later
if its writer was killed in between. Meanwhile another write may be merged on it. If the transaction of the
later write ended first, no snapshot could show its rows without those of the open transaction.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from airflow_provider.concurrency.conflicts import instants_of_open_transactions
from airflow_provider.concurrency.transactions.transactions import insertions, partition_specs, partitions_of
from airflow_provider.exceptions import NoSuchInstantError, NoSuchTransactionError, TransactionAbortedError
from airflow_provider.metastore import AnyMetastore
from airflow_provider.table.file_groups import Effect, effect_of
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.timeline import earliest_zone, format_time

log = logging.getLogger(__name__)

# The clocks of the metastore's database and of the committers differ by no more than this.
_CLOCK_SKEW = timedelta(minutes=10)


def commit_predecessors(
    metastore: AnyMetastore, table: HudiTable, database: str, name: str, instant: str, write_id: int
) -> list[int]:
    """Commit the open transactions of the completed writes on which a commit was merged.

    The timeline is the truth for a transaction of a single write: once the write has completed, any process
    may commit the transaction, as recovery does. A transaction around several writes is left alone, because
    no other write is merged on its file groups.

    :param metastore: the metastore.
    :param table: the table.
    :param database: the table's database.
    :param name: the table's name.
    :param instant: requested time of the commit, whose own transaction is open.
    :param write_id: the table's write id in that transaction.
    :return: the transactions that were committed, in the order of their commits on the timeline.
    """
    valid = metastore.valid_write_id_list(database, name)
    since = instant  # commits that completed later are concurrent
    if any(each != write_id and not valid.is_aborted(each) for each in valid.exceptions):
        since = min(since, _oldest_open(metastore, table))
    needed: list[Effect] = []
    several = instants_of_open_transactions(table.storage)
    for effect in _effects_since(table, since):
        if not needed:
            if effect.instant.requested_time == instant:
                needed.append(effect)
            continue
        other, is_alone = effect.write_id, effect.instant.requested_time not in several
        is_open = other is not None and not (valid.is_valid(other) or valid.is_aborted(other))
        # A clustering, which has no write id, may itself be merged on an open transaction's commit.
        if (other is None or (is_open and is_alone)) and any(each.rests_on(effect) for each in needed):
            needed.append(effect)
    committed = []
    for effect in reversed(needed[1:]):
        if effect.write_id is None or effect.txn_id is None:
            continue
        if not metastore.get_txn(effect.txn_id).commit_on_recovery:
            continue
        place, below = (database, name), effect.instant.requested_time
        specs, inserted = partition_specs(table, partitions_of(table, below)), insertions(table, below)
        with suppress(TransactionAbortedError, NoSuchTransactionError):
            metastore.commit_txn(
                effect.txn_id,
                new_partitions={place: specs} if specs else {},
                insertions={place: inserted} if inserted else {},
            )
            committed.append(effect.txn_id)
            log.info("transaction %d is committed: its instant %s had completed", effect.txn_id, below)
    return committed


def _effects_since(table: HudiTable, since: str) -> Iterator[Effect]:
    """The effects of the commits that completed since an instant time, the newest first."""
    timeline = table.timeline()
    for commit in reversed(timeline.commits()):
        if (commit.completion_time or "") < since:
            return
        with suppress(NoSuchInstantError):  # just undone
            yield effect_of(table.storage, timeline, commit)


def _oldest_open(metastore: AnyMetastore, table: HudiTable) -> str:
    """An instant time before the oldest open transaction; no commit of an open transaction is older."""
    valid = metastore.valid_txn_list()
    oldest = min((each for each in valid.exceptions if not valid.is_aborted(each)), default=None)
    opened_at = time.time() if oldest is None else metastore.get_txn(oldest).opened_at
    return format_time(datetime.fromtimestamp(opened_at, UTC) - _CLOCK_SKEW, earliest_zone(table.storage))
