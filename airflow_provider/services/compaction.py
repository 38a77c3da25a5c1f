"""Compaction of the metadata table: it merges log files into new base files.

Every commit adds log files to the metadata table, so a look-up reads more files after each commit. A
compaction is planned under the table lock, as an entry of the commit log. All earlier commits complete before
its requested time, and all later ones after it. So the entry settles which log files go into the base files,
whichever process writes these, and whenever. One process or several can execute the plan, also again after a
crash, outside the lock and while others commit. The plan is on the metadata table's own timeline, with all
that the execution needs.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import tenacity

from airflow_provider.concurrency import PRIORITIES, CommitLog, ServicePlan, schedule
from airflow_provider.concurrency.commit import publish_head
from airflow_provider.concurrency.indexes import current_indexes
from airflow_provider.concurrency.plans import MAX_FAILURES, Service, log_head, stopping_itself
from airflow_provider.exceptions import (
    CorruptTableError,
    LockLostError,
    NoSuchInstantError,
    SnapshotUnavailableError,
    TableServiceError,
)
from airflow_provider.locks import LockProvider, default_lock
from airflow_provider.services.archival import archived_content
from airflow_provider.services.cleaning import (
    archive_metadata_timeline,
    delete_leftovers,
    delete_superseded,
)
from airflow_provider.services.compaction_plan import (
    CompactionOperation,
    CompactionPlan,
    CompactionSettings,
    delta_commits_since,
    has_pending,
    plan_compaction,
)
from airflow_provider.table.file_groups import FileGroupId, FileSystemView
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata_table import (
    COMPACT,
    METADATA_FOLDER,
    MetadataPartition,
    MetadataTable,
    compacted,
    is_initial,
    metadata_storage,
    write_instant,
    written_base_file,
)
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import (
    Action,
    CommitMetadata,
    Instant,
    State,
    Timeline,
    WriteStat,
    after,
    find_archived,
    instant_path,
    newest_archived,
)

log = logging.getLogger(__name__)

_PATIENCE = 50  # deltacommits; without it, a load could rewrite a large index for a few records


@dataclass(frozen=True)
class CompactionResult:
    """The result of a compaction.

    :param instant: requested time.
    :param completion_time: when it completed.
    :param partitions: partitions of the metadata table in which file groups were compacted.
    :param file_groups: number of file groups with a new base file.
    :param records: number of records in the new base files.
    :param bytes_written: bytes of the new base files.
    """

    instant: str
    completion_time: str
    partitions: tuple[str, ...]
    file_groups: int
    records: int
    bytes_written: int

    @classmethod
    def of(cls, instant: Instant, metadata: CommitMetadata) -> CompactionResult:
        """The result of a completed compaction, from its metadata."""
        stats = metadata.write_stats
        return cls(
            instant.requested_time,
            instant.completion_time or "",
            tuple(sorted({stat.partition_path for stat in stats})),
            len(stats),
            sum(stat.num_writes for stat in stats),
            sum(stat.file_size for stat in stats),
        )

    @classmethod
    def of_table(cls, table: HudiTable, instant: str) -> CompactionResult | None:
        """The result of a completed compaction, or log compaction, of a merge-on-read table.

        :param table: the table.
        :param instant: requested time of the compaction.
        :return: None while it is pending, and where there is none.
        """
        found = table.find_commit(instant)
        return found and cls.of(*found)

    def to_dict(self) -> dict[str, Any]:
        """The result as a JSON-able dict."""
        return {
            "instant": self.instant,
            "completion_time": self.completion_time,
            "partitions": list(self.partitions),
            "file_groups": self.file_groups,
            "records": self.records,
            "bytes_written": self.bytes_written,
        }


# --- scheduling -----------------------------------------------------------------------------


# Another process may compact and clean a file during the listing; then the plan is made again.
@tenacity.retry(
    retry=tenacity.retry_if_exception_type(SnapshotUnavailableError),
    stop=tenacity.stop_after_attempt(10),
    reraise=True,
)
def preview_compaction(table: HudiTable, settings: CompactionSettings | None = None) -> CompactionPlan | None:
    """The plan that :func:`schedule_compaction` would make now; nothing is written.

    :param table: the table.
    :param settings: see :func:`schedule_compaction`.
    :return: None when nothing is due.
    :raises UnsupportedTableError: when this package does not write such a table.
    """
    table.check_writable()
    config = HudiTable.at(table.storage).config
    settings = settings or CompactionSettings.of(config)
    metadata_table = MetadataTable(metadata_storage(table.storage))
    timeline = metadata_table.timeline
    if has_pending(timeline) or delta_commits_since(timeline) < settings.max_delta_commits:
        return None
    # An index that is being built is left alone (RFC-45, error case 4).
    partitions = config.metadata_partitions
    slices = (each for partition in partitions for each in metadata_table.file_slices(partition))
    return plan_compaction(slices, timeline, settings)


def due_compactions(table: HudiTable, settings: CompactionSettings | None = None) -> dict[str, Any]:
    """The work that :func:`compact` would do now; nothing is written.

    :param table: the table.
    :param settings: see :func:`schedule_compaction`.
    :return: JSON-able: ``pending`` (requested times of compactions that were begun), and ``due``: how much
        another one would compact, or None.
    """
    plan = preview_compaction(table, settings)
    return {"pending": pending_compactions(table), "due": plan and plan.to_dict()}


def schedule_compaction(
    table: HudiTable, settings: CompactionSettings | None = None, *, lock: LockProvider | None = None
) -> str | None:
    """Plan a compaction of the metadata table, as an instant that :func:`run_compaction` executes.

    :param table: the table.
    :param settings: when a compaction is due, and of which file groups; by the table's properties when None.
    :param lock: the table lock; the filesystem lock in the table by default.
    :return: requested time of the plan; None when nothing is due, or one is pending.
    :raises InvalidInputError: when the table's properties contain a number that is out of range.
    :raises LockTimeoutError: when the table lock is not acquired in time.
    :raises UnsupportedTableError: when this package does not write such a table.
    """

    def planner(view: FileSystemView, left_alone: frozenset[FileGroupId]) -> ServicePlan | None:
        plan = preview_compaction(table, settings)
        return ServicePlan(plan.file_groups(METADATA_FOLDER), plan.to_avro()) if plan else None

    return schedule(
        table,
        planner,
        action=Action.COMPACTION,
        operation=COMPACT,
        priority=PRIORITIES["table_service"],
        lock=lock,
        on_metadata_table=True,
    )


def pending_compactions(table: HudiTable) -> list[str]:
    """Requested times of our compactions of the metadata table that have not completed, oldest first.

    :param table: the table.
    """
    storage = metadata_storage(table.storage)
    pending = [i for i in Timeline.load(storage).pending() if i.action is Action.COMPACTION]
    if not pending:
        return []
    archived = newest_archived(storage)  # a late writer has put a pending plan that is older than this
    found = (i.requested_time for i in pending if i.requested_time > archived)
    return [instant for instant in found if _pending_plan(storage, instant) is not None]


# --- execution ------------------------------------------------------------------------------


def run_compaction(table: HudiTable, instant: str, *, lock: LockProvider | None = None) -> CompactionResult:
    """Execute a planned compaction, or finish one that another process began. A second execution is harmless.

    Writers of this package need no lock: the plan determines the files, and the requested time determines the
    completion time. A JVM also executes plans that it finds, under the table lock, and completes them at
    another time. So the compaction holds the lock if the JVM shares it.

    :param table: the table.
    :param instant: requested time of the plan.
    :param lock: the table lock; by the table's options when None.
    :raises LockTimeoutError: when a lock that other engines share is not acquired in time.
    :raises LockLostError: when such a lock is lost before the end; run the compaction again.
    :raises NoSuchInstantError: when this package has made no such plan.
    :raises CorruptTableError: when files of the plan are gone although no process has completed it.
    :raises UnsupportedTableError: when this package does not write such a table.
    """
    table.check_writable()
    lock = lock or default_lock(table)
    with lock if lock.excludes_hudi and not lock.is_held() else nullcontext():
        return _carry_out(table, instant, lock)


def _carry_out(table: HudiTable, instant: str, lock: LockProvider) -> CompactionResult:
    publish_head(table.storage, CommitLog(table.storage))
    storage = metadata_storage(table.storage)
    if done := _result(storage, instant):
        return done
    plan = _pending_plan(storage, instant)
    if plan is None:
        if done := _result(storage, instant):  # another process has just completed it
            return done
        raise NoSuchInstantError(
            f"table {table.location}: there is no compaction plan {instant} on the timeline of its metadata "
            "table; schedule one first",
            instant=instant,
        )
    metadata_table = MetadataTable(storage)
    complete = HudiTable.at(table.storage).config.metadata_partitions
    stats = []
    for operation in plan.operations:
        if operation.partition not in complete:
            continue  # the index was dropped since the plan
        try:
            stat = _compact(storage, metadata_table, operation, instant)
        except (FileNotFoundError, SnapshotUnavailableError, _SliceChangedError) as error:
            if done := _result(storage, instant):
                return done  # another process completed it, and a clean deleted the files
            if not _is_dropped(table, operation, instant):
                raise CorruptTableError(
                    f"table {table.location}: compaction {instant} of the metadata table needs files of "
                    f"{operation.partition}/{operation.file_id} that are gone: {error}; drop the index and "
                    "build it again",
                    path=operation.partition,
                ) from error
            continue
        stats.append(stat)
    stats = _without_dropped(table, stats, instant)
    if lock.excludes_hudi:
        if done := _result(storage, instant):  # by another engine, while this process had lost the lock
            return done
        if not lock.is_held():
            raise LockLostError(
                f"table {table.location}: compaction {instant} of its metadata table has lost the lock "
                "before its end, and another engine may carry it out; run it again"
            )
        delete_leftovers(storage, instant, stats)
    # The completion time is one millisecond after the requested time. It precedes all commits after the plan,
    # and every executor computes the same one.
    if storage.stat(_requested_path(instant)) is not None:
        plan_content = plan.to_avro()
        write_instant(storage, Action.COMPACTION, instant, after(instant), COMPACT, stats, plan=plan_content)
    result = _result(storage, instant)
    if result is None:
        raise NoSuchInstantError(
            f"table {table.location}: compaction {instant} of its metadata table is gone; the metadata table "
            "was dropped meanwhile",
            instant=instant,
        )
    log.info("table %s: compaction %s of %d file groups", table.location, instant, result.file_groups)
    return result


def compact(
    table: HudiTable,
    settings: CompactionSettings | None = None,
    *,
    lock: LockProvider | None = None,
    max_failures: int | None = MAX_FAILURES,
) -> list[CompactionResult]:
    """Keep the metadata table small: finish pending compactions, then plan and run one if it is due.

    Afterwards file slices that no reader can need any more are deleted, and the metadata table's own
    timeline is archived.

    :param table: the table.
    :param settings: see :func:`schedule_compaction`.
    :param lock: the table lock, see :func:`run_compaction`; by the table's options when None.
    :param max_failures: failures in a row after which the table's compaction is stopped; None never stops it.
    :return: one result for each compaction, the new one last; empty when nothing was due.
    :raises ServiceStoppedError: when compaction failed too often on this table.
    :raises LockTimeoutError: when the table lock is not acquired in time.
    :raises LockLostError: see :func:`run_compaction`.
    :raises UnsupportedTableError: when this package does not write such a table.
    """
    table.check_writable()
    with stopping_itself(table, Service.COMPACTION, lambda: _input(table), max_failures):
        results = [run_compaction(table, instant, lock=lock) for instant in pending_compactions(table)]
        if preview_compaction(table, settings) and (
            instant := schedule_compaction(table, settings, lock=lock)
        ):
            results.append(run_compaction(table, instant, lock=lock))
        made_by = _made_by(table)
        try:
            delete_superseded(table)
            archive_metadata_timeline(table)
        except FileNotFoundError:
            if _made_by(table) == made_by:
                raise
            log.info("table %s: the metadata table was dropped meanwhile", table.location)
    return results


def _made_by(table: HudiTable) -> str | None:
    """Requested time of the indexing that made the metadata table; None when there is none."""
    commit_log = CommitLog(table.storage)
    indexes = current_indexes(table.storage, commit_log, commit_log.newest())
    return next((each.instant for each in indexes if each.partition == MetadataPartition.FILES), None)


def _input(table: HudiTable) -> str:
    """The input of the next compaction, for counting failures in a row."""
    pending = pending_compactions(table)
    return f"compaction {pending[0]}" if pending else log_head(table)


def compact_when_due(
    table: HudiTable, sequence: int, *, every: int = 10, lock: LockProvider | None = None
) -> None:
    """Compact the metadata table after a commit, if it is due. Two commits in ``every`` check this.

    A failure is only logged, because the commit is done.

    :param table: the table.
    :param sequence: the commit's position in the commit log.
    :param every: entries of the log between two checks.
    :param lock: see :func:`compact`.
    """
    # Two positions in a row: if commits and plans alternate, the checks do not always fall on plans.
    if sequence % every > 1:
        return
    try:
        # This costs two reads of small files and a listing; a plan lists every partition.
        timeline = Timeline.load(metadata_storage(table.storage))
        if timeline.instants and (_is_due(table, timeline) or has_pending(timeline)):
            settings = replace(CompactionSettings.of(table.config), patience=_PATIENCE)
            compact(table, settings, lock=lock)
    except (TableServiceError, OSError) as error:
        log.warning("the metadata table of %s could not be compacted now: %s", table.location, error)


class _SliceChangedError(Exception):
    """Raised when a file slice has other files than those in the plan."""


def _compact(
    storage: Storage, metadata_table: MetadataTable, operation: CompactionOperation, instant: str
) -> WriteStat:
    partition, file_id = operation.partition, operation.file_id
    # A base file that exists is complete, so a second executor continues with the next file group.
    if (done := written_base_file(storage, partition, file_id, instant)) is not None:
        return done
    slices = {each.file_id: each for each in metadata_table.file_slices(partition)}
    found = slices.get(file_id)
    if found is None or not operation.is_of(found, instant):
        raise _SliceChangedError(f"the plan names {operation.base_file} and {', '.join(operation.log_files)}")
    return compacted(storage, metadata_table, found, instant)


def _is_dropped(table: HudiTable, operation: CompactionOperation, instant: str) -> bool:
    """Whether the index of an operation was dropped after the plan, and perhaps built again."""
    config = HudiTable.at(table.storage).config
    if operation.partition not in config.metadata_partitions:
        return True
    own = MetadataTable(metadata_storage(table.storage))
    bases = [each.base_file for each in own.file_slices(operation.partition)]
    return all(base is not None and own.complete_up_to(base.instant) > instant for base in bases)


def _without_dropped(table: HudiTable, stats: Sequence[WriteStat], instant: str) -> list[WriteStat]:
    """Delete the base files of indexes that were dropped during the compaction.

    Either the drop has found and deleted such a file, or this check finds the drop.

    :return: the statistics of the other base files.
    """
    config, storage = HudiTable.at(table.storage).config, metadata_storage(table.storage)
    own = MetadataTable(storage)

    def is_dropped(partition: str) -> bool:
        bases = (base.instant for group in own.file_groups(partition) for base in group.base_files)
        first = (each for each in bases if is_initial(each))
        return partition not in config.metadata_partitions or any(
            own.complete_up_to(each) > instant for each in first
        )

    dropped = {each for each in {stat.partition_path for stat in stats} if is_dropped(each)}
    for stat in stats:
        if stat.partition_path in dropped:
            storage.delete(stat.path)
    return [each for each in stats if each.partition_path not in dropped]


def _is_due(table: HudiTable, timeline: Timeline) -> bool:
    config = HudiTable.at(table.storage).config
    settings = CompactionSettings.of(config)
    return bool(config.metadata_partitions) and delta_commits_since(timeline) >= settings.max_delta_commits


def _pending_plan(storage: Storage, instant: str) -> CompactionPlan | None:
    try:
        return CompactionPlan.from_avro(storage.read(_requested_path(instant)))
    except FileNotFoundError:
        return None


def _requested_path(instant: str) -> str:
    return instant_path(Instant(instant, Action.COMPACTION, State.REQUESTED))


def _result(storage: Storage, instant: str) -> CompactionResult | None:
    """The result of a completed compaction; None while it is pending, or where there is none."""
    found = Timeline.load(storage).find(instant)
    is_completed = found is not None and found.state is State.COMPLETED
    content = archived_content(storage, found) if is_completed and found else find_archived(storage, instant)
    if content is not None:
        return CompactionResult.of(content.instant, content.commit_metadata)
    return _result(storage, instant) if is_completed else None  # it was just archived
