"""The locks of the metastore, and the rules by which they exclude each other: Hive's model.

This module is apart from the database's functions, so that a client of a server needs no SQLAlchemy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from airflow_provider.exceptions import InvalidInputError

LOCK_TIMEOUT_SECONDS = 300.0
"""Seconds for which a lock outlives its last heartbeat; Hive's default (``hive.txn.timeout``)."""


class LockType(StrEnum):
    """The way in which a lock excludes others; the letters that Hive stores."""

    SHARED_READ = "r"
    SHARED_WRITE = "w"
    EXCL_WRITE = "x"
    EXCLUSIVE = "e"


class LockState(StrEnum):
    """The state of a lock request. A request that does not wait gets NOT_ACQUIRED."""

    ACQUIRED = "a"
    WAITING = "w"
    NOT_ACQUIRED = "n"


@dataclass(frozen=True)
class LockComponent:
    """The place that a lock is on, and the lock's type.

    :param type: the way in which the lock excludes others.
    :param database: the database, which need not exist; case does not matter.
    :param table: the table, which need not exist; None for a lock on the whole database.
    :param partition: the partition's name, ``month=1/day=2``; None for a lock on the whole table.
    :raises InvalidInputError: when there is a partition and no table, or an empty name.
    """

    type: LockType
    database: str
    table: str | None = None
    partition: str | None = None

    def __post_init__(self) -> None:
        if not self.database or self.table == "" or (self.partition is not None and self.table is None):
            raise InvalidInputError(
                f"a lock is on a database, on a table in it or on a partition of that, not on {self}"
            )
        object.__setattr__(self, "database", self.database.lower())
        object.__setattr__(self, "table", self.table and self.table.lower())


@dataclass(frozen=True)
class LockResponse:
    """The answer to a lock request.

    :param lock_id: the lock's id, greater than every earlier one; without use when the state is NOT_ACQUIRED.
    :param state: whether the lock is held.
    """

    lock_id: int
    state: LockState


@dataclass(frozen=True)
class LockInfo:
    """One component of a lock that is held or waits.

    :param lock_id: the lock.
    :param state: ACQUIRED or WAITING, the same for all components of a lock.
    :param component: the place that the lock is on, and the lock's type.
    :param user: the user who asked for the lock.
    :param host: the host that asked for it.
    :param agent: the program that asked for it.
    :param txn_id: the transaction that the lock belongs to, if any.
    :param heartbeat_at: the lock's last heartbeat, in seconds since the epoch by the database's clock. A
        transaction's lock has the transaction's heartbeat.
    :param acquired_at: as ``heartbeat_at``; None while the lock waits.
    """

    lock_id: int
    state: LockState
    component: LockComponent
    user: str
    host: str
    agent: str | None
    txn_id: int | None
    heartbeat_at: float
    acquired_at: float | None


# By requested type: the types of earlier locks, held or requested, that the request waits for.
_WAITS_FOR: Mapping[LockType, frozenset[LockType]] = {
    LockType.SHARED_READ: frozenset({LockType.EXCLUSIVE}),
    LockType.SHARED_WRITE: frozenset({LockType.EXCL_WRITE, LockType.EXCLUSIVE}),
    LockType.EXCL_WRITE: frozenset({LockType.SHARED_WRITE, LockType.EXCL_WRITE, LockType.EXCLUSIVE}),
    LockType.EXCLUSIVE: frozenset(LockType),
}


def waits_for(requested: LockType, *, on_database: bool, held_on_database: bool) -> frozenset[LockType]:
    """The types of locks at an overlapping place that a requested lock waits for.

    :param on_database: whether the request is for a whole database.
    :param held_on_database: whether the other lock is on a whole database.
    """
    types = _WAITS_FOR[requested]
    # A shared read of a database only prevents its drop: its tables may come and go.
    if requested is LockType.SHARED_READ and on_database and not held_on_database:
        return types - {LockType.EXCLUSIVE}
    if requested is LockType.EXCLUSIVE and held_on_database and not on_database:
        return types - {LockType.SHARED_READ}
    return types


def must_wait(asked: LockComponent, earlier: LockComponent) -> bool:
    """Whether a component waits for another component that was requested earlier."""
    overlap = asked.database == earlier.database and all(
        mine is None or theirs is None or mine == theirs
        for mine, theirs in ((asked.table, earlier.table), (asked.partition, earlier.partition))
    )
    return overlap and earlier.type in waits_for(
        asked.type, on_database=asked.table is None, held_on_database=earlier.table is None
    )
