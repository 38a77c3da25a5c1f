"""A lock as a lease row in a database that all writers reach: PostgreSQL, or SQLite on one machine.

Each step is one statement, so that no transaction stays open while the lock is held. All times are the
database's, so that leases do not depend on the clocks of the writers. The row is never deleted, because its
counter is the fencing token.

Contenders wait in a line of tickets, first come first served. As with the line of the file lock
(:mod:`~airflow_provider.locks.waiting_line`), a contender that finds a living waiter before itself does not
try. The line makes the lock fair. The lease row alone keeps two contenders apart.
"""

from __future__ import annotations

import random
import time
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Unpack

from sqlalchemy import (
    URL,
    BigInteger,
    Column,
    Connection,
    CursorResult,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    delete,
    event,
    exists,
    func,
    insert,
    inspect,
    or_,
    select,
    update,
)
from sqlalchemy import exc as sqlalchemy_errors
from sqlalchemy.schema import CreateTable
from sqlalchemy.sql import ColumnElement
from sqlalchemy.sql.dml import ReturningUpdate

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.locks.contender import invalid_option
from airflow_provider.locks.lease import LeaseLock, LeaseOptions
from airflow_provider.locks.protocol import LockHolder
from airflow_provider.metastore.database import current_millis, insert_if_absent, mask_url, parse_url
from airflow_provider.table.storage import Storage

locks = Table(
    "table_locks",
    MetaData(),
    Column("lock_key", String(1024), primary_key=True),
    Column("fencing_token", BigInteger, nullable=False),
    Column("contender", String(32)),  # null when the lock is free
    Column("owner", String(1024)),
    Column("lease_millis", Integer),
    Column("renewed_at", BigInteger),
)

waiters = Table(
    "table_lock_waiters",
    locks.metadata,
    Column("ticket", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("lock_key", String(1024), nullable=False),
    Column("contender", String(32), nullable=False),
    Column("owner", String(1024), nullable=False),
    Column("shown_at", BigInteger, nullable=False),
)

# A waiter that has not renewed its ticket for so long is skipped; until then the line waits for it.
_PATIENCE_MILLIS = 2000
_SHOWN_EVERY_SECONDS = 0.5
# A ticket is removed when it has not been renewed for so long.
_ABANDONED_MILLIS = 60_000
# The first waiter in the line looks so many times per poll interval.
_LOOKS = 10

_EXPIRED = current_millis() - locks.c.renewed_at > locks.c.lease_millis
_SILENT = current_millis() - waiters.c.shown_at
_WAITS = _SILENT <= _PATIENCE_MILLIS


class DatabaseLockProvider(LeaseLock):
    """A fair lock as a row of the table ``table_locks``; first come, first served by ``table_lock_waiters``.

    The first contender creates both tables.

    :param storage: the table's storage.
    :param url: SQLAlchemy URL, ``postgresql+psycopg://user@host/database`` or
        ``sqlite:////absolute/path.db``.
    :param password: goes into the URL; never shown.
    :param lock_key: name of the lock; the table's location by default.
    :param connection_timeout_seconds: seconds to wait for a database that does not answer.
    :param lease: the options of every :class:`LeaseLock`; the first waiter in the line looks ten times per
        ``poll_interval_seconds``.
    :raises InvalidConnectionError: when the URL is missing or cannot work, or its driver is not installed.
    """

    unusable = (sqlalchemy_errors.SQLAlchemyError,)

    def __init__(
        self,
        storage: Storage,
        *,
        url: str = "",
        password: str | None = None,
        lock_key: str | None = None,
        connection_timeout_seconds: float = 10.0,
        **lease: Unpack[LeaseOptions],
    ) -> None:
        super().__init__(storage.root, **lease)
        self._outage = connection_timeout_seconds
        self._url = _parsed(url, password)
        self._engine = _open(self._url, connection_timeout_seconds)
        weakref.finalize(self, self._engine.dispose)
        self._key = lock_key or storage.root
        self._is_prepared = False
        self._ticket: int | None = None
        self._shown = 0.0
        self._ahead = 0

    def _waiting_owners(self) -> list[str]:
        query = select(waiters.c.owner).where(waiters.c.lock_key == self._key, _WAITS)
        with self._connect() as connection:
            return list(connection.execute(query.order_by(waiters.c.ticket)).scalars())

    def _look(self) -> LockHolder | None:
        age = current_millis() - locks.c.renewed_at
        query = select(locks.c.owner, locks.c.fencing_token, age).where(
            locks.c.lock_key == self._key, locks.c.contender.is_not(None)
        )
        with self._connect() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else LockHolder(row[0], int(row[1]), max(0, row[2]) / 1000)

    def _try_acquire(self) -> int | None:
        with self._connect() as connection:
            if self._ticket is not None and not self._is_next(connection):
                return None
            token = self._take(connection)
            if token is None:
                self._stand(connection)
            elif self._ticket is not None:
                with suppress(*self.unusable):
                    self._remove_ticket(connection)
        return token

    def _take(self, connection: Connection) -> int | None:
        take = (
            update(locks)
            .where(locks.c.lock_key == self._key, self._is_free(), ~exists().where(*self._before()))
            .values(
                fencing_token=locks.c.fencing_token + 1,
                contender=self._contender,
                owner=self._owner,
                lease_millis=round(self._lease * 1000),
                renewed_at=current_millis(),
            )
            .returning(locks.c.fencing_token)
        )
        token = connection.execute(take).scalar_one_or_none()
        return None if token is None else int(token)

    def _is_free(self) -> ColumnElement[bool]:
        # The row may already name this contender, if the answer to an earlier statement was lost.
        return or_(locks.c.contender.is_(None), locks.c.contender == self._contender, _EXPIRED)

    def _before(self) -> list[ColumnElement[bool]]:
        """Conditions for a living waiter before this contender, which may have no ticket yet."""
        others = [waiters.c.lock_key == self._key, waiters.c.contender != self._contender, _WAITS]
        return others if self._ticket is None else [*others, waiters.c.ticket < self._ticket]

    def _is_next(self, connection: Connection) -> bool:
        """Whether a try can succeed, for a contender with a ticket. It only reads, so it blocks no writer."""
        self._stand(connection)
        ahead = select(func.count()).select_from(waiters).where(*self._before()).scalar_subquery()
        query = select(ahead, self._is_free()).where(locks.c.lock_key == self._key)
        self._ahead, is_free = connection.execute(query).one()
        return self._ahead == 0 and bool(is_free)

    def _stand(self, connection: Connection) -> None:
        """Take a ticket, or renew the one that this contender has."""
        now = time.monotonic()
        if self._ticket is not None and now - self._shown < _SHOWN_EVERY_SECONDS:
            return
        if self._ticket is not None:
            show: ReturningUpdate[Any] = (
                update(waiters)
                .where(waiters.c.ticket == self._ticket, waiters.c.contender == self._contender)
                .values(shown_at=current_millis())
                .returning(waiters.c.ticket)
            )
            # None when the ticket was removed, because it had not been renewed for too long.
            self._ticket = connection.execute(show).scalar_one_or_none()
        if self._ticket is None:
            stand = insert(waiters).values(
                lock_key=self._key,
                contender=self._contender,
                owner=self._owner,
                shown_at=current_millis(),
            )
            self._ticket = connection.execute(stand.returning(waiters.c.ticket)).scalar_one()
        self._shown = now

    def _leave_the_line(self) -> None:
        with suppress(*self.unusable), self._connect() as connection:
            self._remove_ticket(connection)

    def _remove_ticket(self, connection: Connection) -> None:
        """Remove this contender's ticket, and those of waiters that are long gone."""
        gone = or_(waiters.c.contender == self._contender, _SILENT > _ABANDONED_MILLIS)
        connection.execute(delete(waiters).where(waiters.c.lock_key == self._key, gone))
        self._ticket = None

    def _pause(self, attempt: int) -> float:
        # The first waiter in the line looks most often, so that the lock is not idle for long.
        longest = min(self._poll_interval, self._poll_interval / _LOOKS * max(1, self._ahead))
        return random.uniform(0, longest)  # noqa: S311 - no secret

    def _renew(self, token: int) -> bool:
        return self._change(token, {"renewed_at": current_millis()}, ~_EXPIRED)

    def _give_back(self, token: int) -> bool:
        return self._change(token, {"contender": None})

    def _holds(self, token: int) -> bool:
        with self._connect() as connection:
            query = select(locks.c.fencing_token).where(*self._own(token), ~_EXPIRED)
            return connection.execute(query).first() is not None

    def _change(self, token: int, values: Mapping[str, Any], *conditions: ColumnElement[bool]) -> bool:
        change: ReturningUpdate[Any] = (
            update(locks)
            .where(*self._own(token), *conditions)
            .values(**values)
            .returning(locks.c.fencing_token)
        )
        with self._connect() as connection:
            changed: CursorResult[Any] = connection.execute(change)
            return changed.first() is not None

    def _own(self, token: int) -> list[ColumnElement[bool]]:
        return [
            locks.c.lock_key == self._key,
            locks.c.fencing_token == token,
            locks.c.contender == self._contender,
        ]

    def _connect(self) -> Connection:
        connection = self._engine.connect()
        if not self._is_prepared:
            try:
                _prepare(connection, self._key)
            except BaseException:
                connection.close()
                raise
            self._is_prepared = True
        return connection

    def _reason(self, error: Exception) -> str:
        reason = " ".join(str(getattr(error, "orig", None) or error).split())
        if self._url.password:
            reason = reason.replace(str(self._url.password), "***")
        return (
            f"database {mask_url(self._url)} cannot be used: {reason}; "
            "check that it runs and is reachable, and that the user may write table_locks and "
            "table_lock_waiters"
        )

    def _may_pass(self, error: Exception) -> bool:
        return isinstance(
            error,
            sqlalchemy_errors.OperationalError
            | sqlalchemy_errors.InterfaceError
            | sqlalchemy_errors.TimeoutError,
        )


def _parsed(url: str, password: str | None) -> URL:
    try:
        parsed = parse_url(url)
    except InvalidInputError as error:
        raise invalid_option("database", "url", str(error)) from None
    return parsed.set(password=password) if password else parsed


def _open(url: URL, timeout: float) -> Engine:
    is_sqlite = url.get_backend_name() == "sqlite"
    try:
        engine = create_engine(
            url,
            isolation_level="AUTOCOMMIT",
            hide_parameters=True,
            # A second connection is needed only while the renewing thread and the holder both use one.
            pool_size=1,
            max_overflow=1,
            pool_timeout=timeout,
            pool_pre_ping=not is_sqlite,
            connect_args={"timeout" if is_sqlite else "connect_timeout": max(1, round(timeout))},
        )
    except ModuleNotFoundError as error:
        raise invalid_option(
            "database",
            "url",
            f"the database driver {error.name!r} is not installed; "
            "pip install 'airflow-provider-table-services[postgresql]', or name another one in the URL",
        ) from None
    if is_sqlite:
        event.listen(engine, "connect", _set_up_sqlite)
    return engine


def _set_up_sqlite(dbapi_connection: Any, record: Any) -> None:
    # A power failure may undo the last token, but it also ends every process that had one.
    dbapi_connection.execute("PRAGMA journal_mode = WAL")
    dbapi_connection.execute("PRAGMA synchronous = NORMAL")


def _prepare(connection: Connection, key: str) -> None:
    if not inspect(connection).has_table(waiters.name):  # an earlier release had no such table
        for table in (locks, waiters):
            try:
                connection.execute(CreateTable(table, if_not_exists=True))
            except (sqlalchemy_errors.IntegrityError, sqlalchemy_errors.ProgrammingError):
                # In PostgreSQL, IF NOT EXISTS does not help two sessions that create a table at once.
                if not inspect(connection).has_table(table.name):
                    raise
    insert_if_absent(connection, locks, {"lock_key": key, "fencing_token": 0})
