"""Recovery: ending the metastore transactions of writers that died, as the timelines of their tables say."""

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

# The clocks of the metastore's database and of the committers may differ by so much.
_CLOCK_SKEW = timedelta(days=1)


def recover_transactions(
    metastore: AnyMetastore,
    *,
    timeout_seconds: float = 300.0,
    storage_options: Mapping[str, Any] | None = None,
    sees_all_tables: bool = True,
) -> list[RecoveredTxn]:
    """End every transaction without a heartbeat as the timelines of its tables say.

    A transaction all of whose writes have committed is committed, after its new partitions are
    registered and INSERT events told; one around several writes only when its commit had been asked
    for. Of any other the pending instants are rolled back, and it is aborted; then what it had committed
    to the tables is reverted. The writes of a transaction are found by the instants that it recorded, or
    by the operation key in its ``agent`` (:func:`~airflow_provider.locks.owner.describe_owner`).

    :param metastore: the metastore.
    :param timeout_seconds: silence after which a transaction counts as left alone
        (Hive's ``hive.txn.timeout``), unless it was opened with a timeout of its own.
    :param storage_options: keyword arguments of the tables' fsspec file systems.
    :param sees_all_tables: whether a table that is not found is gone. False for a process that may not reach
        every table's storage, such as a metastore's service: it leaves what was written there to others.
    :return: what became of each.
    """

    def ended_well(write: TableWriteInfo) -> bool:
        txn = metastore.get_txn(write.txn_id)
        if not txn.commit_on_recovery:
            return False  # what it wrote is undone once it is aborted
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
        # Another process that recovers it at the same moment may have ended it, with its events.
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
                # The next writer does it; of an aborted one no reader with a snapshot sees anything.
                told = "transaction %d has ended, and not yet in %s: %s"
                log.warning(told, each.txn_id, write.location, error)
    return recovered


def _is_foreign(metastore: AnyMetastore, write: TableWriteInfo) -> bool:
    """Whether a write is into a table of another kind, which one of Hive's own clients made."""
    table = metastore.get_table(write.database, write.table)
    return write.instant is None and bool(table.hive_fields) and table.parameters.get(PROVIDER) != HUDI


def _settled(table: HudiTable, txn: TxnInfo) -> str | None:
    """The commit of the operation that a transaction's agent names; a pending one is rolled back.

    :raises TableError: when it cannot be rolled back, so that it may commit yet; the transaction stays open.
    """
    _, operation_key = split_owner(txn.agent or "")
    if operation_key is None:
        return None
    since = format_time(datetime.fromtimestamp(txn.opened_at, UTC) - _CLOCK_SKEW)
    found = settle_operation(table, operation_key, since=since, reason=f"transaction {txn.id} timed out")
    return None if found is None else found.instant
