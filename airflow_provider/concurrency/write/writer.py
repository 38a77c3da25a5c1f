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
from airflow_provider.concurrency.write.write import Write
from airflow_provider.exceptions import NoSuchInstantError, TableServiceError, UnsupportedTableError
from airflow_provider.table.file_groups import MERGES_IN_ANY_ORDER, BaseFile, FileGroupId
from airflow_provider.table.files import delete_markers
from airflow_provider.table.schema import TableSchema
from airflow_provider.table.timeline import REWRITES, WriteStat

log = logging.getLogger(__name__)


class Writer(Write):
    """One write under way, as its process sees it; made by :func:`begin_write` or :func:`begin_planned`."""

    _planned_at = time.monotonic()

    def must_replace(self, base_file: BaseFile) -> bool:
        """Whether a merge on this base file has to go into a new file group.

        Readers order the slices of a file group by requested time. One that was requested after
        this write can only have been merged on by a rebase; the slice of this write would be hidden
        behind it. So the merge gets a new file id, and the old one is taken out.
        """
        return base_file.instant > self.instant

    def plan(
        self,
        file_groups: Iterable[FileGroupId],
        partitions: Iterable[str] = (),
        *,
        appended: Iterable[FileGroupId] = (),
        looked_in: Callable[[], Iterable[str]] = tuple,
        early_check: bool = True,
    ) -> None:
        """Put the plan: the file groups that this write will touch. It comes before the first data file.

        The plan is the inflight instant, shaped as Hudi's workload profile: one write stat a
        file group, and one with an empty file id for a partition that gets new ones. A
        rollback finds this writer's files by it.

        :param file_groups: existing file groups that get a new slice, or are taken out.
        :param partitions: partitions that get new file groups.
        :param appended: those of the file groups that get log files alone.
        :param looked_in: the partitions in which it has looked for keys. One that it has not found may come
            back, when a transaction that is open is aborted.
        :param early_check: whether to look first for writes that this one would lose against; those that
            completed since its base it meets at the commit again.
        :raises HigherPriorityWriteError: when a live writer of higher priority works on one of the
            file groups.
        :raises WriteConflictError: when one of them was changed since this write's base, and the
            policy is to raise; or when another transaction that is open holds it.
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
        """Look whether this write can still commit; cheap enough to ask between two pieces of work.

        :param file_groups: existing file groups that it works on.
        :param appended: those of them that it writes log files alone into.
        :raises HigherPriorityWriteError: when a live writer of higher priority works on one of them.
        :raises WriteConflictError: when one of them was changed since this write's base, and the
            policy is to raise; or when another Hudi writer has planned to cluster it, and the policy is to
            fail then.
        :raises InstantRolledBackError: when somebody rolled this instant back.
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
        """Say how far this write is; see :func:`~airflow_provider.concurrency.heartbeats.progress_of`."""
        self.heartbeat.tell(progress)

    def commit(
        self,
        write_stats: Sequence[WriteStat],
        *,
        replaced: Mapping[str, Sequence[str]] | None = None,
        evolve: Callable[[TableSchema], TableSchema] | None = None,
        extra_metadata: Mapping[str, str] | None = None,
        txn_id: int | None = None,
        write_id: int | None = None,
        unique_keys: bool = False,
        metadata: bytes | None = None,
        rebase: Callable[[Rebase], Rebased] | None = None,
        parts: Sequence[frozenset[FileGroupId]] = (),
    ) -> CommitResult:
        """Commit: everything written becomes visible in one step, or the write is rolled back.

        :param write_stats: the statistics of each data file that was written.
        :param replaced: file ids that this write replaces, by partition path.
        :param evolve: makes the new schema from the present one; called again when another commit has
            changed the schema meanwhile. An error that it raises ends the write. None leaves the schema as
            it is.
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
        said = {"txn_id": txn_id, "write_id": write_id, "operation_key": self.info.operation_key}
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
            if self.info.operation not in REWRITES:  # whose files have the columns of their plan's moment
                evolve = evolve or _as_it_is
            entry = Committing(self, content, evolve, rebase, writing_took).run()
        except BaseException as error:
            self._give_up(error)
            raise
        with suppress(OSError):  # archival deletes what is left
            delete_markers(self.storage, self.instant)
        return CommitResult(entry.instant, entry.completion_time, entry.action, entry.sequence, self.rebases)

    def _schema(self) -> TableSchema | None:
        """The table's schema; None where nobody has said it yet."""
        try:
            return self.table.schema_on(self.schema_timeline)
        except UnsupportedTableError:
            return None

    def abort(self, reason: str = "given up by its writer") -> None:
        """Give the write up: a rollback entry, then its files are deleted.

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
        # A rollback during a pause of this writer could not delete what it wrote since.
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
            # The error that led here is the one to tell; the heartbeat has stopped, so the
            # next writer rolls this instant back.
            log.warning("instant %s could not be rolled back now: %s", self.instant, failure)


def _as_it_is(schema: TableSchema) -> TableSchema:
    return schema
