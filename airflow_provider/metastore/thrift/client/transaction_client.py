"""A server's transactions and write ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from airflow_provider.exceptions import (
    InvalidInputError,
    NoSuchTransactionError,
    TransactionAbortedError,
    UnsupportedByServerError,
)
from airflow_provider.metastore.model import (
    NO_OPEN,
    Insertion,
    PartitionSpec,
    ReadSnapshot,
    TableSnapshot,
    TableWriteInfo,
    TxnInfo,
    TxnState,
    TxnType,
    ValidTxnList,
    ValidWriteIdList,
    partition_texts,
)
from airflow_provider.metastore.thrift.client.connections import NO_AGENT
from airflow_provider.metastore.thrift.client.notification_client import current_event_id
from airflow_provider.metastore.thrift.client.partition_client import register_partitions
from airflow_provider.metastore.thrift.client.thrift_client import ThriftClient
from airflow_provider.metastore.thrift.client.write_ids import allocate_write_id
from airflow_provider.metastore.thrift.protocol import hive
from airflow_provider.metastore.timeouts import TimeoutApi

_STATES = {
    hive.TxnState.OPEN: TxnState.OPEN,
    hive.TxnState.ABORTED: TxnState.ABORTED,
    hive.TxnState.COMMITTED: TxnState.COMMITTED,
}


class TransactionClient(ThriftClient, TimeoutApi):
    """See :class:`~airflow_provider.metastore.interface.AnyMetastore`.

    Hive's protocol has no field for a transaction's writes and for the event that ended it. A server of ours
    has methods of its own for them; each docstring says what another server does.
    """

    def open_txn(
        self,
        user: str,
        host: str,
        *,
        agent: str | None = None,
        commit_on_recovery: bool = True,
        txn_type: TxnType = TxnType.DEFAULT,
        timeout_seconds: float | None = None,
    ) -> int:
        """See :meth:`AnyMetastore.open_txn`.

        A Hive ignores ``commit_on_recovery`` and never commits on recovery. It has one timeout for all
        transactions.

        :raises MetastoreUnavailableError: also when the answer was lost: then the transaction may be open,
            and times out.
        """
        request = hive.OpenTxnRequest(num_txns=1, user=user, hostname=host, txn_type=int(txn_type))
        request.commitOnRecovery, request.timeoutSeconds = commit_on_recovery, timeout_seconds
        if agent is not None:
            request.agentInfo = agent
        [txn_id] = self._server.write("open_txns", request).txn_ids
        return int(txn_id)

    def get_txn(self, txn_id: int) -> TxnInfo:
        """See :meth:`AnyMetastore.get_txn`.

        A Hive knows of a committed transaction only its state: ``user`` and ``host`` are empty, times 0. It
        does not send the event that ended it: ``event_id`` is the present last one, or None while the
        transaction is open.
        """
        try:
            return _txn(self._server.read("get_txn", txn_id))
        except UnsupportedByServerError:
            pass
        answer = self._server.read("get_open_txns_info")
        if not 0 < txn_id <= answer.txn_high_water_mark:
            raise _no_such_txn(txn_id)
        known = {one.id: one for one in answer.open_txns}
        found = known.get(
            txn_id, hive.TxnInfo(id=txn_id, state=hive.TxnState.COMMITTED, user="", hostname="")
        )
        found.commitOnRecovery = False
        if found.state != hive.TxnState.OPEN:
            found.eventId = current_event_id(self._server)
        return _txn(found)

    def heartbeat_txn(self, txn_id: int) -> None:
        """See :meth:`AnyMetastore.heartbeat_txn`."""
        self._server.read("heartbeat", hive.HeartbeatRequest(txnid=txn_id))

    def request_commit(self, txn_id: int) -> None:
        """See :meth:`AnyMetastore.request_commit`; a Hive records nothing, as in :meth:`record_write`."""
        self._ours(lambda: self._server.read("request_commit", txn_id), None)

    def commit_txn(
        self,
        txn_id: int,
        *,
        new_partitions: Mapping[tuple[str, str], Sequence[PartitionSpec]] | None = None,
        insertions: Mapping[tuple[str, str], Sequence[Insertion]] | None = None,
    ) -> int:
        """See :meth:`AnyMetastore.commit_txn`; a Hive of version 2.3 refuses a second call.

        A Hive registers the partitions a moment before the commit, and keeps them when the commit fails. It
        gets no insertions, because it has no INSERT events of transactions.

        :return: the id of the COMMIT_TXN event; from a Hive the id of the last event, which is not before it.
        """
        changes = [
            hive.TableChanges(
                dbName=database,
                tableName=table,
                newPartitions=[_addition(spec) for spec in (new_partitions or {}).get((database, table), ())],
                insertions=[_insertion(one) for one in (insertions or {}).get((database, table), ())],
            )
            for database, table in {**(new_partitions or {}), **(insertions or {})}
        ]
        request = hive.CommitChangesRequest(txnId=txn_id, tables=changes)
        try:
            return int(self._server.read("commit_changes", request).eventId)
        except UnsupportedByServerError:
            return self._commit_in_steps(txn_id, new_partitions or {})

    def _commit_in_steps(
        self, txn_id: int, new_partitions: Mapping[tuple[str, str], Sequence[PartitionSpec]]
    ) -> int:
        """Commit by several requests, which a Hive has."""
        if new_partitions:
            state = self.get_txn(txn_id).state
            if state is TxnState.ABORTED:
                raise TransactionAbortedError(f"Transaction txnid:{txn_id} already aborted", txn_id=txn_id)
            for place in sorted(new_partitions):
                self._tables.get(*place)  # a missing table raises before the first partition is added
            for place, specs in sorted(new_partitions.items()):
                # A partition that is registered after the commit cannot belong to the transaction.
                belongs_to = txn_id if state is TxnState.OPEN else None
                register_partitions(self._server, self._tables, *place, specs, belongs_to)
        # Without this field a server assumes that no other transaction can have written the same rows.
        request = hive.CommitTxnRequest(txnid=txn_id, exclWriteEnabled=False)
        self._server.read("commit_txn", request)
        return current_event_id(self._server)

    def abort_txn(self, txn_id: int) -> int:
        """See :meth:`AnyMetastore.abort_txn`; a Hive of version 2.3 refuses a second call.

        :return: as :meth:`commit_txn`.
        """
        self._server.read("abort_txn", hive.AbortTxnRequest(txnid=txn_id))
        event_id = self._ours(lambda: self._server.read("get_txn", txn_id).eventId, None)
        return current_event_id(self._server) if event_id is None else int(event_id)

    def allocate_table_write_id(self, txn_id: int, database: str, table: str) -> int:
        """See :meth:`AnyMetastore.allocate_table_write_id`; in a Hive the table need not exist.

        :raises UnsupportedByServerError: from a Hive of version 2, which has no write ids.
        """
        return allocate_write_id(self._server, txn_id, database, table)

    def valid_txn_list(self, txn_id: int | None = None) -> ValidTxnList:
        """See :meth:`AnyMetastore.valid_txn_list`."""
        answer = self._server.read("get_open_txns")
        if answer.open_txns is None:
            # A server of version 2.3 sends a set, which does not distinguish open and aborted ids.
            answer = self._server.read("get_open_txns_info")
            open_ = {one.id for one in answer.open_txns if one.state == hive.TxnState.OPEN}
            not_committed = {one.id for one in answer.open_txns}
        else:
            not_committed = set(answer.open_txns)
            open_ = not_committed - _set_bits(answer.open_txns, answer.abortedBits)
        watermark = answer.txn_high_water_mark
        if txn_id is not None:
            if not 0 < txn_id <= watermark:
                raise _no_such_txn(txn_id)
            # TxnCommonUtils.createValidReadTxnList: the reader sees its own writes and nothing later.
            watermark = txn_id
            not_committed = {one for one in not_committed if one < txn_id}
        return ValidTxnList(
            watermark,
            tuple(sorted(not_committed)),
            frozenset(not_committed - open_),
            min(not_committed & open_, default=NO_OPEN),
        )

    def read_snapshot(
        self,
        tables: Iterable[tuple[str, str]],
        txn_id: int | None = None,
        *,
        valid_txns: ValidTxnList | None = None,
    ) -> ReadSnapshot:
        """See :meth:`AnyMetastore.read_snapshot`.

        :raises UnsupportedByServerError: from a Hive, which has no request for several tables at one moment.
        """
        names = [f"{database}.{table}" for database, table in tables]
        request = hive.ReadSnapshotRequest(fullTableNames=names, txnId=txn_id)
        if valid_txns is not None:
            request.validTxnList = str(valid_txns)
        found = self._server.read("get_read_snapshot", request)
        return ReadSnapshot(
            ValidTxnList.parse(found.validTxnList),
            {
                one.fullTableName: TableSnapshot(one.tableId, ValidWriteIdList.parse(one.validWriteIdList))
                for one in found.tables
            },
            found.catalogEventId,
        )

    def valid_write_id_list(
        self, database: str, table: str, valid_txns: ValidTxnList | None = None
    ) -> ValidWriteIdList:
        """See :meth:`AnyMetastore.valid_write_id_list`.

        :raises UnsupportedByServerError: from a Hive of version 2, which has no write ids.
        """
        request = hive.GetValidWriteIdsRequest(fullTableNames=[f"{database}.{table}".lower()])
        if valid_txns is not None:
            request.validTxnList = str(valid_txns)
        [found] = self._server.read("get_valid_write_ids", request).tblValidWriteIds
        if not found.writeIdHighWaterMark:
            self._tables.get(database, table)  # Hive answers the same for a missing table
        return ValidWriteIdList(
            found.fullTableName,
            found.writeIdHighWaterMark,
            tuple(found.invalidWriteIds),
            frozenset(_set_bits(found.invalidWriteIds, found.abortedBits)),
            NO_OPEN if found.minOpenWriteId is None else found.minOpenWriteId,
        )

    def seed_write_id(self, database: str, table: str, last_write_id: int) -> int:
        """See :meth:`AnyMetastore.seed_write_id`."""
        self._server.read(
            "seed_write_id",
            hive.SeedTableWriteIdsRequest(dbName=database, tableName=table, seedWriteId=last_write_id),
        )
        request = hive.MaxAllocatedTableWriteIdRequest(dbName=database, tableName=table)
        return int(self._server.read("get_max_allocated_table_write_id", request).maxWriteId)

    def record_write(self, txn_id: int, database: str, table: str, instant: str) -> None:
        """See :meth:`AnyMetastore.record_write`; a Hive records nothing, because it has no recovery."""
        if not instant:
            raise InvalidInputError(
                f"transaction {txn_id}: a write is recorded by its instant, none was given"
            )
        write = hive.TableWrite(txnId=txn_id, dbName=database, tableName=table, instant=instant)
        self._ours(lambda: self._server.read("record_table_write", write), None)

    def writes_of(self, txn_id: int) -> list[TableWriteInfo]:
        """See :meth:`AnyMetastore.writes_of`; from a Hive the list is empty."""
        return [
            TableWriteInfo(
                one.txnId, one.dbName, one.tableName, one.location, one.writeId, one.instant or None
            )
            for one in self._ours(lambda: self._server.read("get_table_writes", txn_id), [])
        ]

    def timed_out(self, timeout_seconds: float) -> list[int]:
        """See :meth:`TimeoutApi.timed_out`; a Hive aborts them itself, and the list is empty."""
        return list(self._ours(lambda: self._server.read("get_timed_out_txns", timeout_seconds), []))

    def end_timed_out(self, txn_id: int, timeout_seconds: float, *, commit: bool) -> int | None:
        """See :meth:`TimeoutApi.end_timed_out`."""
        request = hive.EndTimedOutTxnRequest(txnId=txn_id, timeoutSeconds=timeout_seconds, commit=commit)
        event_id: int | None = self._server.read("end_timed_out_txn", request).eventId
        return event_id

    def _ours(self, ask: Callable[[], Any], otherwise: Any) -> Any:
        """The answer of a server of ours; ``otherwise`` from a Hive, which does not have the method."""
        try:
            return ask()
        except UnsupportedByServerError:
            return otherwise


def _addition(spec: PartitionSpec) -> Any:
    storage = hive.StorageDescriptor(location=spec.location)
    return hive.Partition(values=partition_texts(spec.values), sd=storage, parameters=dict(spec.parameters))


def _insertion(one: Insertion) -> Any:
    return hive.InsertEventRequestData(
        replace=one.replace,
        filesAdded=list(one.files),
        partitionVal=None if one.values is None else partition_texts(one.values),
    )


def _txn(struct: Any) -> TxnInfo:
    return TxnInfo(
        id=struct.id,
        state=_STATES[struct.state],
        user=struct.user,
        host=struct.hostname,
        agent=None if struct.agentInfo == NO_AGENT else struct.agentInfo,
        commit_on_recovery=bool(struct.commitOnRecovery),
        opened_at=(struct.startedTime or 0) / 1000,
        heartbeat_at=(struct.lastHeartbeatTime or 0) / 1000,
        event_id=struct.eventId,
        txn_type=TxnType(struct.txnType or 0),
    )


def _no_such_txn(txn_id: int) -> NoSuchTransactionError:
    return NoSuchTransactionError(f"No such transaction txnid:{txn_id}", txn_id=txn_id)


def _set_bits(ids: Sequence[int], bits: bytes) -> set[int]:
    """The ids that the bytes of Java's ``BitSet.toByteArray`` mark: bit i stands for ``ids[i]``."""
    number = int.from_bytes(bits, "little")
    return {one for at, one in enumerate(ids) if number >> at & 1}
