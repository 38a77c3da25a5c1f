"""One write in progress: its instant, the moment that it is based on, and its errors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from airflow_provider import metrics
from airflow_provider.concurrency.commit import CommitContent, Moment, StagedWrite
from airflow_provider.concurrency.conflicts import (
    Conflict,
    ConflictPolicy,
    Outcome,
    WriteDescription,
    check_no_open_transaction,
    conflicts_with,
    kind_of,
    planned_clusterings,
    writers_above,
)
from airflow_provider.concurrency.heartbeats import Heartbeat, HeartbeatInfo
from airflow_provider.concurrency.log import CommitLog, Fate, Restore, Revert, fate_of, find_rollback
from airflow_provider.concurrency.write.write_transaction import WriteTransaction
from airflow_provider.exceptions import (
    CommitError,
    HigherPriorityWriteError,
    InstantRolledBackError,
    WriteConflictError,
)
from airflow_provider.locks import LockProvider
from airflow_provider.table.file_groups import FileGroupId, FileSystemView
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.timeline import Action, Instant, State, Timeline, instant_path, newest_archived

log = logging.getLogger(__name__)


def no_partitions(view: FileSystemView) -> Iterable[str]:
    """The partitions in which a write has looked for keys that looks for none."""
    return ()


class Write:
    """A write that has an instant and a heartbeat.

    :ivar table: the table.
    :ivar instant: requested time; the name of every data file of this write carries it.
    :ivar action: action on the timeline while the write is pending.
    :ivar info: the content of its heartbeat.
    :ivar base: the moment that it is based on.
    :ivar transaction: the metastore transaction that it belongs to.
    :ivar rebases: how often parts of it were merged again.
    :ivar looked_in: returns the partitions in which it has looked for keys, given its :attr:`view`.
    :ivar losses: how often it has lost, or given way, since it first began; see
        :mod:`~airflow_provider.concurrency.conflicts.turns`.
    :ivar written_twice: by each file group that this write rewrites, the file groups that it makes of it. A
        writer that appends to both is no conflict.
    :ivar before_entry: called with the commit's content right before each try to put its entry.
    :ivar ended: whether it has committed, or was given up.
    """

    def __init__(
        self,
        table: HudiTable,
        instant: str,
        action: Action,
        info: HeartbeatInfo,
        base: Moment,
        heartbeat: Heartbeat,
        lock: LockProvider,
        policy: ConflictPolicy,
        transaction: WriteTransaction | None = None,
        losses: int = 0,
    ) -> None:
        self.table = table
        self.storage = table.storage
        self.instant = instant
        self.action = action
        self.info = info
        self.base = base
        self.heartbeat = heartbeat
        self.lock = lock
        self.policy = policy
        self.transaction = transaction or WriteTransaction()
        self.staged_write = StagedWrite(table.storage, instant, action, info)
        self.rebases = 0
        self.looked_in: Callable[[FileSystemView], Iterable[str]] = no_partitions
        self.losses = losses
        self.written_twice: Mapping[FileGroupId, frozenset[FileGroupId]] = {}
        self.before_entry: Callable[[CommitContent], None] = lambda _: None
        self.ended = False
        self._met: set[str] = set()
        self._view: FileSystemView | None = None

    @property
    def view(self) -> FileSystemView:
        """The snapshot that this write is based on; all planning is done on it."""
        if self._view is None:
            self._view = self.base.view()
        return self._view

    @property
    def schema_timeline(self) -> Timeline:
        """The timeline for reading the table's schema. The commit handles schema changes since the base."""
        return self.base.last_look

    def rebase_onto(self, moment: Moment) -> None:
        """Make another moment the base."""
        self.base, self._view = moment, None

    def describe(
        self, file_groups: frozenset[FileGroupId], appended: frozenset[FileGroupId] = frozenset()
    ) -> WriteDescription:
        """The description of this write for the conflict rules.

        :param file_groups: the file groups that the write works on.
        :param appended: the file groups among them that get log files alone.
        """
        info = self.info
        return WriteDescription(
            *(self.instant, info.operation, info.priority, State.INFLIGHT, file_groups, appended),
            merges_in_any_order=self.table.is_non_blocking,
            written_twice=self.written_twice,
        )

    def yields_to(self, this: WriteDescription) -> list[Conflict]:
        """Conflicts with live writers of higher priority.

        :param this: the present description of this write.
        """
        return conflicts_with(this, writers_above(self.storage, this.priority), self.policy)

    def planned_by_others(self, this: WriteDescription, timeline: Timeline) -> list[Conflict]:
        """Conflicts with clusterings that other Hudi writers have planned, and will not give up.

        :param this: the present description of this write.
        :param timeline: the active timeline.
        """
        return [
            Conflict(other, shared, Outcome.PLANNED)
            for other in planned_clusterings(self.storage, timeline)
            if (shared := this.file_groups & other.file_groups)
        ]

    @property
    def closed(self) -> frozenset[FileGroupId]:
        """File groups that may get no new rows, because other Hudi writers have planned to cluster them."""
        planned = planned_clusterings(self.storage, self.base.timeline)
        return frozenset[FileGroupId]().union(*(each.file_groups for each in planned))

    def check_no_open_transaction(
        self,
        file_groups: Iterable[FileGroupId],
        partitions: Iterable[str],
        appended: Iterable[FileGroupId] = (),
    ) -> None:
        """Make sure that this write builds on nothing that an open transaction may yet undo.

        The commit, or a rebase, finds what an open transaction has written since this write's base.

        :raises WriteConflictError: when this write builds on the writes of an open transaction.
        """
        this = self.describe(frozenset(file_groups), frozenset(appended))
        check_no_open_transaction(
            self.storage,
            this,
            lambda: {*partitions, *self.looked_in(self.view)},
            self.transaction.open_txn,
        )

    # --- what is measured, and said -----------------------------------------------------------

    @property
    def tags(self) -> dict[str, object]:
        """The tags of this write's metrics."""
        return {"table": self.table.location, "action": self.action, "priority": self.info.priority}

    def count_conflicts(self, conflicts: Iterable[Conflict]) -> None:
        """Count conflicts once each: the same conflict may be found at every try to commit."""
        for other in {each.other for each in conflicts if each.other.instant not in self._met}:
            self._met.add(other.instant)
            kind = f"{kind_of(self.info.operation)}/{kind_of(other.operation)}"
            metrics.count("conflicts", **self.tags, kind=kind)

    def lost(self, conflict: Conflict, remedy: str = "") -> CommitError:
        """The error for a conflict because of which this write cannot go on.

        :param conflict: the conflict.
        :param remedy: what the user has to do besides running the write again.
        """
        other = conflict.other
        self.count_conflicts([conflict])
        if conflict.outcome is Outcome.ROLLED_BACK:
            return self.rolled_back(other.completion_time, other.owner)
        details = {
            "instant": self.instant,
            "conflicting_instant": other.instant,
            "file_groups": [list(group) for group in sorted(conflict.file_groups)],
        }
        if conflict.outcome is Outcome.YIELD:
            told = f"{self} gives way: {conflict}; run the write again after it"
            return HigherPriorityWriteError(told, **details)
        if conflict.outcome is Outcome.PLANNED:
            told = (
                f"{self} cannot be done now: {conflict}, and what is written there meanwhile is lost once "
                "that is carried out; run the write again after it, or with on_pending_clustering='wait'"
            )
            return WriteConflictError(told, **details)
        tried = f" after {self.rebases} rebases" if self.rebases else ""
        told = f"{self} lost a write conflict{tried}: {conflict}; run the write again on the new snapshot"
        return WriteConflictError(told + remedy, **details)

    def rolled_back(self, at: str | None, by: str) -> InstantRolledBackError:
        """The error for a write that another process has rolled back."""
        return InstantRolledBackError(
            f"{self} was rolled back at {at} by {by}; run the write again", instant=self.instant
        )

    def check_is_pending(self) -> None:
        """Make sure that no other Hudi writer has rolled this write back, or archived later instants.

        Its rollback may be archived already, and so be missing on the timeline. But the rollback has deleted
        the requested instant, which a writer never puts again. Other Hudi writers take every instant up to
        the last archived one for completed.

        :raises InstantRolledBackError: when the requested instant is gone, or precedes an archived one.
        """
        if self.storage.stat(instant_path(Instant(self.instant, self.action, State.REQUESTED))) is None:
            told = f"{self} was rolled back by another Hudi writer; run the write again"
            raise InstantRolledBackError(told, instant=self.instant)
        if self.instant <= (archived := newest_archived(self.storage)):
            told = f"{self} was paused until another Hudi writer archived the later {archived}; run it again"
            raise InstantRolledBackError(told, instant=self.instant)

    def taken_away(self) -> CommitError | None:
        """The error that explains why a file that this write needs is gone, if another process deleted it."""
        commit_log = CommitLog(self.storage)
        if entry := find_rollback(commit_log, self.instant):
            return self.rolled_back(entry.completion_time, entry.owner)
        for later in commit_log.after(self.base.sequence):
            if isinstance(later, Revert | Restore):
                undone = max(later.undone)
                return WriteConflictError(
                    f"{self} is based on instant {undone}, which was undone at {later.completion_time}; run "
                    "the write again",
                    instant=self.instant,
                    conflicting_instant=undone,
                )
        if fate_of(self.storage, commit_log, self.instant) is Fate.DEAD:  # its rollback's entry is trimmed
            told = f"{self} was rolled back so long ago that it is archived; run the write again"
            return InstantRolledBackError(told, instant=self.instant)
        try:
            self.check_is_pending()
        except InstantRolledBackError as rolled_back:
            return rolled_back
        return None

    def __str__(self) -> str:
        return f"table {self.storage.root}: {self.info.operation} {self.instant}"
