"""A server's locks. A caller that only locks imports this module alone, and so no SQLAlchemy."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from airflow_provider.exceptions import InvalidInputError, MetastoreError, TransactionOpenError
from airflow_provider.metastore.model import LockComponent, LockInfo, LockResponse, LockState, LockType
from airflow_provider.metastore.thrift.client.connections import NO_AGENT
from airflow_provider.metastore.thrift.client.thrift_client import ThriftClient
from airflow_provider.metastore.thrift.protocol import hive

_TYPES = {type_: getattr(hive.LockType, type_.name) for type_ in LockType}
_TYPES_BACK = {number: type_ for type_, number in _TYPES.items()}
_STATES = {getattr(hive.LockState, state.name): state for state in LockState}


class LockClient(ThriftClient):
    """See :class:`~airflow_provider.metastore.interface.AnyMetastore`."""

    def lock(
        self,
        components: Sequence[LockComponent],
        user: str,
        host: str,
        *,
        agent: str | None = None,
        txn_id: int | None = None,
        wait: bool = True,
    ) -> LockResponse:
        """See :meth:`AnyMetastore.lock`; the timeout is the server's, ``hive.txn.timeout``.

        :raises MetastoreUnavailableError: also when the answer was lost: then the server may have the lock.
        """
        if not components:
            raise InvalidInputError("a lock without any component locks nothing; name a database or a table")
        request = hive.LockRequest(
            component=[_to_hive(component) for component in components],
            txnid=txn_id,
            user=user,
            hostname=host,
        )
        if agent is not None:
            request.agentInfo = agent
        answer = self._server.write("lock", request)
        response = LockResponse(answer.lockid, _state(answer))
        if wait or response.state is LockState.ACQUIRED:
            return response
        # Hive has a request without waiting only for locks whose components are all reads.
        with suppress(TransactionOpenError):
            self.unlock(response.lock_id)
            return LockResponse(response.lock_id, LockState.NOT_ACQUIRED)
        return LockResponse(response.lock_id, LockState.ACQUIRED)  # the lock was acquired meanwhile

    def check_lock(self, lock_id: int) -> LockState:
        """See :meth:`AnyMetastore.check_lock`."""
        return _state(self._server.read("check_lock", hive.CheckLockRequest(lockid=lock_id)))

    def heartbeat_lock(self, lock_id: int) -> None:
        """See :meth:`AnyMetastore.heartbeat_lock`."""
        self._server.read("heartbeat", hive.HeartbeatRequest(lockid=lock_id))

    def unlock(self, lock_id: int) -> None:
        """See :meth:`AnyMetastore.unlock`."""
        self._server.read("unlock", hive.UnlockRequest(lockid=lock_id))

    def show_locks(
        self,
        database: str | None = None,
        table: str | None = None,
        partition: str | None = None,
        *,
        txn_id: int | None = None,
    ) -> list[LockInfo]:
        """See :meth:`AnyMetastore.show_locks`; a server lists timed-out locks until it removes them."""
        request = hive.ShowLocksRequest(
            dbname=database and database.lower(),
            tablename=table and table.lower(),
            partname=partition,
            txnid=txn_id,
        )
        shown = self._server.read("show_locks", request).locks or []
        found = [_from_hive(element) for element in shown]
        return sorted(
            # The client filters again, because a server of version 2.3 ignores the last condition.
            (info for info in found if txn_id is None or info.txn_id == txn_id),
            key=lambda info: info.lock_id,
        )


def _to_hive(component: LockComponent) -> Any:
    level = hive.LockLevel.PARTITION if component.partition else hive.LockLevel.TABLE
    return hive.LockComponent(
        type=_TYPES[component.type],
        level=level if component.table else hive.LockLevel.DB,
        dbname=component.database,
        tablename=component.table,
        partitionname=component.partition,
        # A Hive refuses UNSET; it records NO_TXN as no write of a transaction.
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
        agent=None if element.agentInfo == NO_AGENT else element.agentInfo,
        txn_id=element.txnid or None,
        heartbeat_at=element.lastheartbeat / 1000,
        acquired_at=element.acquiredat / 1000 if element.acquiredat else None,
    )


def _state(answer: Any) -> LockState:
    if answer.state not in _STATES:
        raise MetastoreError(f"lock {answer.lockid} is in state {answer.state}, which Hive does not use")
    return _STATES[answer.state]
