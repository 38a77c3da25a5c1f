"""Another Hudi writer, such as the JVM's: it writes instants and data files, no log entry and no index."""

from __future__ import annotations

import os
import time

import pyarrow as pa

from airflow_provider.locks.in_process import InProcessLockProvider
from airflow_provider.table import HudiTable
from airflow_provider.table.file_groups.view import BaseFile
from airflow_provider.table.file_names import new_file_id
from airflow_provider.table.files.base_file_reader import read_base_file
from airflow_provider.table.files.base_file_writer import BaseFileWriter
from airflow_provider.table.keys import record_keys
from airflow_provider.table.timeline.active import instant_path
from airflow_provider.table.timeline.instant import Action, Instant, State, after, now
from airflow_provider.table.timeline.metadata import CommitMetadata, WriteStat, encode, encode_commit_metadata

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("fare", pa.float64())])


def rows(ids: list[int], fare: float = 1.0, city: str = "sf") -> pa.Table:
    return pa.table({"id": ids, "city": [city] * len(ids), "fare": [fare] * len(ids)}, SCHEMA)


class SharedLock(InProcessLockProvider):
    """A lock that the JVM acquires, too."""

    excludes_hudi = True


class JvmWrite:
    """One write of the JVM's.

    :ivar instant: its requested time.
    """

    def __init__(self, table: HudiTable, action: Action = Action.COMMIT, *, plan: bytes = b"") -> None:
        self._table = table
        self._action = action
        time.sleep(0.002)  # no other instant has this millisecond
        self.instant = now()
        time.sleep(0.002)
        self._put(action, State.REQUESTED, plan)

    def begin(self) -> JvmWrite:
        self._put(self._action, State.INFLIGHT, b"")
        return self

    def upsert(self, ids: list[int], fare: float = 2.0, *, into: BaseFile | None = None) -> None:
        """Write rows into an existing or a new file group, and complete the write."""
        old = read_base_file(self._table.storage, into.path) if into else None
        file_id = into.file_id if into else new_file_id()
        with BaseFileWriter(
            self._table.storage,
            partition_path="city=sf",
            file_id=file_id,
            write_token="0-1-2",
            instant=self.instant,
            schema=SCHEMA,
            table_name="trips",
        ) as sink:
            if old is not None:
                sink.write_preserved(
                    old.filter(pa.array([each not in ids for each in old["id"].to_pylist()]))
                )
            sink.write(rows(ids, fare), record_keys(rows(ids), ["id"]))
            written = sink.close()
        stat = WriteStat(
            file_id,
            "city=sf",
            written.path,
            into.instant if into else "null",
            num_writes=written.rows,
            num_inserts=written.rows,
            file_size=written.size,
            prev_base_file=into.path.rpartition("/")[2] if into else None,
        )
        content = encode_commit_metadata(CommitMetadata("UPSERT", (stat,)), Action.COMMIT)
        self._put(Action.COMMIT, State.COMPLETED, content)

    def clean(self, base_file: BaseFile) -> None:
        """Complete a clean that deletes a file."""
        self._table.storage.delete(base_file.path)
        name = base_file.path.rpartition("/")[2]
        said = {
            "partitionPath": base_file.partition_path,
            "policy": "KEEP_LATEST_COMMITS",
            "deletePathPatterns": [name],
            "successDeleteFiles": [name],
            "failedDeleteFiles": [],
            "isPartitionDeleted": False,
        }
        record = {
            "startCleanTime": self.instant,
            "timeTakenInMillis": 1,
            "totalFilesDeleted": 1,
            "earliestCommitToRetain": "",
            "lastCompletedCommitTimestamp": "",
            "partitionMetadata": {base_file.partition_path: said},
            "version": 2,
            "bootstrapPartitionMetadata": {},
            "extraMetadata": {},
        }
        self._put(Action.CLEAN, State.COMPLETED, encode("HoodieCleanMetadata", record))

    def cluster_nothing(self) -> None:
        """Complete a clustering that found nothing to do."""
        metadata = CommitMetadata("CLUSTER", (), {}, {})
        content = encode_commit_metadata(metadata, Action.REPLACE_COMMIT)
        self._put(Action.REPLACE_COMMIT, State.COMPLETED, content)

    def roll_back(self) -> None:
        """Roll the write back, as the JVM does: its instants are deleted, a rollback completes."""
        rollback = JvmWrite(self._table, Action.ROLLBACK)
        record = {
            "startRollbackTime": rollback.instant,
            "timeTakenInMillis": 1,
            "totalFilesDeleted": 0,
            "commitsRollback": [self.instant],
            "partitionMetadata": {},
            "version": 1,
            "instantsRollback": [{"commitTime": self.instant, "action": "commit"}],
        }
        for state in (State.INFLIGHT, State.REQUESTED):
            self._table.storage.delete(instant_path(Instant(self.instant, self._action, state)))
        rollback._put(Action.ROLLBACK, State.COMPLETED, encode("HoodieRollbackMetadata", record))

    def beat(self, seconds_ago: float = 0.0) -> None:
        """Put its heartbeat, an empty file."""
        path = f".hoodie/.heartbeat/{self.instant}"
        self._table.storage.put(path, b"")
        moment = time.time() - seconds_ago
        os.utime(f"{self._table.location}/{path}", (moment, moment))

    def _put(self, action: Action, state: State, content: bytes) -> None:
        completed = after(max(now(), self.instant)) if state is State.COMPLETED else None
        self._table.storage.put(instant_path(Instant(self.instant, action, state, completed)), content)
        time.sleep(0.003)  # every later instant has a later millisecond
