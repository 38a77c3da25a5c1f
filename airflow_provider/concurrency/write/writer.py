"""A writer: begins, plans, writes, commits, publishes (see ARCHITECTURE.md).

::

    with begin_write(table, operation="UPSERT") as writer:
        writer.plan(file_groups, partitions)      # before the first data file
        stats = ...                               # data files under their final names
        result = writer.commit(stats)

Leaving the block without a commit rolls the instant back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from airflow_provider.concurrency.commit import CommitContent, CommitResult, Rebase, Rebased
from airflow_provider.concurrency.conflicts import (
    LOSSES_BEFORE_A_TURN,
    Outcome,
    WriteDescription,
    conflicts_with,
)
from airflow_provider.concurrency.undo import rollback
from airflow_provider.concurrency.write.committing import Committing
from airflow_provider.concurrency.write.write import Write, no_partitions
from airflow_provider.exceptions import NoSuchInstantError, TableServiceError, UnsupportedTableError
from airflow_provider.table.file_groups import MERGES_IN_ANY_ORDER, BaseFile, FileGroupId, FileSystemView
from airflow_provider.table.files import delete_markers
from airflow_provider.table.schema import TableSchema
from airflow_provider.table.timeline import REWRITES, WriteStat

log = logging.getLogger(__name__)


class Writer(Write):
    """One write in progress, as its process sees it; made by :func:`begin_write` or :func:`begin_planned`."""

    _planned_at = time.monotonic()

    def must_replace(self, base_file: BaseFile) -> bool:
        """Whether a merge on this base file has to go into a new file group.

        Readers order the slices of a file group by requested time. After a rebase, this write may merge on a
        base file that was requested later than itself, and that file would hide this write's slice. So the
        merge gets a new file id, and the old file group is taken out.
        """
        return base_file.instant > self.instant

    def plan(
        self,
        file_groups: Iterable[FileGroupId],
        partitions: Iterable[str] = (),
        *,
        appended: Iterable[FileGroupId] = (),
        looked_in: Callable[[FileSystemView], Iterable[str]] = no_partitions,
        early_check: bool = True,
    ) -> None:
        """Put the plan: the file groups that this write will touch. It comes before the first data file.

        The plan is the inflight instant, in the form of Hudi's workload profile: one write stat for each file
        group, and one with an empty file id for each partition that gets new file groups. A rollback finds
        this writer's files by the plan.

        :param file_groups: existing file groups that get a new slice, or are taken out.
        :param partitions: partitions that get new file groups.
        :param appended: the file groups among them that get log files alone.
        :param looked_in: returns the partitions in which the write has looked for keys, given its view. If an
            open transaction is aborted, a key that the write did not find may come back.
        :param early_check: whether to look first for writes to which this one would lose. The commit checks
            those that completed since its base again.
        :raises HigherPriorityWriteError: when a live writer of higher priority works on one of the
            file groups.
        :raises WriteConflictError: when one of them was changed since this write's base, and the
            policy is to raise; or when another open transaction holds it.
        :raises HeartbeatExpiredError: when this writer counts as dead.
        :raises InvalidInputError: when the write was planned before.
        """
        groups, partitions, appended = frozenset(file_groups), tuple(partitions), frozenset(appended)
        self.looked_in = looked_in
        if early_check:
            self.check(groups, appended)
            self.check_no_open_transaction(groups, partitions, appended)
        self.heartbeat.check()
        self.staged_write.plan(groups, partitions, appended)
        self._planned_at = time.monotonic()

    def check(self, file_groups: Iterable[FileGroupId], appended: Iterable[FileGroupId] = ()) -> None:
        """Check whether this write can still commit. The check is cheap, so a writer may call it often.

        :param file_groups: existing file groups that the write works on.
        :param appended: the file groups among them that get log files alone.
        :raises HigherPriorityWriteError: when a live writer of higher priority works on one of them.
        :raises WriteConflictError: when one of them was changed since this write's base, and the
            policy is to raise; or when another Hudi writer has planned to cluster it, and the policy is to
            fail then.
        :raises InstantRolledBackError: when another process rolled this instant back.
        :raises HeartbeatExpiredError: when this writer counts as dead.
        """
        self.heartbeat.check()
        this = self.describe(frozenset(file_groups), frozenset(appended))
        others = map(WriteDescription.of_entry, self.base.later_entries())
        for conflict in conflicts_with(this, others, self.policy):
            if conflict.outcome in (Outcome.ROLLED_BACK, Outcome.CONFLICT):
                raise self.lost(conflict)
        if this.file_groups and self.policy.on_pending_clustering == "fail":
            for planned in self.planned_by_others(this, self.base.timeline):
                raise self.lost(planned)
        if self.losses < LOSSES_BEFORE_A_TURN and (yields := self.yields_to(this)):
            raise self.lost(yields[0])

    def tell(self, progress: str) -> None:
        """Report this write's progress; see :func:`~airflow_provider.concurrency.heartbeats.progress_of`."""
        self.heartbeat.tell(progress)

    def commit(
        self,
        write_stats: Sequence[WriteStat],
        *,
        replaced: Mapping[str, Sequence[str]] | None = None,
        evolve: Callable[[TableSchema], TableSchema] | None = None,
        extra_metadata: Mapping[str, str] | None = None,
        unique_keys: bool = False,
        metadata: bytes | None = None,
        rebase: Callable[[Rebase], Rebased] | None = None,
        parts: Sequence[frozenset[FileGroupId]] = (),
    ) -> CommitResult:
        """Commit: all data files become visible in one step, or the write is rolled back.

        :param write_stats: the statistics of each data file that was written.
        :param replaced: file ids that this write replaces, by partition path.
        :param evolve: makes the new schema from the present one; called again when another commit has
            changed the schema meanwhile. An error that it raises ends the write. None keeps the schema.
        :param extra_metadata: goes into the commit metadata.
        :param unique_keys: whether it is a conflict when another write has added one of the new record keys,
            in another file group, since this write's base.
        :param metadata: content of the completed instant of a table service that has no commit metadata, such
            as a clean.
        :param rebase: merges lost file groups again, if the policy is to rebase; without it a lost conflict
            raises. If the merge is expected to be short, it is called under the table lock, so that the next
            try cannot lose.
        :param parts: sets of file groups, for a write that can commit some sets without the others. A set is
            left out, and its data files deleted, when one of its file groups is lost or a live writer of
            higher priority works on it. The conflict raises when no set is left.
        :raises WriteConflictError: when a commit completed since this write's base that
            touched one of its file groups or added one of its new keys.
        :raises HigherPriorityWriteError: when a live writer of higher priority works on one of its
            file groups, and the policy is not to wait, or the wait took too long.
        :raises InstantRolledBackError: when another process rolled this instant back.
        :raises HeartbeatExpiredError: when this writer counts as dead.
        :raises LockTimeoutError: when the table lock could not be acquired in time.
        :raises CommitError: when a data file that was reported does not exist.
        """
        ids = self.transaction
        said = {"txn_id": ids.txn_id, "write_id": ids.write_id, "operation_key": self.info.operation_key}
        extra = {**(extra_metadata or {}), "priority": str(self.info.priority)}
        extra |= {name: str(value) for name, value in said.items() if value is not None}
        if self.table.is_non_blocking:
            extra[MERGES_IN_ANY_ORDER] = "true"
        writing_took = time.monotonic() - self._planned_at
        try:
            schema = self._schema() if metadata is None else None
            evolved = schema if schema is None or evolve is None else evolve(schema)
            if evolved is not None and evolved != schema:
                evolved = evolved.of_version(self.instant)
            content = CommitContent(
                tuple(write_stats),
                {partition: tuple(ids) for partition, ids in (replaced or {}).items() if ids},
                extra,
                unique_keys,
                metadata,
                tuple(parts),
                evolved,
                evolves=evolved != schema,
            )
            if self.info.operation not in REWRITES:  # a rewrite's files have the columns of its plan's moment
                evolve = evolve or _as_it_is
            entry = Committing(self, content, evolve, rebase, writing_took).run()
        except BaseException as error:
            self._give_up(error)
            raise
        with suppress(OSError):  # archival deletes the markers that are left
            delete_markers(self.storage, self.instant)
        return CommitResult(entry.instant, entry.completion_time, entry.action, entry.sequence, self.rebases)

    def _schema(self) -> TableSchema | None:
        """The table's schema; None where neither a commit nor the properties have one."""
        try:
            return self.table.schema_on(self.schema_timeline)
        except UnsupportedTableError:
            return None

    def abort(self, reason: str = "given up by its writer") -> None:
        """Give the write up: put a rollback's entry, then delete the write's files.

        :param reason: why, for the log.
        """
        if self.ended:
            return
        self.ended = True
        self.heartbeat.stop()
        try:
            rollback(self.table, self.instant, reason=reason)
        except NoSuchInstantError:
            log.info("instant %s was rolled back already", self.instant)
        # If another process rolled the write back while this one was paused, files written since remain.
        self.staged_write.delete()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._give_up(error)
        else:
            self.abort("its writer left without a commit")

    def _give_up(self, error: BaseException) -> None:
        if isinstance(error, FileNotFoundError) and not self.ended and (told := self.taken_away()):
            self._give_up(told)
            raise told from error
        try:
            self.abort(f"{type(error).__name__}: {error}")
        except (TableServiceError, OSError) as failure:
            # The caller needs the error that led here. The heartbeat has stopped, so the next writer rolls
            # this instant back.
            log.warning("instant %s could not be rolled back now: %s", self.instant, failure)


def _as_it_is(schema: TableSchema) -> TableSchema:
    return schema
