"""What a lock of the metastore is, and which locks exclude each other: Hive's model.

They are apart from the database's functions, so that a client of a server needs no SQLAlchemy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from airflow_provider.exceptions import InvalidInputError

LOCK_TIMEOUT_SECONDS = 300.0
"""How long a lock outlives its last heartbeat; Hive's default (``hive.txn.timeout``)."""


class LockType(StrEnum):
    """How a lock excludes others; the letters that Hive stores."""

    SHARED_READ = "r"
    SHARED_WRITE = "w"
    EXCL_WRITE = "x"
    EXCLUSIVE = "e"


class LockState(StrEnum):
    """What became of a lock request. NOT_ACQUIRED is the answer to one that would not wait."""

    ACQUIRED = "a"
    WAITING = "w"
    NOT_ACQUIRED = "n"


@dataclass(frozen=True)
class LockComponent:
    """What a lock is on, and how.

    :param type: how it excludes others.
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

    :param lock_id: the lock's id, greater than all before it; of no use when NOT_ACQUIRED.
    :param state: whether it is held.
    """

    lock_id: int
    state: LockState


@dataclass(frozen=True)
class LockInfo:
    """One component of a lock that is held or waits.

    :param lock_id: the lock.
    :param state: ACQUIRED or WAITING, the same for all components of a lock.
    :param component: what it is on, and how.
    :param user: who asked for it.
    :param host: from where.
    :param agent: what asked for it.
    :param txn_id: the transaction that it belongs to, if any.
    :param heartbeat_at: its last heartbeat, seconds since the epoch by the database's clock; that
        of a transaction's lock is the transaction's own.
    :param acquired_at: as ``heartbeat_at``; None while it waits.
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


# By requested type: the types, held or requested earlier, that it waits for.
_WAITS_FOR: Mapping[LockType, frozenset[LockType]] = {
    LockType.SHARED_READ: frozenset({LockType.EXCLUSIVE}),
    LockType.SHARED_WRITE: frozenset({LockType.EXCL_WRITE, LockType.EXCLUSIVE}),
    LockType.EXCL_WRITE: frozenset({LockType.SHARED_WRITE, LockType.EXCL_WRITE, LockType.EXCLUSIVE}),
    LockType.EXCLUSIVE: frozenset(LockType),
}


def waits_for(requested: LockType, *, on_database: bool, held_on_database: bool) -> frozenset[LockType]:
    """The types of lock at an overlapping place that a requested one waits for.

    :param on_database: whether a whole database is requested.
    :param held_on_database: whether the other lock is on a whole database.
    """
    types = _WAITS_FOR[requested]
    # A shared read of a database only keeps it from being dropped: its tables may come and go.
    if requested is LockType.SHARED_READ and on_database and not held_on_database:
        return types - {LockType.EXCLUSIVE}
    if requested is LockType.EXCLUSIVE and held_on_database and not on_database:
        return types - {LockType.SHARED_READ}
    return types


def must_wait(asked: LockComponent, earlier: LockComponent) -> bool:
    """Whether one component waits for another that was asked for earlier."""
    overlap = asked.database == earlier.database and all(
        mine is None or theirs is None or mine == theirs
        for mine, theirs in ((asked.table, earlier.table), (asked.partition, earlier.partition))
    )
    return overlap and earlier.type in waits_for(
        asked.type, on_database=asked.table is None, held_on_database=earlier.table is None
    )
