"""A writer: begins, plans, writes, commits, publishes (design section 4).

::

    with begin_write(table, operation="UPSERT") as writer:
        writer.plan(file_groups, partitions)      # before the first data file
        stats = ...                               # data files under their final names
        result = writer.commit(stats)

Leaving the block without a commit rolls the instant back.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from airflow_provider.concurrency.commit_log import CommitLog, LogEntry
from airflow_provider.concurrency.conflicts import (
    Conflict,
    ConflictPolicy,
    Outcome,
    WriteDescription,
    conflicts_with,
)
from airflow_provider.concurrency.content import CommitResult, Content, Rebase, Rebased
from airflow_provider.concurrency.failed_writes import rollback
from airflow_provider.concurrency.heartbeat import Heartbeat, HeartbeatInfo
from airflow_provider.concurrency.held import check_not_held
from airflow_provider.concurrency.history import Base, Change
from airflow_provider.concurrency.in_flight import find_rollback, wait_for_instant, writers_above
from airflow_provider.concurrency.indexes import current_indexes, log_missed
from airflow_provider.concurrency.instant_time import completion_time_after
from airflow_provider.concurrency.new_keys import same_new_keys
from airflow_provider.concurrency.publish import publish
from airflow_provider.concurrency.revert import obstacle, put_revert
from airflow_provider.concurrency.uncommitted import Uncommitted
from airflow_provider.exceptions import (
    CommitError,
    HigherPriorityWriteError,
    InstantRolledBackError,
    LockUnavailableError,
    NoSuchInstantError,
    TableServiceError,
    WriteConflictError,
)
from airflow_provider.locks import LockProvider
from airflow_provider.table.file_groups import BaseFile, FileGroupId, FileSystemView
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.instant import Action, State
from airflow_provider.table.metadata import WriteStat

log = logging.getLogger(__name__)

_REMERGE_UNDER_LOCK_SECONDS = 0.5
_TRIES_AT_ONCE = 5  # places that others may take before a writer waits for its turn


class Writer:
    """One write under way; made by :func:`begin_write` or :func:`begin_planned`.

    :ivar instant: requested time; the name of every data file of this write carries it.
    :ivar action: action on the timeline while it is pending.
    :ivar open_txn: the transaction that this write belongs to and does not end; see :func:`begin_write`.
    """

    def __init__(
        self,
        table: HudiTable,
        instant: str,
        action: Action,
        info: HeartbeatInfo,
        base: Base,
        heartbeat: Heartbeat,
        lock: LockProvider,
        policy: ConflictPolicy,
        open_txn: int | None = None,
    ) -> None:
        self.table = table
        self.instant = instant
        self.action = action
        self.open_txn = open_txn
        self._info = info
        self._policy = policy
        self._storage = table.storage
        self._log = CommitLog(table.storage)
        self._base = base
        self._lost_at = base
        self._view: FileSystemView | None = None
        self._heartbeat = heartbeat
        self._lock = lock
        self._uncommitted = Uncommitted(table.storage, instant, action, info)
        self._planned_at = time.monotonic()
        self._writing_took = 0.0
        self._rebases = 0
        self._ended = False

    @property
    def view(self) -> FileSystemView:
        """The snapshot that this write is based on; all planning is done on it."""
        if self._view is None:
            self._view = self._base.view(self._log)
        return self._view

    def must_replace(self, base_file: BaseFile) -> bool:
        """Whether a merge on this base file has to go into a new file group.

        Readers order the slices of a file group by requested time. One that was requested after
        this write can only have been merged on by a rebase; the slice of this write would be hidden
        behind it. So the merge gets a new file id, and the old one is taken out.
        """
        return base_file.instant > self.instant

    def plan(
        self, file_groups: Iterable[FileGroupId], partitions: Iterable[str] = (), *, early_check: bool = True
    ) -> None:
        """Say what this write will touch, before the first data file is written.

        The plan is the inflight instant, shaped as Hudi's workload profile: one write stat a
        file group, and one with an empty file id for a partition that gets new ones. A
        rollback finds this writer's files by it.

        :param file_groups: existing file groups that get a new slice, or are taken out.
        :param partitions: partitions that get new file groups.
        :param early_check: whether to look first for writes that this one would lose against; those that
            completed since its base it meets at the commit again.
        :raises HigherPriorityWriteError: when a live writer of higher priority works on one of the
            file groups.
        :raises WriteConflictError: when one of them was changed since this write's base, and the
            policy is to raise; or when another transaction that is open holds it.
        :raises HeartbeatExpiredError: when this writer counts as dead.
        :raises InvalidInputError: when the write was planned before.
        """
        groups, partitions = frozenset(file_groups), tuple(partitions)
        if early_check:
            self.check(groups)
            self._check_held(groups, partitions)
        self._heartbeat.check()
        self._uncommitted.plan(groups, partitions)
        self._planned_at = time.monotonic()

    def check(self, file_groups: Iterable[FileGroupId]) -> None:
        """Look whether this write can still commit; cheap enough to ask between two pieces of work.

        :param file_groups: existing file groups that it works on.
        :raises HigherPriorityWriteError: when a live writer of higher priority works on one of them.
        :raises WriteConflictError: when one of them was changed since this write's base, and the
            policy is to raise.
        :raises InstantRolledBackError: when somebody rolled this instant back.
        :raises HeartbeatExpiredError: when this writer counts as dead.
        """
        self._heartbeat.check()
        this = self._description(frozenset(file_groups))
        others = map(WriteDescription.of_entry, self._base.entries(self._log))
        for conflict in conflicts_with(this, others, self._policy):
            if conflict.outcome in (Outcome.ROLLED_BACK, Outcome.CONFLICT):
                raise self._error(conflict)
        if yields := self._yields(this):
            raise self._error(yields[0])

    def tell(self, progress: str) -> None:
        """Say how far this write is; see :func:`~airflow_provider.concurrency.heartbeat.progress_of`."""
        self._heartbeat.tell(progress)

    def commit(
        self,
        write_stats: Sequence[WriteStat],
        *,
        replaced: Mapping[str, Sequence[str]] | None = None,
        extra_metadata: Mapping[str, str] | None = None,
        txn_id: int | None = None,
        write_id: int | None = None,
        unique_keys: bool = False,
        metadata: bytes | None = None,
        rebase: Callable[[Rebase], Rebased] | None = None,
        parts: Sequence[frozenset[FileGroupId]] = (),
    ) -> CommitResult:
        """Commit: everything written becomes visible in one step, or the write is rolled back.

        :param write_stats: one per data file written.
        :param replaced: file ids that this write takes out, by partition path.
        :param extra_metadata: goes into the commit metadata.
        :param txn_id: the metastore transaction that this commit belongs to.
        :param write_id: the table's write id in that transaction.
        :param unique_keys: whether a record key that another write added since this one's base must
            not be added once more in another file group.
        :param metadata: content of the completed instant, where it is not commit metadata but that of
            a table service, such as a clean.
        :param rebase: merges lost file groups again, where the policy says so; without it a lost
            conflict raises. It is called under the table lock when it can be expected to be done in a
            moment, so that the next try cannot be lost.
        :param parts: file groups that stand or fall together, in a write that is worth a commit without
            some of them. Those that are lost, or that a live writer of higher priority works on, are left
            out, and their data files deleted; the conflict raises when it leaves nothing.
        :raises WriteConflictError: when a commit completed since this write's base that
            touched one of its file groups or added one of its new keys.
        :raises HigherPriorityWriteError: when a live writer of higher priority works on one of its
            file groups, and the policy is not to wait, or it was waited for too long.
        :raises InstantRolledBackError: when somebody rolled this instant back.
        :raises HeartbeatExpiredError: when this writer counts as dead.
        :raises LockTimeoutError: when the table lock could not be had in time.
        :raises CommitError: when a data file that was reported is not there.
        """
        extra = {**(extra_metadata or {}), "priority": str(self._info.priority)}
        if self.table.config.create_schema is not None:
            extra.setdefault("schema", self.table.config.create_schema)  # where readers look for it
        for name, value in (
            ("txn_id", txn_id),
            ("write_id", write_id),
            ("operation_key", self._info.operation_key),
        ):
            if value is not None:
                extra[name] = str(value)
        content = Content(
            tuple(write_stats),
            {partition: tuple(ids) for partition, ids in (replaced or {}).items() if ids},
            extra,
            unique_keys,
            metadata,
            tuple(parts),
        )
        # Without the time that is spent on waiting for the lock, which grows with every lost conflict.
        self._writing_took = time.monotonic() - self._planned_at
        patience = time.monotonic() + self._policy.yield_timeout
        try:
            self._stage(content)
            found: LogEntry | list[Conflict] = self._commit_at_once(content)
            while not isinstance(found, LogEntry):
                with self._lock:
                    found, content = self._commit_or_lose(content, rebase)
                if not isinstance(found, LogEntry):
                    content = self._make_up(found, content, rebase, patience)
        except BaseException as error:
            self._give_up(error)
            raise
        return CommitResult(found.instant, found.completion_time, found.action, found.sequence, self._rebases)

    def abort(self, reason: str = "given up by its writer") -> None:
        """Give the write up: a rollback entry, then its files are deleted.

        :param reason: why, for the log.
        """
        if self._ended:
            return
        self._ended = True
        self._heartbeat.stop()
        try:
            rollback(self.table, self.instant, reason=reason)
        except NoSuchInstantError:
            log.info("instant %s was rolled back already", self.instant)
        # Whoever rolled back while this writer was paused could not delete what it wrote since.
        self._uncommitted.delete()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._give_up(error)
        else:
            self.abort("its writer left without a commit")

    def _commit_at_once(self, content: Content) -> LogEntry | list[Conflict]:
        """Without a turn, where nobody has one: what makes a commit safe is the log."""
        try:
            if self._lock.excludes_hudi or self._lock.holder() is not None:
                return []
        except LockUnavailableError:
            return []  # who waits for a turn tries for longer
        found = self._put_entry(content, _TRIES_AT_ONCE)
        if isinstance(found, LogEntry):
            self._publish(found)
        return found

    # --- under the lock -------------------------------------------------------------------

    def _commit_or_lose(
        self, content: Content, rebase: Callable[[Rebase], Rebased] | None
    ) -> tuple[LogEntry | list[Conflict], Content]:
        while True:
            found = self._put_entry(content)
            if isinstance(found, LogEntry):
                self._publish(found)
                return found, content
            if (left := content.without(found)) is not None:
                log.info(
                    "instant %s is committed without a part: %s", self.instant, "; ".join(map(str, found))
                )
                content, self._base, self._view = left, self._lost_at, None
                self._stage(content)
                continue
            if not self._is_soon_merged(found, content, rebase):
                return found, content
            content = self._rebase(found, content, rebase)

    def _put_entry(self, content: Content, tries: int | None = None) -> LogEntry | list[Conflict]:
        """The entry, or what it conflicts with; nothing where every try lost its place to another entry."""
        this = self._description(content.touched)
        unrevertible: set[str] = set()
        clear = self._base  # nothing that completed up to this moment is in the way
        for _ in itertools.repeat(None) if tries is None else range(tries):
            self._heartbeat.check()
            yields = self._yields(this)
            changes, moment = clear.changes(self._log)
            conflicts = self._conflicts(this, content, changes)
            to_revert = [c for c in conflicts if c.outcome is Outcome.REVERT]
            to_revert = [c for c in to_revert if c.other.instant not in unrevertible]
            if to_revert and len(to_revert) == len(conflicts):
                self._revert(to_revert[0], changes, moment, unrevertible)
                continue
            if conflicts := conflicts or yields:
                self._lost_at = moment
                return conflicts
            clear = moment
            newest = moment.newest
            indexes = current_indexes(self._storage, self._log, newest)
            if not self._uncommitted.is_logged_to(indexes):  # one was scheduled, or dropped, since
                self._uncommitted.log_to(indexes, content, lambda: self.view)
            if indexes:
                log_missed(self._storage, indexes, moment.timeline)
            entry = content.entry(
                self.instant,
                self.action,
                self._info,
                completion_time_after(newest, self.instant, later_than=moment.newest_completion(self._lock)),
                newest.sequence + 1 if newest else 1,
                indexes,
            )
            if self._log.append(entry.sequence, entry):
                self._ended = True
                self._heartbeat.stop()  # a beat after the publication would bring its file back
                return entry
        return []

    def _publish(self, entry: LogEntry) -> None:
        try:
            publish(self._storage, entry)
        except OSError as error:
            # The entry is the commit; the next writer publishes what could not be published.
            log.warning("instant %s is committed but not published yet: %s", self.instant, error)

    def _conflicts(
        self, this: WriteDescription, content: Content, changes: Sequence[Change]
    ) -> list[Conflict]:
        others = [WriteDescription.of_entry(change.entry) for change in changes]
        found = conflicts_with(this, others, self._policy)
        for conflict in found:
            if conflict.outcome is Outcome.ROLLED_BACK:
                raise self._error(conflict)
        if content.unique_keys and any(change.entry.inserted_in for change in changes):
            found += same_new_keys(self._storage, this, content.write_stats, changes, self._policy)
        return found

    def _check_held(self, file_groups: Iterable[FileGroupId], partitions: Iterable[str]) -> None:
        # What an open transaction has written since this write's base is met at the commit, or by a rebase.
        check_not_held(self._storage, self._description(frozenset(file_groups)), partitions, self.open_txn)

    def _revert(
        self, conflict: Conflict, changes: Iterable[Change], moment: Base, unrevertible: set[str]
    ) -> None:
        # Not its plan, which is an entry of the same instant.
        rewrite = next(
            c.entry for c in changes if c.entry.commits and c.entry.instant == conflict.other.instant
        )
        reason = obstacle(self._storage, self._log, rewrite)
        if reason is not None:
            log.info("%s is not reverted, because %s: rebasing onto it", conflict.other, reason)
            unrevertible.add(rewrite.instant)
        elif moment.newest is not None:
            later_than = moment.newest_completion(self._lock)
            put_revert(self._storage, self._log, moment.newest, rewrite, later_than=later_than)

    def _yields(self, this: WriteDescription) -> list[Conflict]:
        return conflicts_with(this, writers_above(self._storage, this.priority), self._policy)

    def _is_soon_merged(
        self, conflicts: Sequence[Conflict], content: Content, rebase: Callable[[Rebase], Rebased] | None
    ) -> bool:
        if not self._may_rebase(conflicts, rebase):
            return False
        return self._writing_took * content.share_of(content.lost(conflicts)) <= _REMERGE_UNDER_LOCK_SECONDS

    # --- a lost conflict ------------------------------------------------------------------

    def _make_up(
        self,
        conflicts: Sequence[Conflict],
        content: Content,
        rebase: Callable[[Rebase], Rebased] | None,
        patience: float,
    ) -> Content:
        """What there is to be done before the next try, outside the lock."""
        hard = (c for c in conflicts if c.outcome not in (Outcome.REBASE, Outcome.REVERT))
        first = next(hard, conflicts[0])
        if first.outcome is Outcome.YIELD:
            left = patience - time.monotonic()
            waits = self._policy.on_higher_priority == "wait" and left > 0
            log.info("instant %s waits for %s", self.instant, first.other)
            if not (waits and wait_for_instant(self.table, first.other.instant, left)):
                raise self._error(first)
            return content
        if not self._may_rebase(conflicts, rebase):
            raise self._error(first)
        return self._rebase(conflicts, content, rebase)

    def _may_rebase(self, conflicts: Sequence[Conflict], rebase: Callable[[Rebase], Rebased] | None) -> bool:
        can = {conflict.outcome for conflict in conflicts} <= {Outcome.REBASE, Outcome.REVERT}
        return rebase is not None and can and self._rebases < self._policy.max_rebases

    def _rebase(
        self, conflicts: Sequence[Conflict], content: Content, rebase: Callable[[Rebase], Rebased] | None
    ) -> Content:
        if rebase is None:
            raise self._error(conflicts[0])
        self._rebases += 1
        log.info("instant %s is rebased: %s", self.instant, "; ".join(map(str, conflicts)))
        self._base, self._view = self._lost_at, None
        lost = content.lost(conflicts)
        share, began = content.share_of(lost), time.monotonic()
        content = content.with_rebased(lost, rebase(Rebase(self.view, lost, tuple(conflicts))))
        if share:  # the first merge has also paid for what is loaded once
            self._writing_took = min(self._writing_took, (time.monotonic() - began) / share)
        self._extend_plan(content)
        self._stage(content)
        return content

    def _extend_plan(self, content: Content) -> None:
        self._check_held(content.touched, content.inserted_in)
        self._uncommitted.extend_plan(g for g in content.touched if self.view.base_file(g) is not None)

    def _stage(self, content: Content) -> None:
        """All that can be done before the lock is taken: what happens under it others wait for."""
        try:
            self._uncommitted.stage(content)
        except CommitError:
            if entry := find_rollback(self._log, self.instant):  # whoever did that has deleted the files
                raise self._rolled_back(entry.completion_time, entry.owner) from None
            raise
        indexes = current_indexes(self._storage, self._log, self._base.newest)
        self._uncommitted.log_to(indexes, content, lambda: self.view)

    # --- words ----------------------------------------------------------------------------

    def _description(self, file_groups: frozenset[FileGroupId]) -> WriteDescription:
        info = self._info
        return WriteDescription(self.instant, info.operation, info.priority, State.INFLIGHT, file_groups)

    def _error(self, conflict: Conflict) -> CommitError:
        other = conflict.other
        if conflict.outcome is Outcome.ROLLED_BACK:
            return self._rolled_back(other.completion_time, other.owner)
        this = f"table {self._storage.root}: {self._info.operation} {self.instant}"
        details = {
            "instant": self.instant,
            "conflicting_instant": other.instant,
            "file_groups": [list(group) for group in sorted(conflict.file_groups)],
        }
        if conflict.outcome is Outcome.YIELD:
            told = f"{this} gives way: {conflict}; run the write again after it"
            return HigherPriorityWriteError(told, **details)
        tried = f" after {self._rebases} rebases" if self._rebases else ""
        told = f"{this} lost a write conflict{tried}: {conflict}; run the write again on the new snapshot"
        return WriteConflictError(told, **details)

    def _rolled_back(self, at: str | None, by: str) -> InstantRolledBackError:
        this = f"table {self._storage.root}: {self._info.operation} {self.instant}"
        told = f"{this} was rolled back at {at} by {by}; run the write again"
        return InstantRolledBackError(told, instant=self.instant)

    def _give_up(self, error: BaseException) -> None:
        if isinstance(error, FileNotFoundError) and not self._ended and (told := self._taken_away()):
            self._give_up(told)
            raise told from error
        try:
            self.abort(f"{type(error).__name__}: {error}")
        except (TableServiceError, OSError) as failure:
            # The error that led here is the one to tell; the heartbeat has stopped, so the
            # next writer rolls this instant back.
            log.warning("instant %s could not be rolled back now: %s", self.instant, failure)

    def _taken_away(self) -> CommitError | None:
        """Why a file that this write needs is gone, where others have deleted it."""
        if entry := find_rollback(self._log, self.instant):
            return self._rolled_back(entry.completion_time, entry.owner)
        for entry in self._log.after(self._base.sequence):
            if entry.reverts is not None or entry.undoes:
                undone = entry.rolls_back or max(entry.undoes)
                return WriteConflictError(
                    f"table {self._storage.root}: {self._info.operation} {self.instant} is based on instant "
                    f"{undone}, which was undone at {entry.completion_time}; run the write again",
                    instant=self.instant,
                    conflicting_instant=undone,
                )
        return None
