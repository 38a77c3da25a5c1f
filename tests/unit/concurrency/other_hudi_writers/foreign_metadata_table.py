"""The metadata table as a foreign writer, such as the JVM's Hudi, maintains it: without the commit log."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from airflow_provider.table.file_groups.view import BaseFile
from airflow_provider.table.files.data_file_name import parse_data_file_name
from airflow_provider.table.files.log_file import LogFileName
from airflow_provider.table.metadata_table.index_records.changes import FileChanges, records_of
from airflow_provider.table.metadata_table.partitions import MetadataPartition
from airflow_provider.table.metadata_table.reader import MetadataTable, metadata_storage
from airflow_provider.table.metadata_table.writer import UPSERT, log_changes, write_instant
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.active import Timeline, instant_path
from airflow_provider.table.timeline.instant import Action, Instant, State
from airflow_provider.table.timeline.metadata import WriteStat, encode

FILES = MetadataPartition.FILES


class ForeignMetadataTable:
    """Does the work of ``HoodieBackedTableMetadataWriter`` on a table with the partition ``files``.

    The writer does everything under the lock. It assumes that no live writer has a pending instant there, and
    first rolls any pending instant back.

    :param storage: the table's storage.
    :param time: returns a moment that no other instant has.
    """

    def __init__(self, storage: Storage, time: Callable[[], str]) -> None:
        self._table, self._storage, self._time = storage, metadata_storage(storage), time

    def commit(self, instant: str, stats: Iterable[WriteStat]) -> None:
        """Log the files of a commit, before its completed instant is put."""
        added = [
            BaseFile(stat.partition_path, *parsed[:3], stat.path, stat.file_size)
            for stat in stats
            if (parsed := parse_data_file_name(stat.path.rpartition("/")[2])) is not None
        ]
        self._log(instant, FileChanges(added=tuple(added)))

    def roll_back(self, dead: str, instant: str, removed: Iterable[str]) -> None:
        """Undo the records of a dead write, completed or not; its files are deleted."""
        for each in self._timeline().instants:
            if each.requested_time == dead:
                self._take_back(each)
        self._log(instant, FileChanges(removed=tuple(removed)))

    def _log(self, instant: str, change: FileChanges) -> None:
        if not self._storage.names(FILES):
            return
        for each in self._timeline().pending():
            self._take_back(each)
        pending = {each.requested_time for each in Timeline.load(self._table).pending()} - {instant}
        records = records_of(self._table, change, [FILES])
        stats = log_changes(self._storage, MetadataTable(self._storage, pending), instant, records)
        write_instant(self._storage, Action.DELTA_COMMIT, instant, self._time(), UPSERT, stats)

    def _take_back(self, dead: Instant) -> None:
        rollback = self._time()
        plan = {
            "instantToRollback": {"commitTime": dead.requested_time, "action": str(dead.action)},
            "RollbackRequests": [],
            "version": 1,
        }
        self._put(rollback, State.REQUESTED, encode("HoodieRollbackPlan", plan))
        self._put(rollback, State.INFLIGHT, b"")
        for name in self._storage.names(FILES):
            parsed = LogFileName.parse(name)
            if parsed is not None and parsed.instant == dead.requested_time:
                self._storage.delete(f"{FILES}/{name}")
        if dead.completion_time is not None:
            self._storage.delete(instant_path(dead))
        for state in (State.INFLIGHT, State.REQUESTED):
            self._storage.delete(instant_path(Instant(dead.requested_time, dead.action, state)))
        said = {"startRollbackTime": rollback, "timeTakenInMillis": 1, "totalFilesDeleted": 1, "version": 1}
        said |= {"commitsRollback": [dead.requested_time], "partitionMetadata": {}}
        said |= {"instantsRollback": [{"commitTime": dead.requested_time, "action": str(dead.action)}]}
        completed = Instant(rollback, Action.ROLLBACK, State.COMPLETED, self._time())
        self._storage.put(instant_path(completed), encode("HoodieRollbackMetadata", said))

    def _timeline(self) -> Timeline:
        return Timeline.load(self._storage)

    def _put(self, instant: str, state: State, content: bytes) -> None:
        self._storage.put(instant_path(Instant(instant, Action.ROLLBACK, state)), content)
