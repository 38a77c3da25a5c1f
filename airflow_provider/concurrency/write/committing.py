"""The commit of one write: conflicts, turns at the table lock, and rebases between two tries."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from airflow_provider import metrics
from airflow_provider.concurrency.commit import (
    CommitContent,
    CompletedEntry,
    Moment,
    Rebase,
    Rebased,
    commit,
    completed_instant,
    log_unlogged_commits,
)
from airflow_provider.concurrency.conflicts import (
    LOSSES_BEFORE_A_TURN,
    OWNER,
    SECONDS_FOR_ANOTHER_ENGINE,
    SHORT_TURN_SECONDS,
    Conflict,
    Outcome,
    WriteDescription,
    check_no_unfinished_write,
    clusterings_to_withdraw,
    conflicts_with,
    has_other_writers,
    note_other_writers,
    others_writing,
    turn_seconds,
    wait_for_clustering,
    wait_for_instant,
    wait_for_others_to_tell,
    why_no_turn_helps,
)
from airflow_provider.concurrency.log import Commit, CommitLog, fate_of, find_rollback
from airflow_provider.concurrency.undo import revert_rewrite, rollback
from airflow_provider.concurrency.write.new_keys import same_new_keys
from airflow_provider.concurrency.write.schema_change import change_schema, keep_history, may_change_schema
from airflow_provider.concurrency.write.write import Write
from airflow_provider.exceptions import (
    CommitError,
    LockUnavailableError,
    NoSuchInstantError,
    TableError,
    WriteConflictError,
)
from airflow_provider.table.schema import TableSchema
from airflow_provider.table.timeline import (
    REWRITES,
    Instant,
    Timeline,
    later_commit_has_schema,
    metadata_of,
    remember_schema,
)

log = logging.getLogger(__name__)

_TRIES_AT_ONCE = 5  # tries without the lock; after that the writer waits for the lock


class Committing:
    """The commit of a write.

    :param write: the write, which has written its data files.
    :param content: the write's content.
    :param evolve: makes the new schema from the table's schema at the commit; None when the commit has the
        content's schema, whatever other commits have changed.
    :param rebase: merges lost file groups again; None when a lost conflict raises.
    :param writing_took: seconds that the write has taken, without waits for the lock, which grow with every
        lost conflict.
    """

    def __init__(
        self,
        write: Write,
        content: CommitContent,
        evolve: Callable[[TableSchema], TableSchema] | None,
        rebase: Callable[[Rebase], Rebased] | None,
        writing_took: float,
    ) -> None:
        self._write = write
        self._content = content
        self._evolve = evolve
        self._alters_first = False  # whether a commit that was requested later has another schema
        self._merge_again = rebase
        self._writing_took = writing_took
        self._storage = write.storage
        self._patience = time.monotonic() + write.policy.yield_timeout
        self._conflicts: list[Conflict] = []
        self._lost_at = write.base
        self._begun_at = write.base.last_look
        self._clear = write.base  # no commit up to this moment is a conflict
        self._to_revert: list[Commit] = []
        self._unrevertible: set[str] = set()
        self._to_withdraw: list[str] = []  # clustering plans of its file groups
        self._withdrawn = {write.instant}  # an executor's own plan stays
        self._turn_ends: float | None = None  # set while this write has its turn
        self._patience_for_others = 0.0  # until then the write waits for other engines, except in its turn
        # Under a shared lock the index records are staged last: other Hudi writers take a pending instant of
        # the metadata table for a dead writer's.
        self._is_shared = write.lock.excludes_hudi
        self._waits_for_nobody = write.table.is_non_blocking and content.appended == content.touched

    def run(self) -> Commit:
        """Commit, or raise; see :meth:`~airflow_provider.concurrency.write.writer.Writer.commit`."""
        with metrics.timed("commit", **self._write.tags):
            entry = self._run()
        stats, rewrites = self._content.write_stats, self._write.info.operation in REWRITES
        changed = (each.num_inserts + each.num_update_writes + each.num_deletes for each in stats)
        rows = (each.num_writes for each in stats) if rewrites else changed
        metrics.count("rows", sum(rows), **self._write.tags)
        metrics.count("bytes", sum(each.total_write_bytes for each in stats), **self._write.tags)
        return entry

    def _run(self) -> Commit:
        self._let_another_engine_finish()
        self._stage()
        entry = self._commit_at_once()
        while entry is None:
            # A write that begins again in its turn already holds the lock.
            with nullcontext() if self._write.lock.is_held() else self._write.lock:
                has_to_wait = self._may_be_built_on_by_an_earlier_one()
                entry = None if has_to_wait else self._commit_under_lock()
            if has_to_wait:
                wait_for_others_to_tell(self._storage, self._patience_for_others - time.monotonic())
            elif entry is None:
                self._make_up()
        return entry

    def _let_another_engine_finish(self) -> None:
        write = self._write
        if not self._is_shared or write.lock.is_held() or self._waits_for_nobody:
            return
        deadline = self._patience_for_others = time.monotonic() + SECONDS_FOR_ANOTHER_ENGINE
        for other, file_groups in others_writing(self._storage).items():
            if file_groups is None or file_groups & self._content.touched:
                log.info("instant %s waits for %s of another Hudi writer", write.instant, other)
                wait_for_instant(write.table, other, max(0.0, deadline - time.monotonic()))

    def _may_be_built_on_by_an_earlier_one(self) -> bool:
        """Whether another Hudi writer that requested its time before this one has not chosen its base yet.

        A JVM takes its requested time, releases the lock, and reads the table later. If this write completed
        in between, the JVM would build on it. But readers order file slices by requested time. They would
        take this write's slice for the newer one, and the JVM's rows would be lost.
        """
        if not self._is_shared or time.monotonic() >= self._patience_for_others:
            return False
        others = others_writing(self._storage).items()
        return any(groups is None and other < self._write.instant for other, groups in others)

    # --- the entry ------------------------------------------------------------------------

    def _commit_at_once(self) -> Commit | None:
        """Commit without the lock if no other process holds it: the log alone makes a commit safe."""
        lock = self._write.lock
        try:
            if self._is_shared or lock.holder() is not None:
                return None
        except LockUnavailableError:
            return None  # acquiring the lock tries for longer
        return self._put_entry(_TRIES_AT_ONCE)

    def _commit_under_lock(self) -> Commit | None:
        if self._merge_again is not None and self._write.losses >= LOSSES_BEFORE_A_TURN:
            self._turn_ends = time.monotonic() + turn_seconds(self._write.info.priority)
        try:
            entry = self._commit_or_lose()
        finally:
            self._turn_ends = None
        if entry is None and self._is_shared:
            self._write.staged_write.log_to((), self._content, lambda: self._write.view)
        return entry

    def _commit_or_lose(self) -> Commit | None:
        while True:
            if (entry := self._put_entry()) is not None:
                return entry
            if (left := self._content.without(self._conflicts)) is not None:
                told = "; ".join(map(str, self._conflicts))
                log.info("instant %s is committed without a part: %s", self._write.instant, told)
                self._content = left
                self._rebase_onto_lost()
                self._stage()
            elif self._is_soon_merged():
                self._rebase()
            else:
                return None

    def _put_entry(self, tries: int | None = None) -> Commit | None:
        """Put the entry; None where the write has conflicts, or every try lost its place to another entry."""
        while True:
            self._conflicts, self._to_revert, self._to_withdraw, self._alters_first = [], [], [], False
            entry = commit(
                self._storage, self._decide, since=self._clear, tries=tries, once_put=self._end_write
            )
            if self._alters_first and self._evolve is not None:
                change_schema(self._write.table, self._evolve, self._write.info, shared=self._is_shared)
                continue
            if self._to_withdraw:
                self._withdraw(self._to_withdraw)
                continue
            if entry is not None or not self._to_revert:
                return entry
            rewrite = self._to_revert[0]
            if reason := revert_rewrite(self._storage, rewrite):
                told = "%s %s is not reverted, because %s: rebasing onto it"
                log.info(told, rewrite.operation, rewrite.instant, reason)
                self._unrevertible.add(rewrite.instant)

    def _withdraw(self, plans: Sequence[str]) -> None:
        """Roll clustering plans back, because another Hudi writer would carry them out on older slices."""
        for instant in plans:
            self._withdrawn.add(instant)
            try:
                reason = f"{self._write.info.operation} {self._write.instant} writes to its file groups"
                rollback(self._write.table, instant, reason=reason)
            except TableError:
                if fate_of(self._storage, CommitLog(self._storage), instant) is None:
                    raise
                # The plan has just ended.

    def _decide(self, moment: Moment) -> Commit | None:
        write, content = self._write, self._content
        write.heartbeat.check()
        this = write.describe(content.touched, content.appended)
        yields = write.yields_to(this) if self._turn_ends is None else []
        changes = moment.changes_since(self._clear)
        if not self._is_shared:
            self._warn_of_others(changes)
        conflicts = self._conflicts_with(this, changes)
        self._to_revert = self._revertible(conflicts, changes)
        if self._to_revert:
            return None
        if moment.known_timeline is not None:
            conflicts = conflicts or write.planned_by_others(this, moment.known_timeline)
        if conflicts := conflicts or yields:
            self._conflicts, self._lost_at = conflicts, moment
            write.count_conflicts(conflicts)
            return None
        if any(change.entry.owner == OWNER for change in changes):
            note_other_writers(self._storage, moment.timeline, self._clear.completed_until)
        if has_other_writers(self._storage):
            write.check_is_pending()
            overtaken = clusterings_to_withdraw(self._storage, moment.timeline, content.touched)
            self._to_withdraw = [instant for instant in overtaken if instant not in self._withdrawn]
            if self._to_withdraw:
                return None
        self._look_at_schema(moment, changes)
        self._clear = moment
        if self._alters_first:
            return None
        content, indexes = self._content, moment.indexes
        staged_write = write.staged_write
        # The records are staged again if an index was scheduled or dropped since, or if statistics of a whole
        # partition lack the files of a later commit.
        if not staged_write.is_logged_to(indexes) or (changes and staged_write.tells_anew_in):
            staged_write.log_to(indexes, content, moment.view)
        if staged_write.tells_anew_in:
            self._check_requested_last(moment)
        if indexes:
            log_unlogged_commits(self._storage, indexes, moment.timeline, after=moment.completed_until)
        if not self._is_shared and (known := moment.known_timeline) is not None:
            check_no_unfinished_write(self._storage, known, before=write.instant, since=self._begun_at)
        write.before_entry(content)
        seen = moment.timeline.newest_completion if self._is_shared else ""
        return content.entry(write.instant, write.action, write.info, seen=seen)

    def _check_requested_last(self, moment: Moment) -> None:
        """Make sure that no later-requested commit hides the statistics that this write computes anew.

        Other engines merge the records of an index in the order of requested times. So a record that replaces
        all earlier statistics of a partition has to be the last in that order too.
        """
        timeline, told = moment.timeline, self._write.staged_write.tells_anew_in
        overtaking = (each for each in timeline.commits() if each.requested_time > self._write.instant)
        for later in overtaking:
            if common := told & self._written_by(timeline, later):
                raise WriteConflictError(
                    f"{self._write} recomputes the statistics of partition {min(common)!r}, because a column "
                    f"was added or became wider, but {later}, which was requested later, has completed "
                    "first; run the write again",
                    instant=self._write.instant,
                    conflicting_instant=later.requested_time,
                )

    def _written_by(self, timeline: Timeline, commit: Instant) -> set[str]:
        """Paths of the partitions that a commit has written."""
        try:
            return {each.partition_path for each in metadata_of(self._storage, timeline, commit).write_stats}
        except NoSuchInstantError:  # just undone, so it has written nothing
            return set()

    def _warn_of_others(self, changes: Sequence[CompletedEntry]) -> None:
        told = (
            "table %s: %s %s of another Hudi writer came beside %s, and %s does not keep it out: rows of "
            "either may get lost; give both engines the same lock (hoodie.write.lock.provider; "
            "docs/connections.md)"
        )
        lock = type(self._write.lock).__name__
        for entry in (change.entry for change in changes if change.entry.owner == OWNER):
            log.warning(told, self._storage.root, entry.operation, entry.instant, self._write.instant, lock)

    def _look_at_schema(self, moment: Moment, changes: Sequence[CompletedEntry]) -> None:
        """Take over columns that other commits have added or changed, so that this commit removes none.

        Readers take the schema of the commit that was requested last. If such a commit has overtaken this
        write, the write puts its column changes into a commit of their own, right before its own commit.
        """
        write = self._write
        if self._evolve is None or self._content.schema is None:
            return
        if any(may_change_schema(change.entry) for change in changes):
            current = write.table.schema_on(moment.timeline)
            evolved = self._evolve(current)
            if evolved != current:
                evolved = evolved.of_version(write.instant)
            before, self._content = self._content, self._content.with_schema(evolved, evolved != current)
            if evolved != before.schema:
                write.staged_write.stage(self._content)
        self._alters_first = self._content.evolves and later_commit_has_schema(
            self._storage, moment.timeline, write.instant
        )

    def _end_write(self, entry: Commit) -> None:
        self._write.ended = True
        self._write.heartbeat.stop()  # a beat after the publication would create the file again
        if (schema := self._content.schema) is not None and self._content.metadata is None:
            remember_schema(self._storage, completed_instant(entry), entry.operation, schema)
        keep_history(self._storage, entry, self._content)

    def _conflicts_with(self, this: WriteDescription, changes: Sequence[CompletedEntry]) -> list[Conflict]:
        write, content = self._write, self._content
        others = [WriteDescription.of_entry(change.entry) for change in changes]
        found = conflicts_with(this, others, write.policy)
        for conflict in found:
            if conflict.outcome is Outcome.ROLLED_BACK:
                raise write.lost(conflict)
        return found + same_new_keys(self._storage, this, content, changes, write.policy)

    def _revertible(self, conflicts: Sequence[Conflict], changes: Sequence[CompletedEntry]) -> list[Commit]:
        """The rewrites to be reverted, if there are no other conflicts."""
        to_revert = {c.other.instant for c in conflicts if c.outcome is Outcome.REVERT}
        to_revert -= self._unrevertible
        if not to_revert or not {c.other.instant for c in conflicts} <= to_revert:
            return []
        commits = (change.entry for change in changes if isinstance(change.entry, Commit))
        return [entry for entry in commits if entry.instant in to_revert]

    # --- a lost conflict ------------------------------------------------------------------

    def _make_up(self) -> None:
        """Wait for another write or rebase, outside the lock, before the next try; or raise."""
        write, conflicts = self._write, self._conflicts
        write.losses += 1
        hard = (c for c in conflicts if c.outcome not in (Outcome.REBASE, Outcome.REVERT))
        first = next(hard, conflicts[0])
        if first.outcome in (Outcome.YIELD, Outcome.PLANNED):
            left = self._patience - time.monotonic()
            chosen, ended = {
                Outcome.YIELD: (write.policy.on_higher_priority, wait_for_instant),
                Outcome.PLANNED: (write.policy.on_pending_clustering, wait_for_clustering),
            }[first.outcome]
            log.info("instant %s waits for %s", write.instant, first.other)
            write.heartbeat.tell(f"waits for {first.other}")
            if not (chosen == "wait" and left > 0 and ended(write.table, first.other.instant, left)):
                raise write.lost(first)
            write.heartbeat.tell("goes on")
        elif not self._may_rebase():
            raise write.lost(first, self._why_no_turn_helps())
        else:
            self._rebase()

    def _may_rebase(self) -> bool:
        can = {conflict.outcome for conflict in self._conflicts} <= {Outcome.REBASE, Outcome.REVERT}
        return self._merge_again is not None and can and self._write.rebases < self._write.policy.max_rebases

    def _is_soon_merged(self) -> bool:
        if not self._conflicts or not self._may_rebase():
            return False
        left = SHORT_TURN_SECONDS if self._turn_ends is None else self._turn_ends - time.monotonic()
        return self._seconds_to_merge() <= left

    def _seconds_to_merge(self) -> float:
        """About how long it takes to merge the lost file groups again."""
        return self._writing_took * self._content.share_of(self._content.lost(self._conflicts))

    def _why_no_turn_helps(self) -> str:
        bound = turn_seconds(self._write.info.priority)
        return "" if self._merge_again is None else why_no_turn_helps(self._seconds_to_merge(), bound)

    def _rebase(self) -> None:
        write, conflicts = self._write, self._conflicts
        if self._merge_again is None:
            raise write.lost(conflicts[0])
        write.rebases += 1
        metrics.count("rebases", **write.tags)
        log.info("instant %s is rebased: %s", write.instant, "; ".join(map(str, conflicts)))
        self._rebase_onto_lost()
        lost = self._content.lost(conflicts)
        share, began = self._content.share_of(lost), time.monotonic()
        rebased = self._merge_again(Rebase(write.view, lost, tuple(conflicts)))
        self._content = self._content.with_rebased(lost, rebased).said_to_be_rebased(conflicts)
        if share:  # a rebase may be faster than the first merge, which also loaded what is loaded once
            self._writing_took = min(self._writing_took, (time.monotonic() - began) / share)
        content = self._content
        write.check_no_open_transaction(content.touched, content.inserted_in, content.appended)
        there = (group for group in content.touched if write.view.is_live(group))
        write.staged_write.extend_plan(there)
        self._stage()

    def _rebase_onto_lost(self) -> None:
        self._write.rebase_onto(self._lost_at)
        self._clear = self._lost_at

    def _stage(self) -> None:
        """Stage all that can be staged before the lock is acquired, because others wait for the lock.

        Under a lock that other Hudi writers share, the index records are staged last, as Hudi does.
        """
        write = self._write
        try:
            write.staged_write.stage(self._content)
        except CommitError:
            # A rollback of this write may have deleted the files.
            if entry := find_rollback(CommitLog(self._storage), write.instant):
                raise write.rolled_back(entry.completion_time, entry.owner) from None
            raise
        # Under a shared lock, no index records stay staged from an earlier try.
        indexes = () if self._is_shared else write.base.indexes
        write.staged_write.log_to(indexes, self._content, lambda: write.view)
