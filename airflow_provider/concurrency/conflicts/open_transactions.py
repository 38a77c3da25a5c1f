"""File groups that an open transaction holds, because its completed writes may yet be undone.

If a transaction has a single write, both end together. If it has several writes, each completes long before
the transaction ends, and an abort undoes it. So no other write may build on such a write. Until the
transaction ends, it holds the write's file groups. It also holds the partitions from which the write removed
rows, because other writers do not see the keys that an abort brings back.

The file ``.hoodie/.transactions/<instant>`` contains the transaction's id. It exists from before the write's
commit until the end of the transaction has reached the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from airflow_provider.concurrency.conflicts.rules import WriteDescription
from airflow_provider.exceptions import NoSuchInstantError, WriteConflictError
from airflow_provider.table.file_groups import Effect, effect_of, touches_partitions
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import State, Timeline

HELD_FOLDER = ".hoodie/.transactions"


def open_transaction_path(instant: str) -> str:
    """Path of the file that marks an instant as part of an open transaction."""
    return f"{HELD_FOLDER}/{instant}"


def mark_open_transaction(storage: Storage, instant: str, txn_id: int) -> None:
    """Mark an instant as part of an open transaction, before the instant can complete."""
    storage.put(open_transaction_path(instant), str(txn_id).encode())


def unmark_open_transaction(storage: Storage, instant: str) -> None:
    """Remove the mark of an instant whose transaction has ended."""
    storage.delete(open_transaction_path(instant))


def instants_of_open_transactions(storage: Storage) -> dict[str, int]:
    """The transactions of a table's instants that are open, or whose end has not reached the table yet.

    :param storage: the table's storage.
    :return: transaction ids by requested time, in the order of requested times.
    """
    found = {}
    for instant in sorted(storage.names(HELD_FOLDER)):
        with suppress(FileNotFoundError):  # just released
            found[instant] = int(storage.read(open_transaction_path(instant)))
    return found


def writes_of_open_transactions(storage: Storage, *, besides: int | None = None) -> list[Effect]:
    """The completed writes of open transactions.

    :param storage: the table's storage.
    :param besides: a transaction whose writes are left out.
    :return: in the order of their requested times.
    """
    of_others = {
        instant: txn_id
        for instant, txn_id in instants_of_open_transactions(storage).items()
        if txn_id != besides
    }
    if not of_others:
        return []
    timeline, effects = Timeline.load(storage), []
    for instant in of_others:
        found = timeline.find(instant)
        if found is not None and found.state is State.COMPLETED:
            with suppress(NoSuchInstantError):  # just undone
                effects.append(effect_of(storage, timeline, found))
    return effects


def check_no_open_transaction(
    storage: Storage,
    this: WriteDescription,
    partitions: Callable[[], Iterable[str]],
    open_txn: int | None,
) -> None:
    """Make sure that a write builds on nothing that an open transaction may yet undo.

    :param storage: the table's storage.
    :param this: the write, with the existing file groups that it works on.
    :param partitions: returns the partition paths in which the write adds file groups, or has looked for
        keys: an abort may bring back a key that it did not find. Called only where a transaction is open.
    :param open_txn: the write's own transaction, when the transaction goes on after the write.
    :raises WriteConflictError: when another open transaction holds one of the file groups or partitions.
    """
    worked_in: set[str] | None = None
    for other in writes_of_open_transactions(storage, besides=open_txn):
        if worked_in is None:
            worked_in = {*partitions(), *(group.partition_path for group in this.file_groups)}
        shared, taken_out_of = sorted(other.written & this.file_groups), other.taken_out_of
        if this.merges_in_any_order and this.file_groups <= this.appended:
            # It needs no earlier log file. But an abort may bring back the file group of a bucket, which then
            # must not have another one.
            shared = sorted({*shared} - other.appended)
            taken_out_of = frozenset(group.partition_path for group in other.replaced)
        if not shared and not touches_partitions(taken_out_of, worked_in, this.operation):
            continue
        where = "/".join(shared[0]).lstrip("/") if shared else f"{sorted(taken_out_of)[0]!r}"
        raise WriteConflictError(
            f"table {storage.root}: {this.operation} {this.instant} would build on {where} as instant "
            f"{other.instant.requested_time} left it, and transaction {other.txn_id}, to which that belongs, "
            "has not ended; run the write again after it",
            instant=this.instant,
            conflicting_instant=other.instant.requested_time,
            txn_id=other.txn_id,
        )
