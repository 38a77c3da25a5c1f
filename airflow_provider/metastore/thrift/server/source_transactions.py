"""Requests of Hive's own replication: transactions of a source, its write ids, and their ends.

A request names a policy, and transactions by the source's ids. A second call changes nothing (Hive's
OpenTxnsFunction, AllocateTableWriteIdsFunction, CommitTxnFunction, AbortTxnsFunction and
ReplTableWriteIdStateFunction). Hive's REPL LOAD keeps its position in parameters of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Connection

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.metastore.api import Metastore
from airflow_provider.metastore.catalog import as_replicator, catalog, partitions
from airflow_provider.metastore.model import (
    NO_WRITE_ID,
    TableInfo,
    TxnState,
    TxnType,
    ValidWriteIdList,
    partition_values,
)
from airflow_provider.metastore.replication import (
    bring_write_ids,
    end_txn,
    ensure_policy_of_client,
    force_write_id,
    forget_write_ids,
    map_txn,
    set_parameters,
    target_txn_of,
)
from airflow_provider.metastore.thrift.protocol import hive, values_in_name
from airflow_provider.metastore.transactions import last_write_id, write_id_of

T = TypeVar("T")

_LAST_ID = "repl.last.id"


def is_about_source(request: Any) -> bool:
    """Whether an ``open_txns``, ``abort_txn`` or ``commit_txn`` is about transactions of a source.

    With a policy but Hive's type DEFAULT, it is about the transaction of a REPL DUMP or REPL LOAD itself
    (Hive's ``isHiveReplTxn``). A Hive 3 knows no types and sends a policy for transactions of a source only.
    """
    if request.txn_type == TxnType.REPL_CREATED and request.replPolicy is None:
        raise InvalidInputError("a transaction of type REPL_CREATED needs replPolicy, the policy's name")
    named = getattr(request, "replSrcTxnIds", None)
    return request.replPolicy is not None and (request.txn_type != TxnType.DEFAULT or bool(named))


def open_source_txns(metastore: Metastore, request: Any) -> Any:
    """``open_txns`` with a policy: opens a transaction for each transaction of the source."""
    named = list(request.replSrcTxnIds or ())
    if len(named) != request.num_txns:
        raise InvalidInputError(
            f"policy {request.replPolicy}: {request.num_txns} transactions are asked for, and {len(named)} "
            "of the source are named"
        )

    def opened(connection: Connection) -> list[int]:
        ensure_policy_of_client(connection, request.replPolicy)
        return [map_txn(connection, request.replPolicy, one) for one in named]

    return hive.OpenTxnsResponse(txn_ids=_write(metastore, opened))


def allocate_source_write_ids(metastore: Metastore, request: Any) -> Any:
    """``allocate_table_write_ids`` with a policy: gives open transactions the source's write ids.

    An id at or below the table's last one begins anew there: the source has dropped and created the table, or
    allocated the id while a bootstrap took a later state. The events that follow bring the later ids again.
    """
    if not request.srcTxnToWriteIdList or request.txnIds:
        raise InvalidInputError(
            f"policy {request.replPolicy}, table {request.dbName}.{request.tableName}: write ids of a source "
            "are allocated by srcTxnToWriteIdList, and not by txnIds"
        )
    place = (request.dbName, request.tableName)

    def allocated(connection: Connection) -> list[Any]:
        found = []
        for one in sorted(request.srcTxnToWriteIdList, key=lambda one: one.writeId):
            target = target_txn_of(connection, request.replPolicy, one.txnId)
            if target is not None:
                if write_id_of(connection, target, *place) != one.writeId:
                    forget_write_ids(connection, *place, last=one.writeId - 1, stale=())
                force_write_id(connection, target, *place, one.writeId)
                found.append(hive.TxnToWriteId(txnId=target, writeId=one.writeId))
        return found

    return hive.AllocateTableWriteIdsResponse(txnToWriteIds=_write(metastore, allocated))


def end_source_txn(metastore: Metastore, request: Any, state: TxnState) -> None:
    """``commit_txn`` or ``abort_txn`` with a policy; for an ended transaction it does nothing."""

    position = getattr(request, "replLastIdInfo", None)

    def end(connection: Connection) -> None:
        ended = end_txn(connection, request.replPolicy, request.txnid, state)
        if ended is not None and position is not None:
            _keep_position(connection, position)

    _write(metastore, end)


def _keep_position(connection: Connection, position: Any) -> None:
    """Record the last event in the database and, where named, in the table and partitions that have it."""
    told = {_LAST_ID: str(position.lastReplId)}
    catalog.get_database(connection, position.database)
    set_parameters(connection, [position.database.lower()], told)
    if position.table is None:
        return
    place = (position.database, position.table)
    table = catalog.get_table(connection, *place)
    changes = {"parameters": {**table.parameters, **told}}
    catalog.alter_table(connection, *place, changes=changes, write_id=_no_write_id)
    for name in position.partitionList or ():
        values = partition_values(values_in_name(table, name))
        _, partition = partitions.get_table_and_partition(connection, *place, values)
        changes = {"parameters": {**partition.parameters, **told}}
        partitions.alter_partition(connection, *place, values, changes=changes, write_id=_no_write_id)


def _no_write_id(table: TableInfo) -> int:
    """The write id of a change that has none, because the table's data stays."""
    return NO_WRITE_ID


def bring_write_id_state(metastore: Metastore, request: Any, most_ids: int) -> None:
    """``repl_tbl_writeid_state`` of a bootstrapped table; for a table with write ids it does nothing."""
    seen = ValidWriteIdList.parse(request.validWriteIdlist, most_ids)
    committed = next((one for one in range(seen.high_watermark, 0, -1) if seen.is_valid(one)), 0)

    def bring(connection: Connection) -> None:
        if last_write_id(connection, request.dbName, request.tableName):
            return
        bring_write_ids(
            connection,
            request.dbName.lower(),
            request.tableName.lower(),
            "bootstrap",
            last=seen.high_watermark,
            aborted=seen.aborted,
            committed=committed,
        )

    _write(metastore, bring)


def _write(metastore: Metastore, operation: Callable[[Connection], T]) -> T:
    with as_replicator():
        return metastore.sql.write(operation)
