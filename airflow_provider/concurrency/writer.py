"""A writer: begins, plans, writes, commits, publishes (design section 4).

::

    with begin_write(table, operation="UPSERT") as writer:
        writer.plan(file_groups, partitions)      # before the first data file
        stats = ...                               # data files under their final names
        result = writer.commit(stats)

Leaving the block without a commit rolls the instant back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from airflow_provider.concurrency.commit_log import CommitLog, LogEntry
from airflow_provider.concurrency.conflicts import PRIORITIES, first_conflict
from airflow_provider.concurrency.failed_writes import (
    PendingInstant,
    pending_instants,
    rollback,
    rollback_dead_writers,
)
from airflow_provider.concurrency.heartbeat import Heartbeat, HeartbeatInfo
from airflow_provider.concurrency.instant_time import completion_time_after, request_instant
from airflow_provider.concurrency.publish import ensure_published, publish, publish_head, staged_metadata_path
from airflow_provider.exceptions import (
    CommitError,
    InstantRolledBackError,
    InvalidInputError,
    NoSuchInstantError,
    TableServiceError,
    WriteConflictError,
)
from airflow_provider.locks import LockProvider, open_lock
from airflow_provider.locks.owner import describe_owner
from airflow_provider.table.base_file import parse_base_file_name
from airflow_provider.table.file_groups import FileGroupId, FileSystemView
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.instant import Action, Instant, State
from airflow_provider.table.metadata import CommitMetadata, WriteStat, encode, encode_commit_metadata
from airflow_provider.table.storage import FileStatus
from airflow_provider.table.timeline import Timeline, instant_path

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CommitResult:
    """A commit that is visible.

    :param instant: requested time.
    :param completion_time: when it completed; orders commits.
    :param action: action on the timeline.
    :param sequence: its place in the commit log.
    """

    instant: str
    completion_time: str
    action: Action
    sequence: int


def begin_write(
    table: HudiTable,
    *,
    operation: str,
    action: Action = Action.COMMIT,
    priority: int = PRIORITIES["ingestion"],
    lock: LockProvider | None = None,
    heartbeat_interval: float = 10.0,
    tolerable_misses: int = 6,
    operation_key: str | None = None,
    is_alive: Callable[[], bool] | None = None,
) -> Writer:
    """Begin a write: finish what others left, take an instant, start the heartbeat.

    :param table: the table.
    :param operation: Hudi's operation type, for example ``UPSERT``.
    :param action: the action on the timeline.
    :param priority: who yields to whom; see :data:`~airflow_provider.concurrency.PRIORITIES`.
    :param lock: the table lock for the commit; the filesystem lock in the table by default.
    :param heartbeat_interval: seconds between two beats.
    :param tolerable_misses: missed beats after which others roll this writer back.
    :param operation_key: under which :func:`find_operation` finds this write again.
    :param is_alive: asked before every beat; False gives the heartbeat up.
    :return: a :class:`Writer` whose instant is on the timeline as requested.
    :raises InvalidInputError: when the heartbeat's numbers are not above zero.
    :raises UnsupportedTableError: when this package does not write such a table.
    """
    if heartbeat_interval <= 0 or tolerable_misses < 1:
        raise InvalidInputError(
            f"heartbeat_interval must be above 0 seconds and tolerable_misses at least 1, "
            f"not {heartbeat_interval!r} and {tolerable_misses!r}"
        )
    table.check_writable()
    storage = table.storage
    commit_log = CommitLog(storage)
    rollback_dead_writers(table)
    base = publish_head(storage, commit_log)
    timeline = Timeline.load(storage)
    base_sequence = base.sequence if base else 0
    later = frozenset(entry.instant for entry in commit_log.after(base_sequence))
    seen = Timeline(storage, (i for i in timeline.instants if i.requested_time not in later))
    info = HeartbeatInfo(
        describe_owner(), action, operation, priority, heartbeat_interval, tolerable_misses, operation_key
    )
    times = (time for i in timeline.instants for time in (i.requested_time, i.completion_time or ""))
    instant, _ = request_instant(storage, commit_log, base, info, later_than=max(times, default=""))
    heartbeat = Heartbeat(storage, instant, info, is_alive)
    lock = lock or open_lock({}, storage)
    writer = Writer(
        table, instant, action, info, base_sequence, FileSystemView(storage, seen), heartbeat, lock
    )
    try:
        storage.put_if_absent(
            instant_path(Instant(instant, action, State.REQUESTED)), _requested_content(action)
        )
    except BaseException:
        writer.abort("could not write the requested instant")
        raise
    return writer


class Writer:
    """One write under way; made by :func:`begin_write`.

    :ivar instant: requested time; the name of every data file of this write carries it.
    :ivar view: the snapshot that this write is based on; all planning is done on it.
    """

    def __init__(
        self,
        table: HudiTable,
        instant: str,
        action: Action,
        info: HeartbeatInfo,
        base_sequence: int,
        view: FileSystemView,
        heartbeat: Heartbeat,
        lock: LockProvider,
    ) -> None:
        self.table = table
        self.instant = instant
        self.action = action
        self.view = view
        self._info = info
        self._storage = table.storage
        self._log = CommitLog(table.storage)
        self._base_sequence = base_sequence
        self._heartbeat = heartbeat
        self._lock = lock
        self._planned: frozenset[str] = frozenset()
        self._ended = False

    def plan(self, file_groups: Iterable[FileGroupId], partitions: Iterable[str] = ()) -> None:
        """Say what this write will touch, before the first data file is written.

        The plan is the inflight instant, shaped as Hudi's workload profile: one write stat a
        file group, and one with an empty file id for a partition that gets new ones. A
        rollback finds this writer's files by it.

        :param file_groups: existing file groups that get a new slice.
        :param partitions: partitions that get new file groups.
        :raises HeartbeatExpiredError: when this writer counts as dead.
        :raises InvalidInputError: when the write was planned before.
        """
        self._heartbeat.check()
        groups = set(file_groups)
        stats = [WriteStat(file_id, partition, path="") for partition, file_id in sorted(groups)]
        new_in = sorted(set(partitions) - {group.partition_path for group in groups})
        stats += [WriteStat("", partition, path="") for partition in new_in]
        metadata = CommitMetadata(
            operation_type=self._info.operation,
            write_stats=tuple(stats),
            replaced={},
            extra_metadata={"priority": str(self._info.priority)},
        )
        path = instant_path(Instant(self.instant, self.action, State.INFLIGHT))
        if not self._storage.put_if_absent(path, encode_commit_metadata(metadata, Action.COMMIT)):
            raise InvalidInputError(f"instant {self.instant} is planned already", instant=self.instant)
        self._planned = frozenset(stat.partition_path for stat in stats)

    def commit(
        self,
        write_stats: Sequence[WriteStat],
        *,
        replaced: Mapping[str, Sequence[str]] | None = None,
        extra_metadata: Mapping[str, str] | None = None,
        txn_id: int | None = None,
        write_id: int | None = None,
    ) -> CommitResult:
        """Commit: everything written becomes visible in one step, or the write is rolled back.

        :param write_stats: one per data file written.
        :param replaced: file ids that this write takes out, by partition path.
        :param extra_metadata: goes into the commit metadata.
        :param txn_id: the metastore transaction that this commit belongs to.
        :param write_id: the table's write id in that transaction.
        :raises WriteConflictError: when a commit completed since this write's base that
            touched one of its file groups.
        :raises InstantRolledBackError: when somebody rolled this instant back.
        :raises HeartbeatExpiredError: when this writer counts as dead.
        :raises LockTimeoutError: when the table lock could not be had in time.
        :raises CommitError: when a data file that was reported is not there.
        """
        replaced = replaced or {}
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
        metadata = CommitMetadata(
            operation_type=self._info.operation,
            write_stats=tuple(write_stats),
            replaced={partition: tuple(ids) for partition, ids in replaced.items() if ids},
            extra_metadata=extra,
        )
        try:
            self._reconcile(write_stats)
            # Staged before the lock is taken: what happens under the lock is what others wait for.
            self._storage.put(
                staged_metadata_path(self.instant),
                encode_commit_metadata(metadata, self.action.when_completed),
            )
            with self._lock:
                entry = self._put_entry(metadata)
                self._publish(entry)
        except BaseException as error:
            if not self._ended:
                self._give_up(error)
            raise
        self._heartbeat.stop()
        return CommitResult(entry.instant, entry.completion_time, entry.action, entry.sequence)

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
        for status in self._own_files(self._planned):
            self._storage.delete(status.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._give_up(error)
        else:
            self.abort("its writer left without a commit")

    def _put_entry(self, metadata: CommitMetadata) -> LogEntry:
        touched, written, replaced = _file_groups(metadata)
        newest = self._log.read(self._base_sequence) if self._base_sequence else None
        while True:
            self._heartbeat.check()
            since = list(self._log.after(newest.sequence if newest else 0))
            self._check_against(since, touched)
            newest = since[-1] if since else newest
            if newest is not None:
                ensure_published(self._storage, newest)
            sequence = (newest.sequence if newest else 0) + 1
            entry = LogEntry(
                instant=self.instant,
                action=self.action.when_completed,
                completion_time=completion_time_after(newest, self.instant),
                operation=self._info.operation,
                priority=self._info.priority,
                written=written,
                replaced=replaced,
                metadata_path=staged_metadata_path(self.instant),
                operation_key=self._info.operation_key,
                owner=self._info.owner,
                sequence=sequence,
            )
            if self._append(sequence, entry):
                self._ended = True
                return entry

    def _append(self, sequence: int, entry: LogEntry) -> bool:
        try:
            return self._log.append(sequence, entry)
        except OSError:
            # The answer was lost, not necessarily the put: the log says which.
            found = self._log.read(sequence)
            if found is None or found.instant != self.instant:
                raise
            return True

    def _publish(self, entry: LogEntry) -> None:
        try:
            publish(self._storage, entry)
        except OSError as error:
            # The entry is the commit; the next writer publishes what could not be published.
            log.warning("instant %s is committed but not published yet: %s", self.instant, error)

    def _check_against(self, entries: Sequence[LogEntry], touched: frozenset[FileGroupId]) -> None:
        for entry in entries:
            if entry.rolls_back == self.instant:
                raise InstantRolledBackError(
                    f"table {self._storage.root}: instant {self.instant} was rolled back at "
                    f"{entry.completion_time} by {entry.owner}; run the write again",
                    instant=self.instant,
                )
        if conflict := first_conflict(touched, entries):
            raise WriteConflictError(
                f"table {self._storage.root}: {self._info.operation} {self.instant} lost a write conflict: "
                f"{conflict}; run the write again on the new snapshot",
                instant=self.instant,
                conflicting_instant=conflict.entry.instant,
                file_groups=[list(group) for group in sorted(conflict.file_groups)],
            )

    def _reconcile(self, write_stats: Sequence[WriteStat]) -> None:
        # Two files with one file id and instant break readers, so what a failed task attempt
        # left must be gone before the commit (Hudi's marker reconciliation).
        reported = {stat.path for stat in write_stats}
        present = {s.path for s in self._own_files(self._planned | {s.partition_path for s in write_stats})}
        for path in sorted(present - reported):
            self._storage.delete(path)
        if missing := sorted(reported - present):
            raise CommitError(
                f"table {self._storage.root}: data file {missing[0]} of instant {self.instant} was reported "
                "as written but is not there; run the write again",
                instant=self.instant,
                missing=missing,
            )

    def _own_files(self, partitions: Iterable[str]) -> Iterator[FileStatus]:
        for partition in sorted(partitions):
            for status in self._storage.list(partition):
                if (parsed := parse_base_file_name(status.name)) and parsed[2] == self.instant:
                    yield status

    def _give_up(self, error: BaseException) -> None:
        try:
            self.abort(f"{type(error).__name__}: {error}")
        except (TableServiceError, OSError) as failure:
            # The error that led here is the one to tell; the heartbeat has stopped, so the
            # next writer rolls this instant back.
            log.warning("instant %s could not be rolled back now: %s", self.instant, failure)


def find_operation(
    table: HudiTable, operation_key: str, *, since: str | None = None
) -> CommitResult | PendingInstant | None:
    """What became of an earlier attempt of the same operation.

    :param table: the table.
    :param operation_key: as given to :func:`begin_write`.
    :param since: an instant time at or before the first attempt, so that only the log's end
        has to be read; the whole log is read when None.
    :return: the commit when it completed; the pending instant when it has not ended; None
        when there was none, or it was rolled back.
    """
    storage = table.storage
    commit_log = CommitLog(storage)
    pending = [instant for instant in pending_instants(table) if instant.operation_key == operation_key]
    publish_head(storage, commit_log)
    for entry in commit_log.backwards():
        if since is not None and entry.completion_time < since:
            break
        if entry.operation_key == operation_key:
            return CommitResult(entry.instant, entry.completion_time, entry.action, entry.sequence)
    return pending[-1] if pending else None


def _file_groups(
    metadata: CommitMetadata,
) -> tuple[frozenset[FileGroupId], frozenset[FileGroupId], frozenset[FileGroupId]]:
    written = frozenset(FileGroupId(stat.partition_path, stat.file_id) for stat in metadata.write_stats)
    replaced = frozenset(
        FileGroupId(part, file_id) for part, ids in metadata.replaced.items() for file_id in ids
    )
    return written | replaced, written, replaced


def _requested_content(action: Action) -> bytes:
    if action is Action.REPLACE_COMMIT:
        return encode("HoodieRequestedReplaceMetadata", {})
    return b""
