"""Ending the metastore transactions of writers that died: the timeline is the truth (design section 6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_provider.concurrency.content import CommitResult
from airflow_provider.concurrency.failed_writes import rollback
from airflow_provider.concurrency.operations import find_operation
from airflow_provider.exceptions import (
    NoSuchTransactionError,
    NotATableError,
    TableError,
    TransactionAbortedError,
)
from airflow_provider.metastore import Insertion, Metastore, PartitionSpec, RecoveredTxn, TableWriteInfo
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.instant import Action, format_time
from airflow_provider.table.keys import partition_values

# The clocks of the metastore's database and of the committers may differ by so much.
_CLOCK_SKEW = timedelta(days=1)


def recover_transactions(
    metastore: Metastore,
    *,
    timeout_seconds: float = 300.0,
    storage_options: Mapping[str, Any] | None = None,
) -> list[RecoveredTxn]:
    """End every transaction without a heartbeat as the timelines of its tables say.

    A transaction all of whose writes have committed is committed, after its new partitions are
    registered and INSERT events told. Of any other the pending instants are rolled back, and it is
    aborted. The writes of a transaction are found by the operation key that its ``agent`` names.

    :param metastore: the metastore.
    :param timeout_seconds: silence after which a transaction counts as left alone
        (Hive's ``hive.txn.timeout``).
    :param storage_options: keyword arguments of the tables' fsspec file systems.
    :return: what became of each.
    """

    def is_completed(write: TableWriteInfo) -> bool:
        txn = metastore.get_txn(write.txn_id)
        if txn.agent is None:
            return False
        try:
            table = HudiTable.open(write.location, storage_options)
        except NotATableError:
            return False
        since = format_time(datetime.fromtimestamp(txn.opened_at, UTC) - _CLOCK_SKEW)
        found = find_operation(table, txn.agent, since=since)
        if found is None:
            return False
        if not isinstance(found, CommitResult):
            # A writer that commits in between cannot be rolled back, and one that ended need not be.
            with suppress(TableError):
                rollback(table, found.instant, reason=f"transaction {write.txn_id} timed out")
            found = find_operation(table, txn.agent, since=since)
        if not isinstance(found, CommitResult):
            return False
        if specs := partition_specs(table, _partitions_of(table, found)):
            metastore.add_partitions(write.database, write.table, specs, if_not_exists=True)
        if txn.commit_on_recovery:
            # Whoever recovers it at the same moment may have ended it, and told.
            with suppress(NoSuchTransactionError, TransactionAbortedError):
                for one in insertions(table, found.instant):
                    metastore.fire_insert_event(
                        write.database,
                        write.table,
                        one.files,
                        values=one.values,
                        replace=one.replace,
                        txn_id=write.txn_id,
                    )
        return True

    return metastore.recover_timed_out(timeout_seconds, is_completed)


def partition_specs(table: HudiTable, paths: Iterable[str]) -> list[PartitionSpec]:
    """Partitions as the metastore registers them; none for a table without partitions.

    :param table: the table.
    :param paths: partition paths relative to the table.
    """
    if not table.config.partition_fields:
        return []
    return [PartitionSpec(partition_values(path, table.config), table.storage.url(path)) for path in paths]


def insertions(table: HudiTable, requested_time: str) -> list[Insertion]:
    """What a commit added, as INSERT events tell it: one for each partition.

    :param table: the table.
    :param requested_time: the commit's; one that is archived added nothing that is still known.
    """
    timeline = table.timeline()
    instant = timeline.find(requested_time)
    if instant is None:
        return []
    files: dict[str, list[str]] = {}
    for stat in timeline.commit_metadata(instant).write_stats:
        files.setdefault(stat.partition_path, []).append(table.storage.url(stat.path))
    replace = instant.action == Action.REPLACE_COMMIT
    paths = sorted(files)
    specs = partition_specs(table, paths)
    return [
        Insertion(files[path], specs[at].values if specs else None, replace) for at, path in enumerate(paths)
    ]


def _partitions_of(table: HudiTable, commit: CommitResult) -> list[str]:
    timeline = table.timeline()
    instant = timeline.find(commit.instant)
    if instant is None:
        return []  # archived since: its partitions were registered long ago
    return sorted({stat.partition_path for stat in timeline.commit_metadata(instant).write_stats})
