"""The metastore transaction that a write belongs to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WriteTransaction:
    """The metastore transaction of a write.

    :param txn_id: the transaction; none when None.
    :param write_id: the table's write id in that transaction.
    :param txn_goes_on: whether the caller ends the transaction later, after other writes; see
        :func:`~airflow_provider.concurrency.transactions.commit_transaction`. Until then no other write may
        touch the file groups of this one.
    """

    txn_id: int | None = None
    write_id: int | None = None
    txn_goes_on: bool = False

    @property
    def open_txn(self) -> int | None:
        """The transaction that stays open after this write; None when there is none."""
        return self.txn_id if self.txn_goes_on else None
