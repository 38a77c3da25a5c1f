"""A transaction of the metastore, and its writes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum


class TxnType(IntEnum):
    """The purpose of a transaction; Hive's numbers."""

    DEFAULT = 0
    REPL_CREATED = 1
    READ_ONLY = 2
    COMPACTION = 3


class TxnState(StrEnum):
    """The state of a transaction; the letters that Hive stores."""

    OPEN = "o"
    COMMITTED = "c"
    ABORTED = "a"


# Built once: making a statement costs more than running it.


@dataclass(frozen=True)
class TxnInfo:
    """A transaction.

    :param id: 1 for the first transaction; each later one has its predecessor's id + 1.
    :param state: open, committed or aborted.
    :param user: the user who opened it.
    :param host: the host on which it was opened.
    :param agent: the program that opened it, such as a task instance.
    :param commit_on_recovery: whether recovery may commit it; see
        :meth:`AnyMetastore.recover_timed_out`.
    :param opened_at: seconds since the epoch, by the database's clock.
    :param heartbeat_at: the last heartbeat, as ``opened_at``.
    :param event_id: its COMMIT_TXN or ABORT_TXN event; None while the transaction is open. A transaction that
        only reads leaves no event: then the last event of the log when it ended.
    :param txn_type: the transaction's purpose.
    """

    id: int
    state: TxnState
    user: str
    host: str
    agent: str | None
    commit_on_recovery: bool
    opened_at: float
    heartbeat_at: float
    event_id: int | None
    txn_type: TxnType = TxnType.DEFAULT


@dataclass(frozen=True)
class TableWriteInfo:
    """An instant that a transaction recorded in one table, or its write id there without an instant.

    :param txn_id: the transaction.
    :param database: the present name of the table's database.
    :param table: the table's present name.
    :param location: the table's folder or URL.
    :param write_id: the transaction's write id on the table; None when the transaction took none.
    :param instant: requested time of the Hudi instant. None when the transaction took a write id and recorded
        no instant: then only the table's timeline tells, by the txn id in its commit metadata.
    """

    txn_id: int
    database: str
    table: str
    location: str
    write_id: int | None
    instant: str | None
