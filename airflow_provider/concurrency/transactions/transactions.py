"""The end of a metastore transaction around writes into several tables: all of them become visible, or none.

Each write completes on its table's timeline when it is done, and the transaction holds its file groups
(``conflicts/open_transactions.py``). The transaction's commit in the metastore is one step for all tables,
and so is its abort. After an abort every write is reverted, so that readers that know no transactions stop
seeing it too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from airflow_provider.concurrency.commit import publish_head
from airflow_provider.concurrency.conflicts import instants_of_open_transactions, unmark_open_transaction
from airflow_provider.concurrency.log import CommitLog
from airflow_provider.concurrency.undo import revert, rollback
from airflow_provider.exceptions import (
    CommitError,
    NoSuchInstantError,
    NoSuchTransactionError,
    TableServiceError,
)
from airflow_provider.metastore import AnyMetastore, Insertion, PartitionSpec, TableWriteInfo, TxnState
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.keys import partition_values
from airflow_provider.table.timeline import Action, State

log = logging.getLogger(__name__)

_PENDING = "pending"  # sorts after every completion time


def commit_transaction(
    metastore: AnyMetastore, txn_id: int, *, storage_options: Mapping[str, Any] | None = None
) -> int:
    """Commit a transaction around several writes. A second call changes nothing.

    The same step registers its new partitions and fires its INSERT events.

    :param metastore: the metastore.
    :param txn_id: the transaction.
    :param storage_options: keyword arguments of the tables' fsspec file systems.
    :return: the id of its COMMIT_TXN event.
    :raises CommitError: when a table in which the transaction has a write id has no completed write of it, or
        has a pending one; the transaction stays open.
    :raises TransactionAbortedError: when it was aborted, for example by its timeout.
    :raises NoSuchTransactionError: when it was never opened.
    :raises TableError: when one of its tables cannot be opened.
    """
    writes = metastore.writes_of(txn_id)
    if metastore.get_txn(txn_id).state is not TxnState.OPEN:
        event_id = metastore.commit_txn(txn_id)  # raises when it was aborted
    else:
        new: dict[tuple[str, str], list[PartitionSpec]] = {}
        inserted: dict[tuple[str, str], list[Insertion]] = {}
        for write in writes:
            table, place = HudiTable.open(write.location, storage_options), (write.database, write.table)
            new.setdefault(place, []).extend(partition_specs(table, _partitions_written(table, write)))
            inserted.setdefault(place, []).extend(insertions(table, write.instant or ""))
        # From here on, recovery commits the transaction if this process dies.
        metastore.request_commit(txn_id)
        event_id = metastore.commit_txn(txn_id, new_partitions=new, insertions=inserted)
    for location in _locations(writes):
        try:
            _release(HudiTable.open(location, storage_options), txn_id)
        except (TableServiceError, OSError) as error:
            # The next writer releases the file groups (settle_transactions).
            log.warning("transaction %d is committed, and still holds %s: %s", txn_id, location, error)
    return event_id


def abort_transaction(
    metastore: AnyMetastore,
    txn_id: int,
    *,
    reason: str = "asked for",
    storage_options: Mapping[str, Any] | None = None,
) -> int:
    """Abort a transaction, and undo its completed and pending writes. A second call changes nothing.

    :param metastore: the metastore.
    :param txn_id: the transaction.
    :param reason: why, for the log.
    :param storage_options: keyword arguments of the tables' fsspec file systems.
    :return: the id of its ABORT_TXN event.
    :raises NoSuchTransactionError: when it is committed, or was never opened.
    :raises TableError: when a write cannot be undone, or a table cannot be opened. The transaction is aborted
        all the same, and no reader with a snapshot sees its writes.
    """
    writes = metastore.writes_of(txn_id)
    event_id = metastore.abort_txn(txn_id)
    log.info("transaction %d was aborted: %s", txn_id, reason)
    failure: TableServiceError | OSError | None = None
    for location in _locations(writes):
        try:
            undo_writes(HudiTable.open(location, storage_options), txn_id)
        except (TableServiceError, OSError) as error:
            log.warning("transaction %d could not be undone in %s now: %s", txn_id, location, error)
            failure = error
    if failure is not None:
        raise failure
    return event_id


def settle_transactions(metastore: AnyMetastore, table: HudiTable) -> None:
    """Apply the end of transactions to a table in which they still hold file groups.

    The process that ends a transaction does this. If such a process dies, this function finishes its work.

    :param metastore: the metastore in which the table is registered.
    :param table: the table.
    :raises TableError: when a write of an aborted transaction cannot be undone.
    """
    for txn_id in sorted(set(instants_of_open_transactions(table.storage).values())):
        try:
            state, writes = metastore.get_txn(txn_id).state, metastore.writes_of(txn_id)
        except NoSuchTransactionError:
            continue  # the transaction is of another metastore
        if table.location not in _locations(writes):
            continue  # the transaction is of another metastore
        if state is TxnState.COMMITTED:
            _release(table, txn_id)
        elif state is TxnState.ABORTED:
            undo_writes(table, txn_id)


def undo_writes(table: HudiTable, txn_id: int) -> None:
    """Undo the writes of an aborted transaction to a table, completed and pending ones.

    :param table: the table.
    :param txn_id: the transaction; it is aborted in the metastore, so that no process can commit it.
    :raises TableError: when a write cannot be undone.
    """
    reason, timeline = f"transaction {txn_id} was aborted", table.timeline()

    def completion(instant: str) -> str:
        found = timeline.find(instant)
        return (found and found.completion_time) or _PENDING

    # A later write may be merged on an earlier one, so the last one is undone first.
    for instant in sorted(_held_by(table, txn_id), key=completion, reverse=True):
        if is_completed(table, instant):
            revert(table, instant, reason=reason)
        else:
            with suppress(NoSuchInstantError):  # the write never began, or another process was faster
                rollback(table, instant, reason=reason)
        unmark_open_transaction(table.storage, instant)


def is_completed(table: HudiTable, instant: str) -> bool:
    """Whether an instant has committed. If its writer has not published it, this function does."""
    publish_head(table.storage, CommitLog(table.storage))
    return table.find_commit(instant) is not None


def partition_specs(table: HudiTable, paths: Iterable[str]) -> list[PartitionSpec]:
    """Partitions as the metastore registers them; none for a table without partitions.

    :param table: the table.
    :param paths: partition paths relative to the table.
    """
    if not table.config.partition_fields:
        return []
    return [PartitionSpec(partition_values(path, table.config), table.storage.url(path)) for path in paths]


def partitions_of(table: HudiTable, instant: str) -> list[str]:
    """The partition paths in which a commit wrote files."""
    return sorted(_files_of(table, instant))


def insertions(table: HudiTable, instant: str) -> list[Insertion]:
    """The INSERT events of a commit, one for each partition.

    :param table: the table.
    :param instant: the commit's requested time.
    """
    found = table.find_commit(instant)
    replace = found is not None and found[0].action is Action.REPLACE_COMMIT
    is_partitioned = bool(table.config.partition_fields)
    return [
        Insertion(files, partition_values(path, table.config) if is_partitioned else None, replace)
        for path, files in sorted(_files_of(table, instant).items())
    ]


def _files_of(table: HudiTable, instant: str) -> dict[str, list[str]]:
    """URLs of the files that a commit wrote, by partition path; empty if the instant is no commit."""
    found = table.find_commit(instant)
    files: dict[str, list[str]] = {}
    for stat in found[1].write_stats if found is not None else ():
        files.setdefault(stat.partition_path, []).append(table.storage.url(stat.path))
    return files


def _partitions_written(table: HudiTable, write: TableWriteInfo) -> list[str]:
    told = f"transaction {write.txn_id} cannot be committed: table {write.database}.{write.table}"
    if write.instant is None:
        raise CommitError(
            f"{told} has a write id in it, but was not written; run the write again, or abort the "
            "transaction",
            txn_id=write.txn_id,
        )
    if not is_completed(table, write.instant):
        raise CommitError(
            f"{told} has lost instant {write.instant}, which was rolled back; abort the transaction, and "
            "begin again",
            txn_id=write.txn_id,
            instant=write.instant,
        )
    timeline = table.timeline()
    for instant, txn_id in instants_of_open_transactions(table.storage).items():
        found = timeline.find(instant)
        if txn_id == write.txn_id and (found is None or found.state is not State.COMPLETED):
            raise CommitError(
                f"{told} is still being written by instant {instant}; wait for its end, or roll it back",
                txn_id=write.txn_id,
                instant=instant,
            )
    return partitions_of(table, write.instant)


def _release(table: HudiTable, txn_id: int) -> None:
    for instant in _held_by(table, txn_id):
        unmark_open_transaction(table.storage, instant)


def _held_by(table: HudiTable, txn_id: int) -> list[str]:
    return [
        instant
        for instant, holder in instants_of_open_transactions(table.storage).items()
        if holder == txn_id
    ]


def _locations(writes: Iterable[TableWriteInfo]) -> list[str]:
    return sorted({write.location.removeprefix("file://").rstrip("/") for write in writes})
