"""Recovery: commits or aborts the metastore transactions of dead writers, by the timelines of their
tables."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_provider.concurrency.transactions.transactions import (
    insertions,
    is_completed,
    partition_specs,
    partitions_of,
    settle_transactions,
)
from airflow_provider.concurrency.write import settle_operation
from airflow_provider.exceptions import (
    NoSuchTransactionError,
    NotATableError,
    TableServiceError,
    TransactionAbortedError,
)
from airflow_provider.locks.owner import split_owner
from airflow_provider.metastore import AnyMetastore, RecoveredTxn, TableWriteInfo, TxnInfo
from airflow_provider.metastore.model import HUDI, PROVIDER
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.timeline import format_time

log = logging.getLogger(__name__)

# The clocks of the metastore's database and of the committers differ by no more than this.
_CLOCK_SKEW = timedelta(days=1)


def recover_transactions(
    metastore: AnyMetastore,
    *,
    timeout_seconds: float = 300.0,
    storage_options: Mapping[str, Any] | None = None,
    sees_all_tables: bool = True,
) -> list[RecoveredTxn]:
    """End every transaction without a heartbeat, by the timelines of its tables.

    If all writes of a transaction have committed, recovery registers its new partitions, fires its INSERT
    events, and commits it. It commits a transaction around several writes only if its commit had been
    requested. It aborts any other transaction, rolls back its pending instants, and reverts its completed
    ones. It finds the writes of a transaction by the instants that the transaction recorded, or by the
    operation key in its ``agent`` (:func:`~airflow_provider.locks.owner.describe_owner`).

    :param metastore: the metastore.
    :param timeout_seconds: silence after which a transaction counts as abandoned (Hive's
        ``hive.txn.timeout``), unless it was opened with a timeout of its own.
    :param storage_options: keyword arguments of the tables' fsspec file systems.
    :param sees_all_tables: whether a table that is not found is gone. False for a process that may not reach
        every table's storage, such as a metastore's service: it leaves the writes to such tables to other
        processes.
    :return: the transactions that were ended, with their outcome.
    """

    def ended_well(write: TableWriteInfo) -> bool:
        txn = metastore.get_txn(write.txn_id)
        if not txn.commit_on_recovery:
            return False  # its writes are undone once it is aborted
        try:
            table = HudiTable.open(write.location, storage_options)
        except Exception as error:
            if (sees_all_tables and isinstance(error, NotATableError)) or _is_foreign(metastore, write):
                return False
            raise
        instant = write.instant
        if instant is None or not is_completed(table, instant):
            instant = _settled(table, txn)
        if instant is None:
            return False
        if specs := partition_specs(table, partitions_of(table, instant)):
            metastore.add_partitions(write.database, write.table, specs)
        # Another process that recovers the transaction too may have fired the events and ended it.
        with suppress(NoSuchTransactionError, TransactionAbortedError):
            for one in insertions(table, instant):
                metastore.fire_insert_event(
                    write.database,
                    write.table,
                    one.files,
                    values=one.values,
                    replace=one.replace,
                    txn_id=write.txn_id,
                )
        return True

    recovered = metastore.recover_timed_out(timeout_seconds, ended_well)
    for each in recovered:
        for write in metastore.writes_of(each.txn_id):
            try:
                settle_transactions(metastore, HudiTable.open(write.location, storage_options))
            except (TableServiceError, OSError) as error:
                # The next writer settles it. No reader with a snapshot sees the writes of an aborted
                # transaction.
                told = "transaction %d has ended, but its end has not reached table %s: %s"
                log.warning(told, each.txn_id, write.location, error)
    return recovered


def _is_foreign(metastore: AnyMetastore, write: TableWriteInfo) -> bool:
    """Whether a write is into a table that one of Hive's own clients made, and that is no Hudi table."""
    table = metastore.get_table(write.database, write.table)
    return write.instant is None and bool(table.hive_fields) and table.parameters.get(PROVIDER) != HUDI


def _settled(table: HudiTable, txn: TxnInfo) -> str | None:
    """The commit of the operation that a transaction's agent names; a pending one is rolled back.

    :raises TableError: when it cannot be rolled back, and so may still commit; the transaction stays open.
    """
    _, operation_key = split_owner(txn.agent or "")
    if operation_key is None:
        return None
    since = format_time(datetime.fromtimestamp(txn.opened_at, UTC) - _CLOCK_SKEW)
    found = settle_operation(table, operation_key, since=since, reason=f"transaction {txn.id} timed out")
    return None if found is None else found.instant
