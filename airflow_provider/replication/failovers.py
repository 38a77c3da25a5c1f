"""Failover: the target becomes the source. A replication in the other direction leads back.

A planned failover needs both sides: it stops the writers of the source, waits for their transactions, copies
the rest, and changes the sides. An unplanned failover promotes the target at the last transaction that the
target has completely. When the old source comes back, its tables are compared with those of the new source. A
table with commits that the new source lacks is kept aside, and then the old source follows.

Each step may be taken twice. The two sides never take writes at the same moment: the target takes writes only
when the source takes none, or is given up.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from airflow_provider.concurrency.readers import forget_consumer
from airflow_provider.concurrency.transactions import abort_transaction
from airflow_provider.concurrency.undo import revert
from airflow_provider.exceptions import (
    InvalidInputError,
    NoSuchObjectError,
    ReplicationError,
    TransactionOpenError,
)
from airflow_provider.metastore import AnyMetastore, EventType, TableInfo, ValidWriteIdList
from airflow_provider.metastore.model import Phase
from airflow_provider.replication.hudi_tables import is_hudi_table
from airflow_provider.replication.policy import ReplicationPolicy
from airflow_provider.replication.replicator import Replicator
from airflow_provider.replication.settings import ReplicationSettings
from airflow_provider.replication.sides import consumer_of
from airflow_provider.table.file_groups import effect_of
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.storage import Storage, move_folder
from airflow_provider.table.timeline import TargetState, find_archived

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class LackingTransaction:
    """A transaction that was committed at the source, and that the target lacks.

    :param txn_id: the source's transaction.
    :param event_id: its COMMIT_TXN event.
    :param tables: its write ids, by ``database.table`` of the source.
    """

    txn_id: int
    event_id: int
    tables: Mapping[str, int]


@dataclass(frozen=True)
class Failover:
    """The result of a failover.

    :param policy: the replication.
    :param back: the replication in the other direction, by which the old source follows.
    :param event_id: the last event of the source that the target has applied.
    :param aborted: transactions of the source that the failover aborted, or that had not ended; the target
        has no data of them.
    :param lacking: the transactions that were committed at the source, and that the target lacks; None when
        the source does not answer. Empty after a planned failover.
    """

    policy: str
    back: str
    event_id: int
    aborted: tuple[int, ...]
    lacking: tuple[LackingTransaction, ...] | None = ()

    def to_dict(self) -> dict[str, Any]:
        """The failover, JSON-able."""
        return asdict(self)


def back_name(policy: str) -> str:
    """The name of the replication in the other direction. For that name, it is the first name again."""
    return policy.removesuffix("-back") if policy.endswith("-back") else f"{policy}-back"


def failover(
    policy: ReplicationPolicy,
    source: AnyMetastore,
    target: AnyMetastore,
    *,
    timeout_seconds: float = 600.0,
    abort_open: bool = False,
    settings: ReplicationSettings | None = None,
) -> Failover:
    """Hand the databases over to the target: a planned failover. A second call continues where the first
    ended.

    :param policy: the replication.
    :param source: the source's metastore.
    :param target: the target's metastore.
    :param timeout_seconds: seconds to wait for the end of transactions that write into the databases.
    :param abort_open: whether to abort and undo the transactions that are still open then; otherwise they are
        an error.
    :param settings: the settings of the last passes.
    :raises TransactionOpenError: when transactions are still open after the timeout; the error names them.
        The writers stay stopped: try again, or call :func:`abort_failover`.
    :raises NoSuchObjectError: when the replication has never begun.
    :raises ReplicationError: see :meth:`Replicator.run`.
    """
    replicator = Replicator(policy, source, target, settings=settings)
    known = replicator.status()
    aborted: tuple[int, ...] = ()
    if known.phase is not Phase.FAILED_OVER:
        if known.phase is Phase.BOOTSTRAP:
            replicator.run()
        source.replication_target().freeze(policy.name, policy.scope.databases)
        aborted = _end_open(policy, source, time.monotonic() + timeout_seconds, abort_open)
        ends = source.current_event_id()
        while (replicator.status().event_id or 0) < ends:
            replicator.run()
        replicator.run()
        _open_target(policy, target)
    _follow_back(policy, source, target)
    return Failover(policy.name, back_name(policy.name), replicator.status().event_id or 0, aborted)


def abort_failover(policy: ReplicationPolicy, source: AnyMetastore, target: AnyMetastore) -> None:
    """Give up an unfinished failover, and admit the source's writers again.

    :raises InvalidInputError: when the failover is done; then a failover in the other direction leads back.
    """
    known = target.replication_target().replication(policy.name)
    if known.phase is Phase.FAILED_OVER:
        raise InvalidInputError(
            f"replication {policy.name!r} has failed over already; hand over in the other direction, by "
            f"replication {back_name(policy.name)!r}",
            policy=policy.name,
        )
    source.replication_target().thaw(policy.scope.databases)


def promote(
    policy: ReplicationPolicy, target: AnyMetastore, *, source: AnyMetastore | None = None
) -> Failover:
    """Make the target the source at the last transaction that it has completely: an unplanned failover.

    It undoes the changes of transactions that were not committed. The caller makes sure that no process
    writes to the old source any more.

    :param policy: the replication.
    :param target: the target's metastore.
    :param source: the old source's metastore, if it still answers. Then the result names the lacking
        transactions, and the source's writers are stopped.
    :raises NoSuchObjectError: when the replication has never begun.
    :raises InvalidInputError: when the replication's bootstrap is not done.
    """
    records = target.replication_target()
    known = records.replication(policy.name)
    if known.event_id is None:
        raise InvalidInputError(
            f"replication {policy.name!r} has not finished its bootstrap, so the target has no complete "
            "state of the source",
            policy=policy.name,
        )
    if source is not None:
        source.replication_target().freeze(policy.name, policy.scope.databases)
    opened = sorted(records.mapped_txns(policy.name))
    if known.phase is not Phase.FAILED_OVER:
        _open_target(policy, target)
    lacking = None if source is None else lacking_transactions(policy, source, target)
    return Failover(policy.name, back_name(policy.name), known.event_id, tuple(opened), lacking)


def lacking_transactions(
    policy: ReplicationPolicy, source: AnyMetastore, target: AnyMetastore
) -> tuple[LackingTransaction, ...]:
    """The transactions that were committed at the source, and that the target lacks, in commit order.

    :raises EventsExpiredError: when the source's log does not reach back to the target's position.
    """
    known = target.replication_target().replication(policy.name)
    position, found = known.event_id or 0, []
    while events := source.next_events(position):
        for event in events:
            if event.event_type == EventType.COMMIT_TXN:
                txn_id = int(event.message["txnid"])
                tables = {
                    f"{write.database}.{write.table}": write.write_id
                    for write in source.writes_of(txn_id)
                    if write.write_id is not None and policy.scope.database(write.database)
                }
                if tables:
                    found.append(LackingTransaction(txn_id, event.event_id, tables))
        position = events[-1].event_id
    return tuple(found)


@dataclass(frozen=True)
class Divergence:
    """A table of the old source with commits that the new source lacks.

    :param table: ``database.table`` of the old source.
    :param commits: the requested times of these commits.
    :param kept_at: the folder or URL to which the whole table was moved.
    """

    table: str
    commits: tuple[str, ...]
    kept_at: str

    def to_dict(self) -> dict[str, Any]:
        """The divergence, JSON-able."""
        return asdict(self)


def follow_after_promotion(
    policy: ReplicationPolicy,
    old_source: AnyMetastore,
    new_source: AnyMetastore,
    *,
    settings: ReplicationSettings | None = None,
) -> tuple[Divergence, ...]:
    """Make the old source follow the new one after an unplanned failover.

    It compares each table. A table with commits that the new source lacks is moved aside, whole and readable,
    and copied again from the new source; its commits are not merged. Of the other tables it copies only the
    differences.

    :param policy: the replication by which the new source was promoted.
    :param old_source: the old source's metastore.
    :param new_source: the new source's metastore.
    :param settings: the settings of the first pass.
    :return: the tables that were kept aside.
    :raises InvalidInputError: when the policy has not failed over.
    """
    known = new_source.replication_target().replication(policy.name)
    if known.phase is not Phase.FAILED_OVER:
        raise InvalidInputError(f"replication {policy.name!r} has not failed over", policy=policy.name)
    old_source.replication_target().freeze(policy.name, policy.scope.databases)
    _end_open(policy, old_source, time.monotonic(), abort_open=True)
    kept = [
        found
        for each in old_source.replication_state(policy.scope.databases).tables
        if (found := _keep_aside(policy, each.table, known.event_id or 0))
    ]
    _follow_back(policy, old_source, new_source)
    back = policy.reversed(back_name(policy.name))
    Replicator(back, new_source, old_source, settings=settings).run(bootstrap=True)
    return tuple(kept)


# --- steps --------------------------------------------------------------------------------------


def _end_open(
    policy: ReplicationPolicy, source: AnyMetastore, deadline: float, abort_open: bool
) -> tuple[int, ...]:
    """Wait for the end of the transactions that write into the databases. These give no more write ids."""
    aborted: list[int] = []
    while opened := source.replication_target().open_writers(policy.scope.databases):
        if time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            continue
        if not abort_open:
            raise TransactionOpenError(
                f"replication {policy.name!r} cannot fail over: transactions {opened} of {source.url} "
                "write into its databases and have not ended; wait, abort them, or go back: "
                "table-services failover --abort",
                txn_ids=opened,
            )
        for txn_id in opened:
            reason = f"failover of replication {policy.name}"
            abort_transaction(source, txn_id, reason=reason, storage_options=policy.source_options)
            aborted.append(txn_id)
    return tuple(aborted)


def _open_target(policy: ReplicationPolicy, target: AnyMetastore) -> None:
    """Admit writes to the target, after undoing the transactions that were not committed."""
    databases = list(policy.scope.databases.values())
    for each in target.replication_state(databases).tables:
        settle_table(policy.name, policy.target_options, each.table, each.write_ids)
    target.replication_target().take_over(policy.name, databases)
    log.info("replication %s: %s takes writes now", policy.name, target.url)


def settle_table(policy: str, options: Mapping[str, Any], table: TableInfo, seen: ValidWriteIdList) -> None:
    """Undo a table's changes by transactions that will not be committed, and make it no target any more.

    :param policy: the replication.
    :param options: keyword arguments of the target's fsspec file systems.
    :param table: the target's table.
    :param seen: the table's valid write ids.
    :raises ReplicationError: when a commit cannot be undone.
    """
    if not table.location:
        return  # a view has no data
    storage = Storage(table.location, options)
    if not is_hudi_table(storage):
        return
    hudi = HudiTable.at(storage)
    timeline = hudi.timeline()
    for commit in reversed(timeline.commits()):
        write_id = effect_of(storage, timeline, commit).write_id
        if write_id is not None and not seen.is_valid(write_id):
            reason = f"its transaction was not committed by replication {policy}"
            undone = revert(hudi, commit.requested_time, reason=reason)
            if undone is None:
                raise ReplicationError(
                    f"table {table.full_name}: commit {commit.requested_time} belongs to a transaction "
                    "that was not committed, and cannot be undone",
                    instant=commit.requested_time,
                )
    TargetState.forget(storage)
    forget_consumer(hudi, consumer_of(policy))


def _follow_back(policy: ReplicationPolicy, old_source: AnyMetastore, new_source: AnyMetastore) -> None:
    """Make the old source the target of the replication in the other direction."""
    back = policy.reversed(back_name(policy.name))
    old_source.replication_target().follow_back(back.name, new_source.url, dict(back.scope.databases))
    with suppress(NoSuchObjectError):
        old_source.unregister_consumer(consumer_of(policy.name))
    for each in old_source.replication_state(policy.scope.databases).tables:
        location = each.table.location
        storage = Storage(location, policy.source_options) if location else None
        if storage is not None and is_hudi_table(storage):
            # Without this state the replicator would take the table for a copy of another one.
            there = Storage(policy.scope.location(location), policy.target_options)
            TargetState(there.root).write(storage)
            forget_consumer(HudiTable.at(storage), consumer_of(policy.name))


def _keep_aside(policy: ReplicationPolicy, table: TableInfo, event_id: int) -> Divergence | None:
    """Move a table aside if it has commits that the new source lacks."""
    if not table.location:
        return None  # a view has no data
    old = Storage(table.location, policy.source_options)
    new = Storage(policy.scope.location(table.location), policy.target_options)
    if not is_hudi_table(old):
        return None
    there = HudiTable.at(new).timeline() if is_hudi_table(new) else None
    alone = [
        commit.requested_time
        for commit in HudiTable.at(old).timeline().commits()
        if there is None
        or (there.find(commit.requested_time) is None and find_archived(new, commit.requested_time) is None)
    ]
    if not alone:
        return None
    kept_at = f"{old.root}.kept_{policy.name}_{event_id}"
    move_folder(old, kept_at)
    log.warning("table %s: commits %s are kept in %s", table.full_name, ", ".join(alone), kept_at)
    return Divergence(table.full_name, tuple(alone), kept_at)
