"""A lock in ZooKeeper, by the recipe and the names of Curator's InterProcessMutex.

The contenders' nodes are ephemeral and sequential, ``<base_path>/<lock_key>/<uuid>-lock-<sequence>``. The
contender with the first node holds the lock; each other contender watches the node before its own. Curator
sorts the children of the lock's node by the part after ``lock-`` (StandardLockInternalsDriver). So this
provider and a JVM Hudi with the same ``hoodie.write.lock.zookeeper.base_path`` and ``.lock_key`` exclude each
other. A node lives as long as its session, and pings keep the session alive. So there is no lease to renew,
and a contender whose session expires has lost the lock.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from operator import methodcaller
from typing import Any
from urllib.parse import quote

import tenacity
from kazoo.client import KazooClient
from kazoo.exceptions import (
    CancelledError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    LockTimeout,
    NoAuthError,
    NoNodeError,
    OperationTimeoutError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import ZnodeStat
from kazoo.recipe.lock import Lock

from airflow_provider.exceptions import LockUnavailableError
from airflow_provider.locks.contender import Contender
from airflow_provider.locks.protocol import LockHolder
from airflow_provider.locks.table_name import table_name
from airflow_provider.locks.zookeeper.session import (
    REFUSED,
    ZookeeperSettings,
    ZookeeperUnreachableError,
    close_session,
    open_session,
    was_refused,
)
from airflow_provider.table.storage import Storage

# A contender waits so long for a session, even if its timeout for the lock is shorter.
_CONNECT_SECONDS = 2.0
# A waiting contender looks at the clock and at its connection once in this time.
_LOOK_SECONDS = 0.5


class _CuratorLock(Lock):  # type: ignore[misc]
    """Kazoo's recipe under Curator's names."""

    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES = ["-lock-"]


class ZookeeperLockProvider(Contender):
    """A fair lock: first come, first served. Its fencing token is the node's ``czxid``.

    :param storage: the table's storage.
    :param hosts: ``host:port,host:port``, with a chroot after the last one if there is one.
    :param base_path: the node under which all locks are.
    :param lock_key: the lock's name under that node; by default the table's name, as in JVM Hudi, or its
        location before the table exists.
    :param timeout_seconds: seconds that :meth:`acquire` waits by default.
    :param lease_seconds: the session's timeout: a holder that is silent for so long has lost the
        lock. The servers raise or lower it to the range that they allow.
    :param connection_timeout_seconds: seconds after which an ensemble counts as unreachable.
    :param authentication: ``none``, ``digest`` or ``sasl`` (DIGEST-MD5).
    :param username: the name for authentication.
    :param password: the password for authentication; never shown.
    :param acl: ``open``, Curator's default, or ``creator``, which admits only the same user.
    :param tls: ``off``, ``on``, or ``unverified``.
    :param tls_ca: PEM file of the authorities; the system's by default.
    :param tls_certificate: PEM file of the client's certificate.
    :param tls_key: PEM file of its key.
    :param tls_key_password: the key's password; never shown.
    :param owner: name of this contender, for people; host and process by default.
    :raises InvalidConnectionError: when an option is missing or cannot work.
    """

    excludes_hudi = True

    _remedy = (
        "a holder that was killed keeps it until its session ends, which of a JVM is "
        "hoodie.write.lock.zookeeper.session_timeout_ms later, 60 s by default: raise timeout_seconds above "
        "that, or look for a writer that hangs"
    )

    def __init__(
        self,
        storage: Storage,
        *,
        hosts: str = "",
        base_path: str = "/hudi/locks",
        lock_key: str | None = None,
        timeout_seconds: float = 60.0,
        lease_seconds: float = 30.0,
        connection_timeout_seconds: float = 10.0,
        authentication: str = "none",
        username: str | None = None,
        password: str | None = None,
        acl: str = "open",
        tls: str = "off",
        tls_ca: str | None = None,
        tls_certificate: str | None = None,
        tls_key: str | None = None,
        tls_key_password: str | None = None,
        owner: str | None = None,
    ) -> None:
        super().__init__(storage.root, timeout_seconds, owner)
        self._settings = ZookeeperSettings(
            hosts=hosts,
            session_timeout=lease_seconds,
            connection_timeout=connection_timeout_seconds,
            authentication=authentication,
            username=username,
            password=password,
            acl=acl,
            tls=tls,
            tls_ca=tls_ca,
            tls_certificate=tls_certificate,
            tls_key=tls_key,
            tls_key_password=tls_key_password,
        )
        self._storage = storage
        self._base_path = "/" + base_path.strip("/")
        self._lock_key = lock_key
        self._session: KazooClient | None = None
        self._closer: Callable[[], Any] | None = None
        self._is_refused = False
        self._node = ""
        self._held_by: tuple[int, bytes] | None = None

    def acquire(self, timeout: float | None = None) -> None:
        """See :meth:`LockProvider.acquire`.

        :raises LockTimeoutError: naming the holder.
        :raises LockUnavailableError: when no server can be reached, or access is denied.
        """
        limit = self._timeout if timeout is None else timeout
        deadline = time.monotonic() + limit
        if self._token is not None:
            raise self._timed_out(limit)  # not re-entrant: no other contender could release it
        with self._translated():
            session = self._open(max(limit, _CONNECT_SECONDS))
            lock = _CuratorLock(session, self._path(), self._owner)
            try:
                acquired = self._queue(lock, max(0.0, deadline - time.monotonic()))
                if acquired:
                    self._hold(f"{lock.path}/{lock.node}")
            except BaseException:
                self._close()  # the end of the session removes the node from the queue
                raise
            if not acquired and not session.connected:
                self._close()
                raise ZookeeperUnreachableError(f"ZooKeeper at {self._settings.hosts} went away")
        if not acquired:
            try:
                raise self._timed_out(limit)
            finally:
                self._close()

    def release(self) -> None:
        """See :meth:`LockProvider.release`.

        :raises LockLostError: when the session had expired.
        :raises LockUnavailableError: when no server can be reached; the session expires then.
        """
        token = self.fencing_token
        tries = 0

        def delete(client: KazooClient) -> Any:
            nonlocal tries
            tries += 1
            return client.delete_async(self._node)

        self._token = None
        with self._translated():
            try:
                self._ask(delete)
            except NoNodeError:
                # This contender's own delete succeeded, if its answer was lost and the session is the same.
                if tries == 1 or self._session is None or self._session.client_id != self._held_by:
                    raise self._lost(token) from None
            except BaseException:
                self._close()
                raise

    def is_held(self) -> bool:
        """See :meth:`LockProvider.is_held`."""
        if self._token is None:
            return False

        def look(client: KazooClient) -> Any:
            # A follower may lag: it first catches up with the leader, which expires sessions.
            client.sync_async(self._node)
            return client.exists_async(self._node)

        try:
            with self._translated():
                stat = self._ask(look)
        except LockUnavailableError:
            return False
        return stat is not None and stat.czxid == self._token

    def holder(self) -> LockHolder | None:
        """See :meth:`LockProvider.holder`; the name of a Curator holder is its host's address.

        ``age_seconds`` is 0, because each node belongs to a living session.

        :raises LockUnavailableError: when no server can be reached.
        """
        first = self._contenders(1)
        return LockHolder(first[0][0], first[0][1].czxid, 0.0) if first else None

    def waiters(self) -> list[str]:
        """See :meth:`LockProvider.waiters`.

        :raises LockUnavailableError: when no server can be reached.
        """
        return [owner for owner, _ in self._contenders(None)[1:]]

    def _hold(self, node: str) -> None:
        session = self._session
        stat = self._ask(lambda client: client.exists_async(node))
        if stat is None or session is None:
            raise SessionExpiredError("while the lock was taken")
        self._node, self._held_by, self._token = node, session.client_id, stat.czxid

    def _queue(self, lock: Lock, limit: float) -> bool:
        done = threading.Event()
        if limit > 0:
            watch = (lock, time.monotonic() + limit, self._settings.connection_timeout, done)
            threading.Thread(target=_watch_the_clock, args=watch, daemon=True).start()
        # NoNodeError: Curator makes the lock's node a container, and the servers remove empty containers.
        # They removed it after kazoo had found it, and before kazoo created a node in it.
        again = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(NoNodeError),
            stop=tenacity.stop_after_attempt(5),
            before_sleep=lambda state: setattr(lock, "assured_path", False),
            reraise=True,
        )
        try:
            return bool(again(lock.acquire, blocking=limit > 0, timeout=limit or None))
        except (LockTimeout, CancelledError):
            return False
        finally:
            done.set()

    def _contenders(self, limit: int | None) -> list[tuple[str, ZnodeStat]]:
        found = []
        path = self._path()
        with self._translated():
            self._open(self._settings.connection_timeout)
            try:
                nodes = self._ask(lambda client: client.get_children_async(path))
            except NoNodeError:
                return []
            for node in sorted((n for n in nodes if "lock-" in n), key=lambda n: n.rpartition("lock-")[2]):
                with suppress(NoNodeError):
                    data, stat = self._ask(methodcaller("get_async", f"{path}/{node}"))
                    found.append((data.decode(errors="replace"), stat))
                if limit is not None and len(found) == limit:
                    break
        return found

    def _path(self) -> str:
        self._lock_key = self._lock_key or table_name(self._storage)
        if self._lock_key is None:
            return f"{self._base_path}/{quote(self._place, safe='')}"
        return f"{self._base_path}/{self._lock_key}"

    def _open(self, limit: float) -> KazooClient:
        if self._session is not None and not self._session.connected and self._token is None:
            self._close()  # without a lock there is no reason to wait for the session
        if self._session is None:
            self._is_refused = False
            self._session = open_session(self._settings, limit)
            # Kazoo's threads would keep the session alive for ever, but it must end with this object.
            closer = weakref.finalize(self, close_session, self._session)
            closer.atexit = False
            self._closer = closer
        return self._session

    def _close(self) -> None:
        self._is_refused = self._session is not None and was_refused(self._session)
        self._session = None
        if self._closer is not None:
            self._closer()

    def _ask(self, request: Callable[[KazooClient], Any]) -> Any:
        """Send a request, and repeat it while the session moves from one server to another."""
        session = self._session
        if session is None:
            raise ZookeeperUnreachableError("the session was given up")
        limit = min(self._settings.connection_timeout, self._settings.session_timeout)
        deadline = time.monotonic() + limit
        asking = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_is_passing),
            wait=tenacity.wait_fixed(0.02),
            stop=tenacity.stop_after_delay(limit),
            reraise=True,
        )
        return asking(lambda: request(session).get(timeout=max(0.01, deadline - time.monotonic())))

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn kazoo's errors into :class:`LockUnavailableError`."""
        settings = self._settings
        try:
            yield
        except ZookeeperUnreachableError as error:
            raise self._unavailable(
                f"{error}; check that it runs, and hosts and tls of the connection"
            ) from None
        except NoAuthError:
            raise self._unavailable(
                f"the ACL of {self._base_path} on ZooKeeper at {settings.hosts} denies access to "
                f"{settings.username or 'a client that does not authenticate'}"
            ) from None
        except (KazooException, KazooTimeoutError) as error:
            if self._is_refused or (self._session is not None and was_refused(self._session)):
                reason = REFUSED
            else:
                reason = f"it does not answer: {type(error).__name__} {error}".strip()
            raise self._unavailable(f"ZooKeeper at {settings.hosts} cannot be used: {reason}") from error


def _is_passing(error: BaseException) -> bool:
    """Whether an error ends once the client has another server or a new session."""
    return isinstance(error, ConnectionLoss | SessionExpiredError | OperationTimeoutError) and not isinstance(
        error, ConnectionClosedError
    )


def _watch_the_clock(lock: Lock, deadline: float, patience: float, done: threading.Event) -> None:
    """End a wait for the lock at its deadline.

    Kazoo's own timeout starts again each time that a contender leaves the queue. Also, its calls wait for a
    server as long as the session could last.
    """
    session: KazooClient = lock.client
    connected = time.monotonic()
    while not done.wait(max(0.0, min(_LOOK_SECONDS, deadline - time.monotonic()))):
        now = time.monotonic()
        connected = now if session.connected else connected
        if now - connected > patience:
            close_session(session)
            return
        if now >= deadline:
            lock.cancel()
            if not done.wait(_LOOK_SECONDS):
                close_session(session)
            return
