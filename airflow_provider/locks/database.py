"""A lease row in a database that all writers reach: PostgreSQL, or SQLite on one machine.

Each step is one statement, so that no transaction stays open while the lock is held, and
every time in it is the database's: leases do not depend on whose clock runs fast. The row
is never deleted, because its counter is the fencing token.
"""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Mapping
from typing import Any

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
    event,
    inspect,
    or_,
    select,
    update,
)
from sqlalchemy import exc as sqlalchemy_errors
from sqlalchemy.schema import CreateTable
from sqlalchemy.sql import ColumnElement
from sqlalchemy.sql.dml import ReturningUpdate

from airflow_provider.exceptions import InvalidConnectionError, InvalidInputError
from airflow_provider.locks.lease import LeaseLock
from airflow_provider.locks.protocol import LockHolder
from airflow_provider.metastore.engine import mask_url, parse_url
from airflow_provider.metastore.schema import current_millis, insert_if_absent
from airflow_provider.table.storage import Storage

locks = Table(
    "table_locks",
    MetaData(),
    Column("lock_key", String(1024), primary_key=True),
    Column("fencing_token", BigInteger, nullable=False),
    Column("contender", String(32)),  # null: nobody holds it
    Column("owner", String(1024)),
    Column("lease_millis", Integer),
    Column("renewed_at", BigInteger),
)

_EXPIRED = current_millis() - locks.c.renewed_at > locks.c.lease_millis


class DatabaseLockProvider(LeaseLock):
    """A lock as a row of the table ``table_locks``, which is created when it is not there.

    :param storage: the table's storage.
    :param url: SQLAlchemy URL, ``postgresql+psycopg://user@host/database`` or
        ``sqlite:////absolute/path.db``.
    :param password: goes into the URL; never shown.
    :param lock_key: name of the lock; the table's location by default.
    :param timeout_seconds: how long :meth:`acquire` waits by default.
    :param lease_seconds: a holder that did not renew for so long has lost the lock.
    :param poll_interval_seconds: the longest pause between two looks while waiting.
    :param connection_timeout_seconds: how long a database that is away is waited for.
    :param owner: who contends, for people; host and process by default.
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
        timeout_seconds: float = 60.0,
        lease_seconds: float = 30.0,
        poll_interval_seconds: float = 0.1,
        connection_timeout_seconds: float = 10.0,
        owner: str | None = None,
    ) -> None:
        super().__init__(
            storage.root,
            timeout_seconds=timeout_seconds,
            lease_seconds=lease_seconds,
            poll_interval_seconds=poll_interval_seconds,
            outage_seconds=connection_timeout_seconds,
            owner=owner,
        )
        self._url = _parsed(url, password)
        self._engine = _open(self._url, connection_timeout_seconds)
        weakref.finalize(self, self._engine.dispose)
        self._key = lock_key or storage.root
        self._contender = uuid.uuid4().hex
        self._is_prepared = False

    def _look(self) -> LockHolder | None:
        age = current_millis() - locks.c.renewed_at
        query = select(locks.c.owner, locks.c.fencing_token, age).where(
            locks.c.lock_key == self._key, locks.c.contender.is_not(None)
        )
        with self._connect() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else LockHolder(row[0], int(row[1]), max(0, row[2]) / 1000)

    def _try_acquire(self) -> int | None:
        take = (
            update(locks)
            # One's own name there: the answer to an earlier statement was lost on its way.
            .where(
                locks.c.lock_key == self._key,
                or_(locks.c.contender.is_(None), locks.c.contender == self._contender, _EXPIRED),
            )
            .values(
                fencing_token=locks.c.fencing_token + 1,
                contender=self._contender,
                owner=self._owner,
                lease_millis=round(self._lease * 1000),
                renewed_at=current_millis(),
            )
            .returning(locks.c.fencing_token)
        )
        with self._connect() as connection:
            token = connection.execute(take).scalar_one_or_none()
        return None if token is None else int(token)

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
        said = " ".join(str(getattr(error, "orig", None) or error).split())
        if self._url.password:
            said = said.replace(str(self._url.password), "***")
        return (
            f"database {mask_url(self._url)} cannot be used: {said}; "
            "check that it runs and is reachable, and that the user may write table_locks"
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
        raise InvalidConnectionError(
            f"lock provider 'database', option 'url': {error}", option="url"
        ) from None
    return parsed.set(password=password) if password else parsed


def _open(url: URL, timeout: float) -> Engine:
    is_sqlite = url.get_backend_name() == "sqlite"
    try:
        engine = create_engine(
            url,
            isolation_level="AUTOCOMMIT",
            hide_parameters=True,
            # A second connection only while the renewing thread and the holder both ask.
            pool_size=1,
            max_overflow=1,
            pool_timeout=timeout,
            pool_pre_ping=not is_sqlite,
            connect_args={"timeout" if is_sqlite else "connect_timeout": max(1, round(timeout))},
        )
    except ModuleNotFoundError as error:
        raise InvalidConnectionError(
            f"lock provider 'database': the database driver {error.name!r} is not installed; "
            "pip install 'airflow-provider-table-services[postgresql]', or name another one in the URL",
            driver=error.name,
        ) from None
    if is_sqlite:
        event.listen(engine, "connect", _set_up_sqlite)
    return engine


def _set_up_sqlite(dbapi_connection: Any, record: Any) -> None:
    # A power cut may take the last token back, but with it dies every process that had one.
    dbapi_connection.execute("PRAGMA journal_mode = WAL")
    dbapi_connection.execute("PRAGMA synchronous = NORMAL")


def _prepare(connection: Connection, key: str) -> None:
    if not inspect(connection).has_table(locks.name):
        try:
            connection.execute(CreateTable(locks, if_not_exists=True))
        except (sqlalchemy_errors.IntegrityError, sqlalchemy_errors.ProgrammingError):
            # PostgreSQL: IF NOT EXISTS does not help two sessions that create it at once.
            if not inspect(connection).has_table(locks.name):
                raise
    insert_if_absent(connection, locks, {"lock_key": key, "fencing_token": 0})
