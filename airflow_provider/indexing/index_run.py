"""One run of an indexing plan, step by step (RFC-45, "Run Indexing").

Every step can be repeated, also by two runs at once: the plan determines the names and places of base files,
and the last step is one entry in the commit log. If a run is killed, the next one continues where it stopped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from airflow_provider.concurrency import CommitLog
from airflow_provider.concurrency.commit import IndexChange, Indexes, Moment, change_indexes, publish_head
from airflow_provider.concurrency.heartbeats import (
    Heartbeat,
)
from airflow_provider.concurrency.indexes import (
    INDEX,
    BaseFiles,
    are_there,
    current_indexes,
    initial_base_files,
    settle_index_config,
    stage_base_files,
    staged_base_files,
    table_indexes,
)
from airflow_provider.concurrency.log import Plan, commit_of
from airflow_provider.exceptions import (
    HeartbeatExpiredError,
    NoSuchInstantError,
    SnapshotUnavailableError,
    TableServiceError,
    WriteConflictError,
)
from airflow_provider.indexing.base_files import Build, index_build, write_token_of
from airflow_provider.indexing.catch_up import IndexCatchUp
from airflow_provider.indexing.duplicates import check_one_place
from airflow_provider.locks import LockProvider
from airflow_provider.table.file_groups import FileSystemView
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata_table import (
    BASE_FILE,
    METADATA_FOLDER,
    MetadataPartition,
    MetadataTable,
    free_initial_instants,
    indexed_columns,
    is_initial,
    metadata_storage,
    read_index_definitions,
)
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import Action, Instant, State, Timeline, encode, instant_path

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class IndexResult:
    """The result of an indexing.

    :param instant: requested time of the plan.
    :param completion_time: when it completed.
    :param indexes: the indexes that it completed.
    :param file_groups: number of file groups of these indexes.
    :param records: number of records in their first base files.
    :param bytes_written: bytes of their base files.
    :param caught_up: requested times of the instants of other Hudi writers that the run logged to the
        indexes.
    :param already_completed: whether an earlier run completed it.
    """

    instant: str
    completion_time: str
    indexes: tuple[str, ...]
    file_groups: int
    records: int
    bytes_written: int
    caught_up: tuple[str, ...] = ()
    already_completed: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The result as a JSON-able dict."""
        return {
            "instant": self.instant,
            "completion_time": self.completion_time,
            "action": str(Action.INDEXING),
            "indexes": list(self.indexes),
            "file_groups": self.file_groups,
            "records": self.records,
            "bytes": self.bytes_written,
            "caught_up": list(self.caught_up),
            "already_completed": self.already_completed,
        }


def completed_indexing(table: HudiTable, instant: str) -> IndexResult | None:
    """The result of a completed indexing; None when it is not complete, or its indexes were dropped.

    :param table: the table.
    :param instant: requested time of the plan.
    """
    storage, commit_log = table.storage, CommitLog(table.storage)
    of_plan = _of_plan(current_indexes(storage, commit_log, publish_head(storage, commit_log)), instant)
    if not of_plan or not all(each.is_complete for each in of_plan):
        return None
    return _result(table, instant, of_plan, (), already_completed=True)


class IndexRun:
    """A run that has claimed a plan.

    :param table: the table.
    :param commit_log: its commit log.
    :param instant: requested time of the plan.
    :param lock: the table lock.
    :param heartbeat: heartbeat of this run.
    """

    def __init__(
        self, table: HudiTable, commit_log: CommitLog, instant: str, lock: LockProvider, heartbeat: Heartbeat
    ) -> None:
        self._table = table
        self._storage = table.storage
        self._log = commit_log
        self._instant = instant
        self._lock = lock
        self._heartbeat = heartbeat

    def carry_out(
        self,
        build: Build,
        around: Callable[[str], AbstractContextManager[None]],
        timeout_seconds: float,
        poll_seconds: float,
    ) -> IndexResult:
        try:
            with self._lock:
                indexes_of_plan(self._storage, self._log, self._instant)
                if (done := self._begin()) is not None:
                    return done
                settle_index_config(self._storage, self._partitions)
            self._build(build, around)
            self._heartbeat.tell("catching up")
            catch_up = IndexCatchUp(
                self._table, self._instant, self._lock, poll_seconds, self._heartbeat.tell
            )
            catch_up.run(timeout_seconds)
            self._heartbeat.check()
            return self._complete(tuple(catch_up.logged))
        except HeartbeatExpiredError:
            raise  # another run may have the plan by now
        except BaseException:
            give_up(self._table, self._instant, self._lock)
            raise

    @property
    def _partitions(self) -> list[str]:
        """The indexes that the plan makes, in any state."""
        return [each.partition for each in self._planned().indexes or () if each.instant == self._instant]

    def _begin(self) -> IndexResult | None:
        """Put the inflight instant. If another run has completed the plan, return its result."""
        requested, inflight = (
            instant_path(Instant(self._instant, Action.INDEXING, state))
            for state in (State.REQUESTED, State.INFLIGHT)
        )
        try:
            # The inflight file is a link to the plan: if the plan is dropped meanwhile, no file appears.
            self._storage.link_if_absent(requested, inflight)
        except FileNotFoundError:
            done = completed_indexing(self._table, self._instant)
            if done is None:
                raise no_indexing_plan(self._storage, self._instant) from None
            return done
        return None

    def _build(self, build: Build, around: Callable[[str], AbstractContextManager[None]]) -> None:
        """Write the base files, unless an earlier run has."""
        metadata_table, storage = metadata_storage(self._storage), self._storage
        done = [each for each in staged_base_files(storage, self._instant) if are_there(storage, each)]
        pending = (each for each in self._pending() if not each.is_complete)  # another run completed the rest
        left = [each for each in pending if each.partition not in {found.partition for found in done}]
        if not left:
            log.info("table %s: the base files of indexing %s are there", storage.root, self._instant)
            return
        self._remove_base_files_of_earlier_indexes([each.partition for each in left])
        names = free_initial_instants(metadata_table, {each.initial for each in done})
        written = {
            MetadataPartition(each.partition): BaseFiles(self._instant, each.partition, name)
            for each, name in zip(left, names, strict=False)
        }
        definition = read_index_definitions(storage).get(MetadataPartition.COLUMN_STATS)
        columns = definition.source_fields if definition else tuple(indexed_columns(self._table.schema))
        newest = publish_head(storage, self._log)
        planned = index_build(
            storage,
            FileSystemView(storage, self._table.timeline),
            self._instant,
            {MetadataPartition(each.partition): each.file_groups for each in left},
            {partition: each.initial for partition, each in written.items()},
            columns,
            newest.completion_time if newest else self._instant,
        )
        self._heartbeat.tell(f"building from {len(planned.files)} files")
        log.info("table %s: indexing %s reads %d files", storage.root, self._instant, len(planned.files))
        with around(self._instant):
            stats = build(planned)
        self._heartbeat.check()
        for partition, base_files in written.items():
            stage_base_files(
                storage, base_files, [stat for stat in stats if stat.partition_path == partition]
            )

    def _remove_base_files_of_earlier_indexes(self, partitions: Iterable[str]) -> None:
        """Delete base files that other runs, or compactions, wrote after their indexes were dropped.

        Base files of this plan stay: a run writes them again under the same names, and another run may have
        completed the plan with them. As long as this plan is not dropped, no later plan makes these indexes,
        and a compaction leaves them alone. So none of the listed files belongs to a later plan.
        """
        own = write_token_of(self._instant)
        found = _base_files(self._storage, partitions)
        left = [
            path
            for path, token, instant in found
            if (token != own if is_initial(instant) else instant < self._instant)
        ]
        self._pending()
        for path in left:
            self._storage.delete(path)

    def _check_one_place(self, of_plan: Indexes, timeline: Timeline, since: str) -> None:
        if not any(each.partition == MetadataPartition.RECORD_INDEX for each in of_plan):
            return
        try:
            check_one_place(self._storage, timeline, since=since)
        except FileNotFoundError:
            self._pending()  # raises if the index was dropped meanwhile
            raise

    def _complete(self, caught_up: tuple[str, ...]) -> IndexResult:
        # Most of the check is done before the lock is taken.
        newest = publish_head(self._storage, self._log)
        checked = newest.completion_time if newest else ""
        try:
            self._check_one_place(self._pending(), self._table.timeline(), "")
        except (FileNotFoundError, SnapshotUnavailableError, NoSuchInstantError):
            # A file was cleaned, or a commit undone, meanwhile. Then the whole check is done under the lock.
            checked = ""

        def decide(moment: Moment) -> IndexChange | None:
            indexes = moment.indexes
            of_plan = _of_plan(indexes, self._instant)
            if not of_plan:
                raise no_indexing_plan(self._storage, self._instant)
            if all(each.is_complete for each in of_plan):
                return None  # another run completed it
            self._check_one_place(of_plan, moment.timeline, checked)
            self._check_base_files(of_plan, moment.timeline)
            after = tuple(
                each._replace(is_complete=True) if each.instant == self._instant else each for each in indexes
            )
            upto = moment.timeline.commits()[-1:]
            return IndexChange(
                lambda _: after, _metadata(of_plan, upto[0].requested_time if upto else self._instant)
            )

        since = self._planned().completion_time
        change_indexes(
            self._storage, self._lock, decide, operation=INDEX, instant=self._instant, logged_since=since
        )
        publish_head(self._storage, self._log)
        result = _result(self._table, self._instant, self._pending(), caught_up)
        log.info(
            "table %s: indexing %s completed at %s: %s, %d records",
            *(self._storage.root, self._instant, result.completion_time, ", ".join(result.indexes)),
            result.records,
        )
        return result

    def _check_base_files(self, of_plan: Indexes, timeline: Timeline) -> None:
        """Make sure that other Hudi writers have done nothing that makes the new indexes wrong."""
        storage = self._storage
        staged = {each.partition: each for each in staged_base_files(storage, self._instant)}
        self._remove_base_files_of_earlier_indexes([each.partition for each in of_plan])
        table = MetadataTable(metadata_storage(storage))
        for index in of_plan:
            base_files = staged.get(index.partition)
            if base_files is None or not are_there(storage, base_files):
                raise WriteConflictError(
                    f"table {storage.root}: what indexing {self._instant} has built of {index.partition} "
                    "was taken away by another Hudi writer; run it again",
                    instant=self._instant,
                )
            slices = (each.base_file for each in table.file_slices(index.partition))
            if compacted := [each.instant for each in slices if each and not is_initial(each.instant)]:
                raise WriteConflictError(
                    f"table {storage.root}: another Hudi writer has compacted {index.partition} by "
                    f"{compacted[0]}, while indexing {self._instant} built it; drop it, and build it again",
                    instant=self._instant,
                )
        since = self._planned().completion_time
        restores = (i for i in timeline.completed() if i.action is Action.RESTORE)
        for restore in restores:
            if (restore.completion_time or "") > since and not any(self._log.about(restore.requested_time)):
                raise WriteConflictError(
                    f"table {storage.root}: another Hudi writer has restored the table by "
                    f"{restore.requested_time} while indexing {self._instant} was under way; drop its "
                    "indexes, and build them again",
                    instant=self._instant,
                )

    def _pending(self) -> Indexes:
        return indexes_of_plan(self._storage, self._log, self._instant)

    def _planned(self) -> Plan:
        for entry in self._log.about(self._instant):
            if isinstance(entry, Plan):
                return entry
        raise no_indexing_plan(self._storage, self._instant)


def give_up(table: HudiTable, instant: str, lock: LockProvider) -> None:
    """Return a plan to the state requested, so that any process can run it again."""
    storage, commit_log = table.storage, CommitLog(table.storage)
    try:
        with lock:
            there = table_indexes(storage, commit_log, publish_head(storage, commit_log))
            of_plan = _of_plan(there.kept, instant)
            if not of_plan:
                own = write_token_of(instant)
                for path, token, initial in _base_files(storage, MetadataPartition):
                    if token == own and is_initial(initial):  # this run wrote the file after the drop
                        storage.delete(path)
                for base_files in staged_base_files(storage, instant):
                    storage.delete(base_files.path)
            elif not all(each.is_complete for each in of_plan):
                storage.delete(instant_path(Instant(instant, Action.INDEXING, State.INFLIGHT)))
                settle_index_config(storage, [each.partition for each in of_plan])
    except (TableServiceError, OSError) as error:
        # The caller raises the error that led here. Leftovers do no harm to the next run.
        log.warning("indexing %s is left in flight: %s", instant, error)


def _of_plan(indexes: Iterable[Any], instant: str) -> Indexes:
    return tuple(each for each in indexes if each.instant == instant)


def indexes_of_plan(storage: Storage, commit_log: CommitLog, instant: str) -> Indexes:
    """The indexes that a plan makes.

    :raises NoSuchInstantError: when the plan makes none any more.
    """
    indexes = current_indexes(storage, commit_log, publish_head(storage, commit_log))
    if of_plan := _of_plan(indexes, instant):
        return of_plan
    raise no_indexing_plan(storage, instant)


def no_indexing_plan(storage: Storage, instant: str) -> NoSuchInstantError:
    """The error for a plan that does not exist.

    :param storage: the table's storage.
    :param instant: the plan's requested time.
    """
    return NoSuchInstantError(
        f"table {storage.root}: there is no indexing plan {instant}: its indexes were dropped, or it never "
        "was; schedule one",
        instant=instant,
    )


def _metadata(indexes: Indexes, upto: str) -> bytes:
    infos = [
        {"version": 1, "metadataPartitionPath": each.partition, "indexUptoInstant": upto, "extraMetadata": {}}
        for each in indexes
    ]
    record = {"version": 1, "operationType": INDEX, "indexPartitionInfos": infos}
    return encode("HoodieIndexCommitMetadata", record)


def _result(
    table: HudiTable,
    instant: str,
    indexes: Indexes,
    caught_up: tuple[str, ...],
    *,
    already_completed: bool = False,
) -> IndexResult:
    stats, completed = (
        initial_base_files(table.storage, instant),
        commit_of(CommitLog(table.storage), instant),
    )
    return IndexResult(
        instant,
        completed.completion_time if completed else "",  # the entry may be trimmed
        tuple(each.partition for each in indexes),
        sum(each.file_groups for each in indexes),
        sum(stat.num_writes for stat in stats),
        sum(stat.total_write_bytes for stat in stats),
        caught_up,
        already_completed,
    )


def _base_files(storage: Storage, partitions: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Paths, write tokens and instants of base files, including those of dropped indexes."""
    for partition in partitions:
        for name in storage.names(f"{METADATA_FOLDER}/{partition}"):
            if match := BASE_FILE.match(name):
                yield f"{METADATA_FOLDER}/{partition}/{name}", match["token"], match["instant"]
