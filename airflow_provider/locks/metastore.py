"""An exclusive table lock in a metastore: this package's, or any Hive Metastore.

JVM Hudi's ``HiveMetastoreBasedLockProvider`` takes the same lock, EXCLUSIVE on a database's table. So both
exclude each other if they name the same metastore, database and table. The table need not be registered
there. The metastore serves contenders in the order of their arrival: a waiting contender has a place in the
line, and keeps it as long as it sends heartbeats.
"""

from __future__ import annotations

import re
import socket
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Unpack

from airflow_provider.exceptions import (
    InvalidInputError,
    MetastoreError,
    MetastoreUnavailableError,
    NoSuchLockError,
)
from airflow_provider.locks.contender import invalid_option
from airflow_provider.locks.lease import LeaseLock, LeaseOptions
from airflow_provider.locks.protocol import LockHolder
from airflow_provider.locks.table_name import table_name
from airflow_provider.metastore.model import (
    LockComponent,
    LockInfo,
    LockResponse,
    LockState,
    LockType,
    system_user,
    waits_for,
)
from airflow_provider.metastore.thrift.url import is_thrift_url, parse_thrift_url
from airflow_provider.table.storage import Storage

if TYPE_CHECKING:
    from airflow_provider.metastore import Metastore
    from airflow_provider.metastore.thrift.client import LockClient

# The longest user and host that Hive's columns store.
_LONGEST_NAME = 128
# The agent's name distinguishes the contenders of one process.
_OURS = re.compile(r"(?P<owner>.*) \[[0-9a-f]{32}\]", re.DOTALL)


class MetastoreLockProvider(LeaseLock):
    """A lock by the Hive Metastore's lock API; the fencing token is the lock's id.

    :param storage: the table's storage.
    :param url: ``thrift://host:port[,host2:port2]`` of a server, or the SQLAlchemy URL of this package's
        database, ``postgresql+psycopg://user@host/database`` or ``sqlite:////absolute/path.db``.
    :param password: goes into the URL; never shown.
    :param database: the value of ``hoodie.write.lock.hivemetastore.database``.
    :param table: the value of ``hoodie.write.lock.hivemetastore.table``; by default the table's name, or its
        location if there is no table yet.
    :param connection_timeout_seconds: seconds to wait for a metastore that does not answer.
    :param lease: the options of every :class:`LeaseLock`. A contender that has sent no heartbeat for
        ``lease_seconds`` has lost the lock, or its place in the line; it sends three in that time. A Thrift
        server has a timeout of its own, ``hive.txn.timeout``, which must not be shorter: it decides when a
        dead holder's lock is free.
    :raises InvalidConnectionError: when the URL is missing or cannot work, or its driver is not installed.
    """

    excludes_hudi = True

    unusable = (MetastoreError, OSError)

    def __init__(
        self,
        storage: Storage,
        *,
        url: str = "",
        password: str | None = None,
        database: str = "default",
        table: str | None = None,
        connection_timeout_seconds: float = 10.0,
        **lease: Unpack[LeaseOptions],
    ) -> None:
        super().__init__(storage.root, **lease)
        self._outage = connection_timeout_seconds
        self._storage = storage
        self._database = database
        self._table = table
        mark = f" [{self._contender}]"
        self._agent = self._owner[: _LONGEST_NAME - len(mark)] + mark
        self._waiting: int | None = None
        self._is_in_doubt = False
        try:
            self._backend = _open(url, password, connection_timeout_seconds, self._lease)
        except InvalidInputError as error:
            raise invalid_option("metastore", "url", str(error)) from None
        self._metastore = self._backend.metastore
        weakref.finalize(self, self._metastore.close)

    def _waiting_owners(self) -> list[str]:
        return [_owner(info) for info in self._shown() if info.state is LockState.WAITING]

    def _prepare(self) -> None:
        self._backend.prepare()

    def _try_acquire(self) -> int | None:
        if self._is_in_doubt:
            self._resolve_doubt()
        if self._waiting is None:
            response = self._ask()
            lock_id, state = response.lock_id, response.state
        else:
            lock_id = self._waiting
            try:
                state = self._metastore.check_lock(lock_id)
            except NoSuchLockError:  # no heartbeat for too long, so the contender goes to the end of the line
                self._waiting = None
                return None
        if state is LockState.ACQUIRED:
            self._waiting = None
            return lock_id
        self._waiting = lock_id
        return None

    def _look(self) -> LockHolder | None:
        holders = [info for info in self._shown() if info.state is LockState.ACQUIRED]
        if not holders:
            return None
        # A transaction's lock has no heartbeat of its own.
        age = 0.0 if holders[0].txn_id else max(0.0, time.time() - holders[0].heartbeat_at)
        return LockHolder(_owner(holders[0]), holders[0].lock_id, age)

    def _renew(self, token: int) -> bool:
        try:
            self._metastore.heartbeat_lock(token)
        except NoSuchLockError:
            return False
        return True

    def _holds(self, token: int) -> bool:
        try:
            return self._metastore.check_lock(token) is LockState.ACQUIRED
        except NoSuchLockError:
            return False

    def _give_back(self, token: int) -> bool:
        was_held = self._holds(token)  # `unlock` raises nothing for a missing lock
        self._metastore.unlock(token)
        return was_held

    def _reason(self, error: Exception) -> str:
        return str(error) if isinstance(error, MetastoreError) else super()._reason(error)

    def _may_pass(self, error: Exception) -> bool:
        return isinstance(error, MetastoreUnavailableError)

    def _component(self) -> LockComponent:
        self._table = self._table or table_name(self._storage)
        return LockComponent(LockType.EXCLUSIVE, self._database, self._table or self._place)

    def _ask(self) -> LockResponse:
        try:
            return self._backend.lock(
                [self._component()],
                system_user()[:_LONGEST_NAME],
                socket.gethostname()[:_LONGEST_NAME],
                agent=self._agent,
            )
        except MetastoreUnavailableError:
            self._is_in_doubt = True  # the server may have placed the lock before the answer was lost
            raise

    def _resolve_doubt(self) -> None:
        """Find this contender's place in the line after the answer to its request was lost."""
        mine = [info.lock_id for info in self._shown() if info.agent == self._agent]
        self._waiting = mine[0] if mine else None
        self._is_in_doubt = False

    def _leave_the_line(self) -> None:
        if self._waiting is not None:
            with suppress(*self.unusable):  # otherwise the place in the line times out
                self._metastore.unlock(self._waiting)
            self._waiting = None

    def _shown(self) -> list[LockInfo]:
        """All locks, held and waiting, that an exclusive lock on the table waits for."""
        self._backend.prepare()
        own = self._component()
        return [
            info
            for info in self._metastore.show_locks(own.database)
            if info.component.table in {None, own.table}
            and info.component.type
            in waits_for(own.type, on_database=False, held_on_database=info.component.table is None)
        ]


@dataclass
class _Backend:
    """A metastore, with the functions that a contender needs.

    :param lock: the metastore's method, with the contender's lease if the method takes one.
    :param prepare: called before any other function.
    """

    metastore: Metastore | LockClient
    lock: Callable[..., LockResponse]
    prepare: Callable[[], None] = lambda: None


def _open(url: str, password: str | None, timeout: float, lease: float) -> _Backend:
    # A contender imports only the client that its URL needs.
    if is_thrift_url(url):
        from airflow_provider.metastore.thrift.client.lock_client import LockClient

        given = parse_thrift_url(url, password=password).render_as_string(hide_password=False)
        client = LockClient(given, timeout_seconds=timeout)
        return _Backend(client, client.lock)
    from airflow_provider.metastore import Metastore
    from airflow_provider.metastore.database import SqlDatabase, parse_url

    parsed = parse_url(url)
    if password:
        parsed = parsed.set(password=password)
    sql = SqlDatabase(parsed.render_as_string(hide_password=False), timeout)
    metastore = Metastore(sql)
    return _Backend(metastore, partial(metastore.lock, timeout_seconds=lease), cache(sql.upgrade_schema))


def _owner(info: LockInfo) -> str:
    ours = _OURS.fullmatch(info.agent or "")
    return ours["owner"] if ours else f"{info.user}@{info.host} ({info.agent or 'Unknown'})"
