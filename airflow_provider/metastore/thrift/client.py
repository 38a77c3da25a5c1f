"""A Hive Metastore by its wire protocol: ours, or a Hive of version 2 to 4."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider.exceptions import MetastoreError
from airflow_provider.metastore.lock_objects import LockComponent, LockInfo, LockResponse, LockState, LockType
from airflow_provider.metastore.thrift.connections import ThriftConnections, parse_thrift_url
from airflow_provider.metastore.thrift.idl import hive

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
