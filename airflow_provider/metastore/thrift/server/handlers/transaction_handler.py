"""The methods about transactions, write ids and locks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from airflow_provider.exceptions import (
    InvalidInputError,
    NoSuchObjectError,
    NoSuchTransactionError,
    TransactionAbortedError,
)
from airflow_provider.metastore.api import Metastore
from airflow_provider.metastore.database import Counter, counted
from airflow_provider.metastore.locks import LOCKS, Lock, Unlock
from airflow_provider.metastore.model import (
    LOCK_TIMEOUT_SECONDS,
    NO_OPEN,
    Insertion,
    LockComponent,
    LockInfo,
    LockState,
    LockType,
    PartitionSpec,
    TxnInfo,
    TxnState,
    TxnType,
    ValidTxnList,
    ValidWriteIdList,
    partition_values,
)
from airflow_provider.metastore.thrift.protocol import hive, read_partition
from airflow_provider.metastore.thrift.server.limits import ServerLimits
from airflow_provider.metastore.thrift.server.processor import Grouped
from airflow_provider.metastore.thrift.server.source_transactions import (
    allocate_source_write_ids,
    bring_write_id_state,
    end_source_txn,
    is_about_source,
    open_source_txns,
)
from airflow_provider.metastore.transactions import (
    TRANSACTIONS,
    WRITE_IDS,
    AllocateWriteId,
    CommitTxn,
    OpenTxn,
    last_txn_in_conflict,
    last_write_id,
    lock_open,
    not_committed,
    open_txns,
    seed_txn_id,
    txn_of_write_id,
)

# MetastoreConf.ConfVars.TXN_TIMEOUT, by which Trino knows how often it has to send heartbeats.
_TXN_TIMEOUT = frozenset({"metastore.txn.timeout", "hive.txn.timeout"})
_MAX_TXNS = 1_000  # hive.txn.max.open.batch: Hive silently opens no more than this
_LOCK_TYPES = {getattr(hive.LockType, type_.name): type_ for type_ in LockType}
_LOCK_TYPES_BACK = {type_: number for number, type_ in _LOCK_TYPES.items()}


class TransactionHandler:
    """Methods of ``ThriftHiveMetastore`` by their names in the interface definition.

    :param metastore: the metastore; a replica's memory never answers these methods.
    :param timeout_seconds: seconds for which a lock outlives its last heartbeat.
    :param limits: the limits of each request.
    """

    def __init__(
        self,
        metastore: Metastore,
        timeout_seconds: float = LOCK_TIMEOUT_SECONDS,
        limits: ServerLimits | None = None,
    ) -> None:
        self._metastore = metastore
        self._limits = limits or ServerLimits()
        self._timeout = timeout_seconds

    def get_open_txns(self) -> Any:
        snapshot = self._metastore.valid_txn_list()
        opened = [one for one in snapshot.exceptions if one not in snapshot.aborted]
        return hive.GetOpenTxnsResponse(
            txn_high_water_mark=snapshot.high_watermark,
            open_txns=list(snapshot.exceptions),
            min_open_txn=opened[0] if opened else snapshot.high_watermark + 1,
            abortedBits=_bits(snapshot.exceptions, snapshot.aborted),
        )

    def get_open_txns_req(self, request: Any) -> Any:
        answer = self.get_open_txns()
        # The list has no transactions that only read.
        left_out = set(request.excludeTxnTypes or ()) - {TxnType.READ_ONLY}
        if left_out:
            known = {one.id: one for one in self._metastore.sql.read(not_committed)}
            aborted = set(_set_bits(answer.open_txns, answer.abortedBits))
            # A transaction that was committed since the snapshot stays an exception of it.
            kept = [
                one
                for one in answer.open_txns
                if one in aborted or one not in known or known[one].txn_type not in left_out
            ]
            answer.open_txns, answer.abortedBits = kept, _bits(kept, aborted)
        return answer

    def get_open_txns_info(self) -> Any:
        def look(connection: Connection) -> tuple[int, list[TxnInfo]]:
            return counted(connection, Counter.TXN_ID), not_committed(connection)

        watermark, found = self._metastore.sql.read(look)
        return hive.GetOpenTxnsInfoResponse(txn_high_water_mark=watermark, open_txns=list(map(_txn, found)))

    def open_txns(self, request: Any) -> Any:
        if request.num_txns <= 0:
            raise InvalidInputError(f"Invalid input for number of txns: {request.num_txns}")
        if is_about_source(request):
            return open_source_txns(self._metastore, request)
        try:
            txn_type = TxnType(request.txn_type or 0)
        except ValueError:
            raise InvalidInputError(
                f"transaction type {request.txn_type} is not supported; known are "
                f"{[f'{one.value} ({one.name})' for one in TxnType]}"
            ) from None
        if request.replPolicy is not None:
            # The transaction of a REPL DUMP or REPL LOAD itself; in Hive, too, it leaves no events.
            txn_type = TxnType.READ_ONLY
        one = OpenTxn(
            request.user,
            request.hostname,
            request.agentInfo,
            request.commitOnRecovery is not False,
            txn_type,
            request.timeoutSeconds,
        )
        sql = self._metastore.sql
        if request.num_txns == 1:
            return Grouped(sql, TRANSACTIONS, one, lambda opened: hive.OpenTxnsResponse(txn_ids=[opened]))
        count = min(request.num_txns, _MAX_TXNS)
        opened = sql.write(
            lambda connection: open_txns(
                connection,
                count,
                one.user,
                one.host,
                agent=one.agent,
                commit_on_recovery=one.commit_on_recovery,
                txn_type=one.txn_type,
                timeout_millis=one.timeout_millis,
            )
        )
        return hive.OpenTxnsResponse(txn_ids=opened)

    def abort_txn(self, request: Any) -> None:
        if is_about_source(request):
            end_source_txn(self._metastore, request, TxnState.ABORTED)
            return
        self._metastore.abort_txn(request.txnid)

    def abort_txns(self, request: Any) -> None:
        for txn_id in request.txn_ids:
            try:
                self._metastore.abort_txn(txn_id)
            except NoSuchTransactionError:
                continue  # as in Hive

    def commit_txn(self, request: Any) -> Any:
        if request.keyValue is not None:
            raise InvalidInputError(
                f"transaction {request.txnid}: a commit with a key and value is not supported",
                txn_id=request.txnid,
            )
        if is_about_source(request):
            return end_source_txn(self._metastore, request, TxnState.COMMITTED)
        return Grouped(self._metastore.sql, TRANSACTIONS, CommitTxn(request.txnid), _nothing)

    def heartbeat_txn_range(self, request: Any) -> Any:
        if request.max - request.min >= self._limits.txn_range:
            raise InvalidInputError(
                f"transactions {request.min} to {request.max} are more than {self._limits.txn_range} in one "
                "range; the server allows more by --max-txn-range",
                limit=self._limits.txn_range,
            )
        aborted, unknown = set(), set()
        for txn_id in range(request.min, request.max + 1):
            try:
                self._metastore.heartbeat_txn(txn_id)
            except TransactionAbortedError:
                aborted.add(txn_id)
            except NoSuchTransactionError:
                unknown.add(txn_id)
        return hive.HeartbeatTxnRangeResponse(aborted=aborted, nosuch=unknown)

    def add_dynamic_partitions(self, request: Any) -> None:
        """Check that the transaction is open. The tables' own commits find conflicts, not the metastore."""
        self._metastore.sql.write(lambda connection: lock_open(connection, request.txnid))

    def get_valid_write_ids(self, request: Any) -> Any:
        snapshot = (
            ValidTxnList.parse(request.validTxnList, self._limits.write_ids) if request.validTxnList else None
        )
        if snapshot is None:
            snapshot = self._metastore.valid_txn_list()
        if request.writeId is not None and request.writeId > 0:
            snapshot = snapshot.up_to(self._txn_of(request.fullTableNames[0], request.writeId))
        found = [self._write_ids(name, snapshot) for name in request.fullTableNames]
        return hive.GetValidWriteIdsResponse(
            tblValidWriteIds=[
                hive.TableValidWriteIds(
                    fullTableName=name,
                    writeIdHighWaterMark=one.high_watermark,
                    invalidWriteIds=list(one.exceptions),
                    minOpenWriteId=None if one.min_open == NO_OPEN else one.min_open,
                    abortedBits=_bits(one.exceptions, one.aborted),
                )
                for name, one in zip(request.fullTableNames, found, strict=True)
            ]
        )

    def _txn_of(self, full_name: str, write_id: int) -> int:
        database, _, table = full_name.partition(".")
        return self._metastore.sql.read(
            lambda connection: txn_of_write_id(connection, database, table, write_id)
        )

    def _write_ids(self, full_name: str, snapshot: ValidTxnList) -> ValidWriteIdList:
        database, _, table = full_name.partition(".")
        try:
            return self._metastore.valid_write_id_list(database, table, snapshot)
        except NoSuchObjectError:
            return ValidWriteIdList(full_name, 0)  # as in Hive

    def allocate_table_write_ids(self, request: Any) -> Any:
        if request.replPolicy is not None:
            return allocate_source_write_ids(self._metastore, request)
        if request.txnIds is None or request.reallocate:
            raise InvalidInputError(
                f"table {request.dbName}.{request.tableName}: write ids are allocated by transaction ids; "
                "to allocate anew is not supported"
            )
        wanted = [AllocateWriteId(txn_id, request.dbName, request.tableName) for txn_id in request.txnIds]
        sql = self._metastore.sql
        if len(wanted) == 1:
            return Grouped(sql, WRITE_IDS, wanted[0], lambda one: _allocated({request.txnIds[0]: one}))
        return _allocated({one.txn_id: sql.write_together(WRITE_IDS, one) for one in wanted})

    def get_max_allocated_table_write_id(self, request: Any) -> Any:
        last = self._metastore.sql.read(
            lambda connection: last_write_id(connection, request.dbName, request.tableName)
        )
        return hive.MaxAllocatedTableWriteIdResponse(maxWriteId=last)

    def get_latest_txnid_in_conflict(self, txn_id: int) -> int:
        return self._metastore.sql.read(lambda connection: last_txn_in_conflict(connection, txn_id))

    def repl_tbl_writeid_state(self, request: Any) -> None:
        bring_write_id_state(self._metastore, request, self._limits.write_ids)

    def seed_write_id(self, request: Any) -> None:
        # As in Hive, the next write id is the seed + 1.
        self._metastore.seed_write_id(request.dbName, request.tableName, request.seedWriteId)

    def seed_txn_id(self, request: Any) -> None:
        # As in Hive, the next transaction id is the seed itself.
        self._metastore.sql.write(lambda connection: seed_txn_id(connection, request.seedTxnId))

    def get_config_value(self, name: str, default: str | None) -> str:
        if name in _TXN_TIMEOUT:
            return f"{round(self._timeout * 1_000)}ms"
        if default is None:
            # The protocol has no answer for a missing value.
            raise hive.ConfigValSecurityException(
                message=f"this metastore has no configuration key {name!r} that clients may read"
            )
        return default

    def lock(self, request: Any) -> Any:
        components = [_component(one) for one in request.component]
        only_reads = all(one.type is LockType.SHARED_READ for one in components)
        # Hive waits with a lock that belongs to no transaction, whatever the client says.
        impatient = (request.zeroWaitReadEnabled and only_reads and request.txnid) or request.exclusiveCTAS
        lock = Lock(
            tuple(components),
            request.user,
            request.hostname,
            request.agentInfo,
            request.txnid or None,
            self._timeout,
            wait=not impatient,
        )
        return Grouped(
            self._metastore.sql,
            LOCKS,
            lock,
            lambda answer: hive.LockResponse(lockid=answer.lock_id, state=_state(answer.state)),
        )

    def check_lock(self, request: Any) -> Any:
        state = self._metastore.check_lock(request.lockid)
        return hive.LockResponse(lockid=request.lockid, state=_state(state))

    def unlock(self, request: Any) -> Any:
        return Grouped(self._metastore.sql, LOCKS, Unlock(request.lockid), _nothing)

    def show_locks(self, request: Any) -> Any:
        found = self._metastore.show_locks(
            request.dbname, request.tablename, request.partname, txn_id=request.txnid or None
        )
        return hive.ShowLocksResponse(locks=[_shown(one) for one in found])

    def heartbeat(self, request: Any) -> None:
        if request.lockid:
            self._metastore.heartbeat_lock(request.lockid)
        if request.txnid:
            self._metastore.heartbeat_txn(request.txnid)

    def commit_changes(self, request: Any) -> Any:
        new_partitions = {
            (one.dbName, one.tableName): [
                PartitionSpec(info.values, info.location, info.parameters)
                for info in map(read_partition, one.newPartitions)
            ]
            for one in request.tables
            if one.newPartitions
        }
        insertions = {
            (one.dbName, one.tableName): [_insertion(each) for each in one.insertions]
            for one in request.tables
            if one.insertions
        }
        event_id = self._metastore.commit_txn(
            request.txnId, new_partitions=new_partitions, insertions=insertions
        )
        return hive.CommitChangesResponse(eventId=event_id)

    def get_read_snapshot(self, request: Any) -> Any:
        named = (name.partition(".") for name in request.fullTableNames)
        tables = [(database, table) for database, _, table in named]
        seen = (
            None
            if request.validTxnList is None
            else ValidTxnList.parse(request.validTxnList, self._limits.write_ids)
        )
        snapshot = self._metastore.read_snapshot(tables, request.txnId, valid_txns=seen)
        return hive.ReadSnapshot(
            validTxnList=str(snapshot.valid_txns),
            tables=[
                hive.TableSnapshot(
                    fullTableName=name, tableId=one.table_id, validWriteIdList=str(one.write_ids)
                )
                for name, one in snapshot.tables.items()
            ],
            catalogEventId=snapshot.catalog_event_id,
        )

    def get_txn(self, txn_id: int) -> Any:
        info = self._metastore.get_txn(txn_id)
        struct = _txn(info)
        struct.commitOnRecovery, struct.eventId = info.commit_on_recovery, info.event_id
        struct.txnType = int(info.txn_type)
        return struct

    def request_commit(self, txn_id: int) -> None:
        self._metastore.request_commit(txn_id)

    def record_table_write(self, write: Any) -> None:
        self._metastore.record_write(write.txnId, write.dbName, write.tableName, write.instant)

    def get_table_writes(self, txn_id: int) -> list[Any]:
        return [
            hive.TableWrite(
                txnId=write.txn_id,
                dbName=write.database,
                tableName=write.table,
                location=write.location,
                writeId=write.write_id,
                instant=write.instant,
            )
            for write in self._metastore.writes_of(txn_id)
        ]

    def get_timed_out_txns(self, timeout_seconds: float) -> list[int]:
        return self._metastore.timed_out(timeout_seconds)

    def end_timed_out_txn(self, request: Any) -> Any:
        event_id = self._metastore.end_timed_out(request.txnId, request.timeoutSeconds, commit=request.commit)
        return hive.EndTimedOutTxnResponse(eventId=event_id)


def _allocated(write_ids: Mapping[int, int]) -> Any:
    allocated = [hive.TxnToWriteId(txnId=txn_id, writeId=one) for txn_id, one in write_ids.items()]
    return hive.AllocateTableWriteIdsResponse(txnToWriteIds=allocated)


def _nothing(answer: object) -> None:
    """The answer of a method without a result."""


def _insertion(data: Any) -> Insertion:
    values = None if data.partitionVal is None else partition_values(data.partitionVal)
    return Insertion(data.filesAdded, values, bool(data.replace))


def _txn(info: TxnInfo) -> Any:
    states = {
        TxnState.OPEN: hive.TxnState.OPEN,
        TxnState.ABORTED: hive.TxnState.ABORTED,
        TxnState.COMMITTED: hive.TxnState.COMMITTED,
    }
    return hive.TxnInfo(
        id=info.id,
        state=states[info.state],
        user=info.user,
        hostname=info.host,
        agentInfo=info.agent,
        startedTime=round(info.opened_at * 1000),
        lastHeartbeatTime=round(info.heartbeat_at * 1000),
    )


def _bits(ids: Sequence[int], marked: frozenset[int] | set[int]) -> bytes:
    """The bytes of Java's ``BitSet.toByteArray``, in which bit i stands for ``ids[i]``."""
    number = sum(1 << at for at, one in enumerate(ids) if one in marked)
    return number.to_bytes((number.bit_length() + 7) // 8, "little")


def _set_bits(ids: Sequence[int], bits: bytes) -> list[int]:
    number = int.from_bytes(bits, "little")
    return [one for at, one in enumerate(ids) if number >> at & 1]


def _component(component: Any) -> LockComponent:
    return LockComponent(
        _LOCK_TYPES[component.type],
        component.dbname,
        component.tablename or None,
        component.partitionname or None,
    )


def _state(state: LockState) -> Any:
    return getattr(hive.LockState, state.name)


def _shown(info: LockInfo) -> Any:
    return hive.ShowLocksResponseElement(
        lockid=info.lock_id,
        dbname=info.component.database,
        tablename=info.component.table,
        partname=info.component.partition,
        state=_state(info.state),
        type=_LOCK_TYPES_BACK[info.component.type],
        txnid=info.txn_id or 0,
        lastheartbeat=0 if info.txn_id else round(info.heartbeat_at * 1000),
        acquiredat=None if info.acquired_at is None else int(info.acquired_at * 1000),
        user=info.user,
        hostname=info.host,
        agentInfo=info.agent,
    )
