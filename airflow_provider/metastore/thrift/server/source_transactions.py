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
from airflow_provider.metastore.catalog import as_replicator
from airflow_provider.metastore.model import TxnState, ValidWriteIdList
from airflow_provider.metastore.replication import (
    bring_write_ids,
    end_txn,
    ensure_policy_of_client,
    force_write_id,
    map_txn,
    set_parameters,
    target_txn_of,
)
from airflow_provider.metastore.thrift.protocol import hive
from airflow_provider.metastore.transactions import last_write_id

T = TypeVar("T")

_LAST_ID = "repl.last.id"


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
    """``allocate_table_write_ids`` with a policy: gives open transactions the source's write ids."""

    def allocated(connection: Connection) -> list[Any]:
        found = []
        for one in request.srcTxnToWriteIdList or ():
            target = target_txn_of(connection, request.replPolicy, one.txnId)
            if target is not None:
                force_write_id(connection, target, request.dbName, request.tableName, one.writeId)
                found.append(hive.TxnToWriteId(txnId=target, writeId=one.writeId))
        return found

    return hive.AllocateTableWriteIdsResponse(txnToWriteIds=_write(metastore, allocated))


def end_source_txn(metastore: Metastore, request: Any, state: TxnState) -> None:
    """``commit_txn`` or ``abort_txn`` with a policy; for an ended transaction it does nothing."""

    def end(connection: Connection) -> None:
        end_txn(connection, request.replPolicy, request.txnid, state)
        position = getattr(request, "replLastIdInfo", None)
        if position is not None:
            set_parameters(connection, [position.database.lower()], {_LAST_ID: str(position.lastReplId)})

    _write(metastore, end)


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
        return metastore.engine.write(operation)
