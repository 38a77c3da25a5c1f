"""The connections to the database, its transactions and their failures.

:class:`SqlDatabase` runs *operations*: functions of one connection. Each runs in one database
transaction, and runs again when the database refused it in favour of another process.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import tenacity
from sqlalchemy import (
    Connection,
    Engine,
    TextClause,
    create_engine,
    event,
    inspect,
    select,
    text,
)
from sqlalchemy import exc as sqlalchemy_errors
from sqlalchemy import table as table_clause
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection
from sqlalchemy.sql import column
from sqlalchemy.sql.compiler import Compiled, SQLCompiler

from airflow_provider.exceptions import InvalidInputError, MetastoreError, MetastoreUnavailableError
from airflow_provider.metastore.database import schema
from airflow_provider.metastore.database.group_commit import GroupCommit, GroupedRequest, GroupOperation, Tell
from airflow_provider.metastore.database.urls import mask_url, parse_url, secrets_in

log = logging.getLogger(__name__)

T = TypeVar("T")

# The mark of a driver's error after which the database cannot have applied anything of the operation.
_NOT_DONE = "is_not_done"

OF_DATABASE = "of_database"
"""A mark among an error's details: its text names the database's address, which not everybody may see."""

RunStatement = Callable[[TextClause, Mapping[str, Any]], Sequence[Any]]
"""See :meth:`SqlDatabase.run_statement`."""

_MIGRATIONS = Path(__file__).parent.parent / "migrations"
# Any constant: PostgreSQL's advisory lock under which one process migrates.
_MIGRATION_LOCK = 4_021_637_217
# A connection whose last use is not longer ago needs no ping.
_SURELY_ALIVE_SECONDS = 0.25
_BY_LIBPQ = frozenset({"psycopg", "psycopg2"})
# PostgreSQL's codes of serialization failure and deadlock: it has applied nothing of the transaction.
_GAVE_WAY = frozenset({"40001", "40P01"})


_DATABASES: weakref.WeakSet[SqlDatabase] = weakref.WeakSet()


class SqlDatabase:
    """Runs operations on the metastore's database; safe to share between threads.

    After a fork the child gets connections of its own.

    :param url: see :func:`parse_url`.
    :param timeout_seconds: seconds that an operation may wait for other processes before it raises
        :class:`~airflow_provider.exceptions.MetastoreUnavailableError`.
    :raises InvalidInputError: see :func:`parse_url`; also when the database's driver is not installed.
    """

    def __init__(self, url: str, timeout_seconds: float = 30.0) -> None:
        self._url = parse_url(url)
        self.masked_url = mask_url(self._url)
        self.timeout_seconds = timeout_seconds
        self.is_sqlite = self._url.get_backend_name() == "sqlite"
        self._open()
        _DATABASES.add(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.masked_url!r})"

    def read(self, operation: Callable[[Connection], T], *, is_one_statement: bool = False) -> T:
        """Run an operation that reads one snapshot of the database.

        :param is_one_statement: whether it is a single statement, which is a snapshot by itself.
        """
        if self.is_sqlite or is_one_statement:
            return self._run(self._of_statements, operation, {})
        return self._run(self._engine, operation, {"isolation_level": "REPEATABLE READ"})

    def write(self, operation: Callable[[Connection], T]) -> T:
        """Run an operation that writes, and commit it; an operation that raises changes nothing.

        The operation may run more than once, so it must have no other effects.
        """
        if not self.is_sqlite:
            return self._run(self._engine, operation, {})
        # Threads queue here, so that only one thread of each process polls for SQLite's lock.
        if not self._writer.acquire(timeout=self.timeout_seconds):
            raise MetastoreUnavailableError(
                f"metastore {self.masked_url}: other threads of this process kept it busy for "
                f"{self.timeout_seconds:g} s",
                **{OF_DATABASE: True},
            )
        try:
            return self._run(self._engine, operation, {"sqlite_begin": "IMMEDIATE"})
        finally:
            self._writer.release()

    def outlast(self, seconds: float) -> None:
        """Let operations wait for a PostgreSQL that is away, as long as it cannot have applied them.

        An operation waits when it could open no connection, or when the connection broke before it sent the
        commit. It fails at once when the answer to a commit, or to a statement which commits itself, is lost:
        then the database may have applied it.

        :param seconds: the longest wait; 0, the initial value, to fail at once.
        """
        self._away = seconds

    def run_statement(self, statement: TextClause, parameters: Mapping[str, Any]) -> Sequence[Any]:
        """Run a single statement of PostgreSQL, which commits itself.

        It uses the driver's own cursor, because SQLAlchemy's part takes longer than the driver's.

        :param parameters: the values by their names in the statement.
        :return: the statement's rows, after the database has committed.
        """
        return self._tried(lambda: self._by_cursor(statement, parameters))

    def write_together(self, operation: GroupOperation, request: GroupedRequest[T]) -> T:
        """Do a request in one database transaction with the waiting requests of other threads.

        :param operation: does requests of this kind.
        :return: the request's answer, after the database has committed.
        """
        return self._group(operation).do(request)

    def leave_with_others(self, operation: GroupOperation, request: GroupedRequest[T], tell: Tell[T]) -> None:
        """Do a request as :meth:`write_together`, without waiting for the answer.

        :param tell: see :meth:`~airflow_provider.metastore.database.group_commit.GroupCommit.leave`.
        """
        self._group(operation).leave(request, tell)

    def upgrade_schema(self) -> None:
        """Create the schema, or migrate it to :data:`schema.SCHEMA_REVISION`, unless it is up to date.

        Any number of processes may call this at once on the same new database.

        :raises MetastoreError: when the schema is of a newer release than this one.
        """
        if self.is_sqlite:
            self._make_folder()
        if self.read(_schema_revision) != schema.SCHEMA_REVISION:
            self.write(_migrate)

    def close(self) -> None:
        """Close all idle connections; the engine opens new ones when it is used again."""
        for engine in {self._engine, self._of_statements}:
            engine.dispose()

    def _open(self) -> None:
        self._writer = threading.Lock()
        self._away = 0.0
        self._groups: dict[GroupOperation, GroupCommit] = {}
        self._compiled: dict[TextClause, Compiled] = {}
        self._attempts = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_nothing_happened),
            stop=tenacity.stop_after_delay(self.timeout_seconds),
            wait=tenacity.wait_random_exponential(multiplier=0.005, max=0.25),
            reraise=True,
        )
        arguments: dict[str, Any] = {"hide_parameters": True, "pool_timeout": self.timeout_seconds}
        if self.is_sqlite:
            # SQLite's own wait sleeps longer and longer, up to 0.1 s, so the latest process would win.
            arguments["connect_args"] = {"timeout": 0, "check_same_thread": False}
        else:
            if self._url.get_driver_name() in _BY_LIBPQ and "connect_timeout" not in self._url.query:
                # Without a timeout, a connection to a silent server waits for minutes.
                arguments["connect_args"] = {"connect_timeout": max(1, round(self.timeout_seconds))}
        try:
            self._engine: Engine = create_engine(self._url, **arguments)
        except ModuleNotFoundError as error:
            raise InvalidInputError(
                f"metastore {self.masked_url}: the database driver {error.name!r} is not installed; "
                "install it, or name another one in the URL",
                driver=error.name,
            ) from error
        # Statements that commit themselves have connections of their own: to change a connection's mode, and
        # back, costs as much as the statement.
        self._of_statements = self._engine
        if self.is_sqlite:
            event.listen(self._engine, "connect", _prepare_sqlite)
            event.listen(self._engine, "begin", self._begin_sqlite)
            return
        self._of_statements = create_engine(
            self._url, **arguments, isolation_level="AUTOCOMMIT", pool_reset_on_return=None
        )
        for engine in (self._engine, self._of_statements):
            event.listen(engine, "checkin", _note_use)
            event.listen(engine, "checkout", self._ping_if_idle)

    def _group(self, operation: GroupOperation) -> GroupCommit:
        group = self._groups.get(operation)
        return group or self._groups.setdefault(operation, GroupCommit(operation, self))

    def _begin_sqlite(self, connection: Connection) -> None:
        kind = connection.get_execution_options().get("sqlite_begin", "DEFERRED")
        cursor = connection.connection.cursor()
        polls = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_is_busy),
            stop=tenacity.stop_after_delay(self.timeout_seconds),
            wait=tenacity.wait_random(0.0005, 0.003),
            reraise=True,
        )
        try:
            polls(cursor.execute, f"BEGIN {kind}")
        except sqlite3.Error as error:
            raise sqlalchemy_errors.OperationalError(f"BEGIN {kind}", None, error) from error
        finally:
            cursor.close()

    def _ping_if_idle(self, dbapi_connection: Any, record: ConnectionPoolEntry, proxy: Any) -> None:
        """Detect that the server was restarted. ``pool_pre_ping`` would ask before each use instead."""
        if time.monotonic() - record.info.get("used_at", float("inf")) < _SURELY_ALIVE_SECONDS:
            return
        try:
            self._engine.dialect.do_ping(dbapi_connection)
        except self._engine.dialect.loaded_dbapi.Error as error:
            # The pool closes all older connections, and opens a new one.
            raise sqlalchemy_errors.InvalidatePoolError from error

    def after_fork_in_child(self) -> None:
        """Open new connections, and leave the parent's alone."""
        # The parent's connections are kept, not closed: to close SQLite files or sockets would disturb it.
        self._of_parent = self._engine, self._of_statements
        self._open()

    def _make_folder(self) -> None:
        folder = Path(self._url.database or "/").parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise MetastoreUnavailableError(
                f"metastore {self.masked_url}: the folder {folder} cannot be made: {error.strerror}",
                **{OF_DATABASE: True},
            ) from error

    def _run(self, engine: Engine, operation: Callable[[Connection], T], options: dict[str, Any]) -> T:
        def run() -> T:
            with self._connected(engine) as connection:
                if options:
                    connection = connection.execution_options(**options)
                with connection.begin():
                    try:
                        return operation(connection)
                    except sqlalchemy_errors.DBAPIError as error:
                        if error.connection_invalidated:
                            setattr(error, _NOT_DONE, True)
                        raise

        return self._tried(run)

    def _connected(self, engine: Engine) -> Connection:
        try:
            return engine.connect()
        except sqlalchemy_errors.DBAPIError as error:
            setattr(error, _NOT_DONE, True)
            raise

    def _tried(self, run: Callable[[], T]) -> T:
        """Run a function, again when the database refused it in favour of another process."""
        with self._translated():
            try:
                return run()
            except sqlalchemy_errors.DBAPIError as error:
                if not (_nothing_happened(error) or (self._away and _was_not_done(error))):
                    raise
            return self._until_back(run) if self._away else self._attempts(run)

    def _until_back(self, run: Callable[[], T]) -> T:
        """Run a function again until the database is back."""
        attempts = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_was_not_done),
            stop=tenacity.stop_after_delay(self._away),
            wait=tenacity.wait_random_exponential(multiplier=0.05, max=0.5),
            reraise=True,
        )
        return attempts(lambda: self._attempts(run))

    def _by_cursor(self, statement: TextClause, parameters: Mapping[str, Any]) -> Sequence[Any]:
        engine = self._of_statements
        dialect, driver = engine.dialect, engine.dialect.loaded_dbapi
        compiled = self._compiled.get(statement)
        if compiled is None:
            compiled = self._compiled.setdefault(statement, statement.compile(dialect=dialect))
        given: Any = parameters
        if isinstance(compiled, SQLCompiler) and compiled.positiontup is not None:
            given = [parameters[name] for name in compiled.positiontup]
        borrowed: PoolProxiedConnection | None = None
        try:
            borrowed = engine.raw_connection()
            cursor = borrowed.cursor()
            cursor.execute(str(compiled), given)
            return cursor.fetchall()
        except driver.Error as error:
            is_gone = borrowed is not None and dialect.is_disconnect(error, borrowed.dbapi_connection, None)
            if borrowed is not None and is_gone:
                borrowed.invalidate(error)
                # As in SQLAlchemy: the other connections are broken, too.
                engine.dispose()
            translated = sqlalchemy_errors.DBAPIError.instance(
                None, None, error, driver.Error, connection_invalidated=is_gone, dialect=dialect
            )
            setattr(translated, _NOT_DONE, borrowed is None)
            raise translated from error
        except BaseException:
            # A signal's handler raised, and the connection may still receive an answer.
            if borrowed is not None:
                borrowed.invalidate()
            raise
        finally:
            if borrowed is not None:
                borrowed.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn the driver's errors into ours, without a password and without the SQL."""
        started = time.monotonic()
        try:
            yield
        except sqlalchemy_errors.SQLAlchemyError as error:
            reason = self._scrubbed(str(getattr(error, "orig", None) or error))
            waited = time.monotonic() - started
            if _is_unavailable(error):
                translated: MetastoreError = MetastoreUnavailableError(
                    f"metastore {self.masked_url} cannot be used after {waited:.1f} s: {reason}; "
                    "check that the database runs and is reachable, and that no process holds it locked",
                    **{OF_DATABASE: True},
                )
            else:
                translated = MetastoreError(f"metastore {self.masked_url}: {reason}", **{OF_DATABASE: True})
            # The cause may repeat the URL, password included.
            raise translated from (None if secrets_in(self._url) else error)

    def _scrubbed(self, message: str) -> str:
        for secret in secrets_in(self._url):
            message = message.replace(secret, "***")
        return " ".join(message.split())


def _after_fork_in_child() -> None:
    for database in list(_DATABASES):
        database.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)


def _prepare_sqlite(dbapi_connection: Any, record: Any) -> None:
    # The driver begins no transactions of its own; _begin_sqlite begins them.
    dbapi_connection.isolation_level = None
    cursor = dbapi_connection.cursor()
    if cursor.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        cursor.execute("PRAGMA journal_mode = WAL")
    # An event id must survive a power cut once the metastore has given it out: consumers remember it.
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _note_use(dbapi_connection: Any, record: ConnectionPoolEntry) -> None:
    record.info["used_at"] = time.monotonic()


def _schema_revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table(schema.VERSION_TABLE):
        return None
    version = table_clause(schema.VERSION_TABLE, column("version_num"))
    found = connection.execute(select(version.c.version_num)).scalar_one_or_none()
    return None if found is None else str(found)


def _migrate(connection: Connection) -> None:
    # Only a database that is not up to date pays for this import.
    from alembic import command
    from alembic.config import Config
    from alembic.util.exc import CommandError

    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _MIGRATION_LOCK})
    before = _schema_revision(connection)
    if before == schema.SCHEMA_REVISION:
        return
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise MetastoreError(
            f"the metastore's schema is at revision {before!r}, which this release does not know (it knows "
            f"{schema.SCHEMA_REVISION!r}); it was written by a newer release: upgrade this package",
            revision=before,
        ) from error
    if before is None:
        log.info("metastore schema made, revision %s", schema.SCHEMA_REVISION)
    else:
        log.info("metastore schema brought from revision %s to %s", before, schema.SCHEMA_REVISION)


def _nothing_happened(error: BaseException) -> bool:
    """Whether the database refused a whole transaction, so that it can run again."""
    if not isinstance(error, sqlalchemy_errors.DBAPIError):
        return False
    state = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
    return state in _GAVE_WAY or (error.orig is not None and _is_busy(error.orig))


def _was_not_done(error: BaseException) -> bool:
    """Whether the database was away and cannot have applied anything; it may be back soon."""
    return bool(getattr(error, _NOT_DONE, False))


def _is_busy(error: BaseException) -> bool:
    name = str(getattr(error, "sqlite_errorname", ""))
    return name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def _is_unavailable(error: sqlalchemy_errors.SQLAlchemyError) -> bool:
    return isinstance(
        error,
        sqlalchemy_errors.OperationalError
        | sqlalchemy_errors.InterfaceError
        | sqlalchemy_errors.TimeoutError
        | sqlalchemy_errors.DisconnectionError,
    ) or (isinstance(error, sqlalchemy_errors.DBAPIError) and error.connection_invalidated)
