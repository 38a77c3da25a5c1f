"""A Hive Metastore by its wire protocol: ours, or a Hive of version 2 to 4."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider.exceptions import MetastoreError, NoSuchTransactionError
from airflow_provider.metastore.lock_objects import LockComponent, LockInfo, LockResponse, LockState, LockType
from airflow_provider.metastore.thrift.connections import ThriftConnections, parse_thrift_url
from airflow_provider.metastore.thrift.idl import hive
from airflow_provider.metastore.write_ids import NO_OPEN, ValidTxnList

_TYPES = {type_: getattr(hive.LockType, type_.name) for type_ in LockType}
_TYPES_BACK = {number: type_ for type_, number in _TYPES.items()}
_STATES = {getattr(hive.LockState, state.name): state for state in LockState}


class ThriftMetastore:
    """The methods of :class:`~airflow_provider.metastore.metastore.Metastore`, asked of a server.

    Errors are the same, too. All methods may be called from any thread and after a fork. All of them
    raise :class:`~airflow_provider.exceptions.MetastoreUnavailableError` when no server can be reached;
    one that must not be done twice is not sent twice, and the error says when its answer got lost.

    :param url: ``thrift://host:port[,host2:port2]``.
    :param timeout_seconds: how long a connection may take to be made, and an answer to come.
    :raises InvalidInputError: when the URL has another form.
    """

    def __init__(self, url: str, *, timeout_seconds: float = 30.0) -> None:
        self._servers = ThriftConnections(parse_thrift_url(url), timeout_seconds)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @property
    def url(self) -> str:
        """The servers."""
        return self._servers.url

    def ping(self) -> str:
        """Ask for the server's version.

        :return: one line for people.
        """
        return f"{self.url}: Hive Metastore {self._servers.call('getVersion', repeatable=True)}"

    def close(self) -> None:
        """Close idle connections; the next call opens a new one."""
        self._servers.close()

    def list_databases(self) -> list[str]:
        """The names of all databases, sorted."""
        return sorted(self._servers.call("get_all_databases", repeatable=True))

    def current_event_id(self) -> int:
        """See :meth:`Metastore.current_event_id`."""
        return int(self._servers.call("get_current_notificationEventId", repeatable=True).eventId)

    def open_txn(self, user: str, host: str, *, agent: str | None = None) -> int:
        """See :meth:`Metastore.open_txn`.

        :raises MetastoreUnavailableError: also when the answer got lost: then the transaction may be open,
            and times out.
        """
        request = hive.OpenTxnRequest(num_txns=1, user=user, hostname=host)
        if agent is not None:
            request.agentInfo = agent
        [txn_id] = self._servers.call("open_txns", request, repeatable=False).txn_ids
        return int(txn_id)

    def heartbeat_txn(self, txn_id: int) -> None:
        """See :meth:`Metastore.heartbeat_txn`."""
        self._servers.call("heartbeat", hive.HeartbeatRequest(txnid=txn_id), repeatable=True)

    def commit_txn(self, txn_id: int) -> None:
        """See :meth:`Metastore.commit_txn`; a server of version 2.3 refuses to do it again."""
        # Not what an absent field means to a server: that nobody else can have written the same.
        request = hive.CommitTxnRequest(txnid=txn_id, exclWriteEnabled=False)
        self._servers.call("commit_txn", request, repeatable=True)

    def abort_txn(self, txn_id: int) -> None:
        """See :meth:`Metastore.abort_txn`; a server of version 2.3 refuses to do it again."""
        self._servers.call("abort_txn", hive.AbortTxnRequest(txnid=txn_id), repeatable=True)

    def valid_txn_list(self, txn_id: int | None = None) -> ValidTxnList:
        """See :meth:`Metastore.valid_txn_list`."""
        answer = self._servers.call("get_open_txns", repeatable=True)
        if answer.open_txns is None:
            # A server of version 2.3: there it is a set, and does not say which are aborted.
            answer = self._servers.call("get_open_txns_info", repeatable=True)
            open_ = {one.id for one in answer.open_txns if one.state == hive.TxnState.OPEN}
            not_committed = {one.id for one in answer.open_txns}
        else:
            not_committed = set(answer.open_txns)
            open_ = {txn for bit, txn in enumerate(answer.open_txns) if not _is_set(answer.abortedBits, bit)}
        watermark = answer.txn_high_water_mark
        if txn_id is not None:
            if not 0 < txn_id <= watermark:
                raise NoSuchTransactionError(f"No such transaction txnid:{txn_id}", txn_id=txn_id)
            # TxnCommonUtils.createValidReadTxnList: nothing later, and its own writes.
            watermark = txn_id
            not_committed = {one for one in not_committed if one < txn_id}
        return ValidTxnList(
            watermark,
            tuple(sorted(not_committed)),
            frozenset(not_committed - open_),
            min(not_committed & open_, default=NO_OPEN),
        )

    def allocate_table_write_id(self, txn_id: int, database: str, table: str) -> int:
        """See :meth:`Metastore.allocate_table_write_id`; the table need not exist.

        :raises MetastoreError: from a server of version 2: it has no write ids.
        """
        request = hive.AllocateTableWriteIdsRequest(dbName=database, tableName=table, txnIds=[txn_id])
        [allocated] = self._servers.call("allocate_table_write_ids", request, repeatable=True).txnToWriteIds
        return int(allocated.writeId)

    def lock(
        self,
        components: Sequence[LockComponent],
        user: str,
        host: str,
        *,
        agent: str | None = None,
        txn_id: int | None = None,
    ) -> LockResponse:
        """See :meth:`Metastore.lock`; the timeout is the server's, ``hive.txn.timeout``.

        :raises MetastoreUnavailableError: also when the answer got lost: then the lock may be there.
        """
        request = hive.LockRequest(
            component=[_to_hive(component) for component in components],
            txnid=txn_id,
            user=user,
            hostname=host,
        )
        if agent is not None:
            request.agentInfo = agent
        response = self._servers.call("lock", request, repeatable=False)
        return LockResponse(response.lockid, _state(response))

    def check_lock(self, lock_id: int) -> LockState:
        """See :meth:`Metastore.check_lock`."""
        request = hive.CheckLockRequest(lockid=lock_id)
        return _state(self._servers.call("check_lock", request, repeatable=True))

    def heartbeat_lock(self, lock_id: int) -> None:
        """See :meth:`Metastore.heartbeat_lock`."""
        self._servers.call("heartbeat", hive.HeartbeatRequest(lockid=lock_id), repeatable=True)

    def unlock(self, lock_id: int) -> None:
        """See :meth:`Metastore.unlock`."""
        self._servers.call("unlock", hive.UnlockRequest(lockid=lock_id), repeatable=True)

    def show_locks(
        self,
        database: str | None = None,
        table: str | None = None,
        partition: str | None = None,
        *,
        txn_id: int | None = None,
    ) -> list[LockInfo]:
        """See :meth:`Metastore.show_locks`; a lock that timed out is among them until the server reaps it."""
        request = hive.ShowLocksRequest(
            dbname=database and database.lower(),
            tablename=table and table.lower(),
            partname=partition,
            txnid=txn_id,
        )
        shown = self._servers.call("show_locks", request, repeatable=True).locks or []
        found = [_from_hive(element) for element in shown]
        return sorted(
            # Again: a server of version 2.3 does not know the last condition.
            (info for info in found if txn_id is None or info.txn_id == txn_id),
            key=lambda info: info.lock_id,
        )


def _is_set(bits: bytes, number: int) -> bool:
    """A bit of what Java's ``BitSet.toByteArray`` made."""
    byte, bit = divmod(number, 8)
    return byte < len(bits) and bool(bits[byte] >> bit & 1)


def _to_hive(component: LockComponent) -> Any:
    level = hive.LockLevel.PARTITION if component.partition else hive.LockLevel.TABLE
    return hive.LockComponent(
        type=_TYPES[component.type],
        level=level if component.table else hive.LockLevel.DB,
        dbname=component.database,
        tablename=component.table,
        partitionname=component.partition,
        # UNSET is refused; this one is recorded as no write of a transaction.
        operationType=hive.DataOperationType.NO_TXN,
    )


def _from_hive(element: Any) -> LockInfo:
    return LockInfo(
        lock_id=element.lockid,
        state=_state(element),
        component=LockComponent(
            _TYPES_BACK[element.type], element.dbname, element.tablename or None, element.partname or None
        ),
        user=element.user,
        host=element.hostname,
        agent=element.agentInfo,
        txn_id=element.txnid or None,
        heartbeat_at=element.lastheartbeat / 1000,
        acquired_at=element.acquiredat / 1000 if element.acquiredat else None,
    )


def _state(answer: Any) -> LockState:
    if answer.state not in _STATES:
        raise MetastoreError(f"lock {answer.lockid} is in state {answer.state}, which Hive does not use")
    return _STATES[answer.state]
