"""The requests of a replicator to its target's metastore, and of a failover to both metastores."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from airflow_provider.metastore.model import NotificationEvent, Replication, Scope, SourceState


class ReplicationTarget(Protocol):
    """The metastore of a target, as its replicators use it.

    Each method is one database transaction of the target. All but :meth:`add_bytes` may be called twice. All
    raise :class:`~airflow_provider.exceptions.MetastoreUnavailableError` when the metastore cannot be
    reached, and :class:`~airflow_provider.exceptions.UnsupportedByServerError` when it is a Hive.
    """

    def replications(self) -> list[Replication]:
        """All replications into the metastore, by name."""

    def replication(self, policy: str) -> Replication:
        """One replication.

        :raises NoSuchObjectError: when there is no such replication.
        """

    def begin(
        self, policy: str, source: str, databases: Mapping[str, str], *, is_same: bool = False
    ) -> Replication:
        """Create a replication, or look it up and add the databases that are new.

        :param source: the source's URL.
        :param databases: the target's database by the source's.
        :param is_same: whether this is the replication's source, if its URL is another one than before.
        :raises InvalidInputError: when the replication has another source, or would lose a database, or when
            two replications would have the same target.
        """

    def restart(self, policy: str) -> None:
        """Put the replication into the phase in which it copies the state of the source."""

    def keep_lease(self, policy: str, owner: str, seconds: float) -> None:
        """Take the lease of a replication, or renew it.

        :param owner: the replicator that takes it.
        :param seconds: the lease's duration by the database's clock.
        :raises ReplicationLeaseError: when another replicator has it.
        """

    def release_lease(self, policy: str, owner: str) -> None:
        """Give the lease back, if the replicator still has it."""

    def note_error(self, policy: str, error: str | None) -> None:
        """Record the error of the last pass; None when it succeeded."""

    def add_bytes(self, policy: str, copied: int) -> None:
        """Add copied bytes to the replication's count."""

    def mapped_txns(self, policy: str) -> dict[int, int]:
        """The target's open transactions by the source's transactions."""

    def apply_events(self, scope: Scope, events: Sequence[NotificationEvent]) -> None:
        """Apply events of the source, and move the position, in one step.

        Events that were applied before are passed over.

        :param scope: the replication's databases and locations.
        :param events: in the order of the log.
        :raises InvalidInputError: when an event does not follow the position.
        """

    def bring_over(self, scope: Scope, state: SourceState) -> None:
        """Make catalog, transactions and write ids equal to the source's, and take its position.

        :param scope: the replication's databases and locations.
        :param state: the source's.
        """

    def last_write_id(self, database: str, table: str) -> int:
        """The last write id of a table, also of one that is dropped; 0 when there was none."""

    # --- failover --------------------------------------------------------------------------

    def freeze(self, policy: str, databases: Collection[str]) -> None:
        """Stop the writers of databases of the source, so that the target can become the source.

        :param databases: the names of the databases here; those that do not exist are left out.
        """

    def thaw(self, databases: Collection[str]) -> None:
        """Admit the writers of frozen databases again."""

    def open_writers(self, databases: Collection[str]) -> list[int]:
        """The open transactions that have written into the databases, or may; never from a cache."""

    def take_over(self, policy: str, databases: Collection[str]) -> None:
        """Abort the transactions that the replication has open here, and admit writers to its target.

        :param databases: the names of the databases here.
        """

    def forget(self, policy: str) -> None:
        """Forget a replication: its position, its transactions, and that its databases are a target.

        The transactions that it has open here are aborted. A replication that is not known is no error.
        """

    def follow_back(self, policy: str, source: str, databases: Mapping[str, str]) -> None:
        """Make databases that were a source the target of the replication in the other direction.

        :param policy: the replication in the other direction.
        :param source: the URL of its source, which was the target.
        :param databases: the database here by the database there.
        :raises InvalidInputError: see :meth:`begin`.
        """
