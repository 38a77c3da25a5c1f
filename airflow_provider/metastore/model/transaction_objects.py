"""What a transaction of the metastore is, and its writes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum


class TxnType(IntEnum):
    """What a transaction is for; Hive's numbers."""

    DEFAULT = 0
    REPL_CREATED = 1
    READ_ONLY = 2
    COMPACTION = 3


class TxnState(StrEnum):
    """What became of a transaction; the letters that Hive stores."""

    OPEN = "o"
    COMMITTED = "c"
    ABORTED = "a"


# Built once: making a statement costs more than running it.


@dataclass(frozen=True)
class TxnInfo:
    """A transaction.

    :param id: 1 for the first; each is its predecessor's + 1.
    :param state: open, committed or aborted.
    :param user: who opened it.
    :param host: where it was opened.
    :param agent: what opened it, such as a task instance.
    :param commit_on_recovery: whether recovery may commit it; see
        :meth:`AnyMetastore.recover_timed_out`.
    :param opened_at: seconds since the epoch, by the database's clock.
    :param heartbeat_at: its last heartbeat, as ``opened_at``.
    :param event_id: its COMMIT_TXN or ABORT_TXN event; None while it is open. For one that only
        reads, which leaves no event, the last event when it ended.
    :param txn_type: what it is for.
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
    """What a transaction wrote, or may have written, into one table.

    :param txn_id: the transaction.
    :param database: the table's database, by its present name.
    :param table: the table, by its present name.
    :param location: the table's folder or URL.
    :param write_id: the transaction's write id there, None when it took none.
    :param instant: requested time of the Hudi instant; None when a write id was taken but no instant
        was recorded: then the table's timeline must tell by the txn id in its commit metadata.
    """

    txn_id: int
    database: str
    table: str
    location: str
    write_id: int | None
    instant: str | None
