"""The state of whole databases at one position of the log, and its text, in which a server sends it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_provider.metastore.model.hive_json import (
    decode_database,
    decode_function,
    decode_partition,
    decode_table,
    encode_database,
    encode_function,
    encode_partition,
    encode_table,
)
from airflow_provider.metastore.model.objects import DatabaseInfo, FunctionInfo, PartitionInfo, TableInfo
from airflow_provider.metastore.model.transaction_objects import TxnState
from airflow_provider.metastore.model.write_ids import ValidTxnList, ValidWriteIdList


@dataclass(frozen=True)
class TableState:
    """A table of the source.

    :param table: the table.
    :param partitions: the table's partitions.
    :param write_ids: the write ids that a reader sees.
    :param last_write_id: the highest allocated write id.
    :param aborted: the write ids of aborted transactions.
    :param committed: the highest write id of a committed transaction; 0 when there is none.
    """

    table: TableInfo
    partitions: tuple[PartitionInfo, ...]
    write_ids: ValidWriteIdList
    last_write_id: int
    aborted: frozenset[int]
    committed: int


@dataclass(frozen=True)
class SourceState:
    """The state of the source right after one event.

    :param event_id: the last event of the source's log.
    :param event_time: the time of that event; 0 for an empty log.
    :param valid_txns: the transactions that a reader sees.
    :param databases: the replicated databases that exist.
    :param tables: the tables of these databases.
    :param functions: the functions of these databases.
    :param open_txns: the open transactions, each with its write ids by (database, table).
    :param ended: the states of the transactions that the target asks for.
    """

    event_id: int
    event_time: int
    valid_txns: ValidTxnList
    databases: tuple[DatabaseInfo, ...]
    tables: tuple[TableState, ...]
    functions: tuple[FunctionInfo, ...]
    open_txns: Mapping[int, Mapping[tuple[str, str], int]]
    ended: Mapping[int, TxnState]


def encode_state(state: SourceState) -> str:
    """The text of a state. Catalog objects stand in it as in the messages of events."""
    return json.dumps(
        {
            "eventId": state.event_id,
            "eventTime": state.event_time,
            "validTxns": str(state.valid_txns),
            "databases": [encode_database(one) for one in state.databases],
            "tables": [
                {
                    "table": encode_table(one.table),
                    "partitions": [encode_partition(one.table, each) for each in one.partitions],
                    "validWriteIds": str(one.write_ids),
                    "lastWriteId": one.last_write_id,
                    "aborted": sorted(one.aborted),
                    "committed": one.committed,
                }
                for one in state.tables
            ],
            "functions": [encode_function(one) for one in state.functions],
            "openTxns": [
                [txn_id, [[*place, write_id] for place, write_id in write_ids.items()]]
                for txn_id, write_ids in state.open_txns.items()
            ],
            "ended": [[txn_id, str(one)] for txn_id, one in state.ended.items()],
        },
        ensure_ascii=False,
    )


def decode_state(text: str) -> SourceState:
    """Read a state; its databases have no ids."""
    read = json.loads(text)
    # The server counts the ids of these lists; nobody has typed them.
    most = len(text)
    return SourceState(
        read["eventId"],
        read["eventTime"],
        ValidTxnList.parse(read["validTxns"], most),
        tuple(map(decode_database, read["databases"])),
        tuple(
            TableState(
                decode_table(one["table"]),
                tuple(map(decode_partition, one["partitions"])),
                ValidWriteIdList.parse(one["validWriteIds"], most),
                one["lastWriteId"],
                frozenset(one["aborted"]),
                one["committed"],
            )
            for one in read["tables"]
        ),
        tuple(map(decode_function, read["functions"])),
        {
            txn_id: {(database, table): write_id for database, table, write_id in write_ids}
            for txn_id, write_ids in read["openTxns"]
        },
        {txn_id: TxnState(one) for txn_id, one in read["ended"]},
    )
