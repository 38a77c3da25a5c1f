"""A table of trips, and another Hudi writer, such as the JVM's: hand-written instants without log entries."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from hudi import HudiTableBuilder

from airflow_provider.ingestion import ingest_arrow
from airflow_provider.locks.in_process import InProcessLockProvider
from airflow_provider.services.archival import archived_content, take_off
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.file_groups.view import BaseFile
from airflow_provider.table.file_names import new_file_id
from airflow_provider.table.files.base_file_reader import read_base_file
from airflow_provider.table.files.base_file_writer import BaseFileWriter
from airflow_provider.table.keys import record_keys
from airflow_provider.table.timeline.active import instant_path
from airflow_provider.table.timeline.archive_files import append_history
from airflow_provider.table.timeline.instant import Action, Instant, State, after, now, parse_time
from airflow_provider.table.timeline.metadata import CommitMetadata, WriteStat, encode, encode_commit_metadata

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("fare", pa.float64())])


def create_trips(location: str) -> HudiTable:
    """A table with two trips."""
    table = HudiTable.create(location, name="trips", schema=SCHEMA, record_key=["id"], partition_by=["city"])
    ingest_arrow(table, rows({1: 1.0, 2: 2.0}))
    return table


def rows(fares: dict[int, float], city: str = "sf") -> pa.Table:
    """Trips with these ids and fares."""
    columns = {"id": list(fares), "city": [city] * len(fares), "fare": list(fares.values())}
    return pa.table(columns, SCHEMA)


class Jvm:
    """Writes instants and data files as the JVM does, without a log entry.

    :param requested: the requested time; now when None.
    """

    def __init__(self, table: HudiTable, *, requested: str | None = None) -> None:
        self.table = table
        # No other instant has this millisecond, even if a fast machine has taken later ones.
        known = (each.completion_time or each.requested_time for each in table.timeline().instants)
        self.instant = requested or max(now(), after(max(known, default="20200101000000000")))
        time.sleep(0.002)
        self.completion_time = after(max(now(), self.instant))
        if requested is None:  # as Hudi's TimeGenerator, this waits until the time that it gives has passed
            passed = parse_time(after(self.completion_time)).timestamp()
            time.sleep(max(0.0, passed - time.time()))

    def upsert(self, fares: dict[int, float], *, into: BaseFile | None = None) -> None:
        file_id = into.file_id if into else new_file_id()
        with self._file(file_id) as sink:
            inserts = len(fares)
            if into is not None:
                old = read_base_file(self.table.storage, into.path)
                kept = [key not in fares for key in old["id"].to_pylist()]
                inserts -= kept.count(False)
                sink.write_preserved(old.filter(pa.array(kept)))
            sink.write(rows(fares), record_keys(rows(fares), ["id"]))
            stat = self._closed(sink, file_id, into.instant if into else "null", inserts)
        self._complete(Action.COMMIT, CommitMetadata("UPSERT", (stat,), {}, {}))

    def cluster(self, inputs: list[BaseFile]) -> None:
        with self._file(file_id := new_file_id()) as sink:
            for each in inputs:
                sink.write_preserved(read_base_file(self.table.storage, each.path))
            stat = self._closed(sink, file_id, "null", 0)
        replaced = {"city=sf": tuple(each.file_id for each in inputs)}
        self._complete(Action.REPLACE_COMMIT, CommitMetadata("CLUSTER", (stat,), replaced, {}))

    def begin(self, *, beats: bool = False, into: BaseFile | None = None, tells: bool = True) -> None:
        """Begin a write as the only engine does, or with ``beats`` as an engine that shares the table.

        :param into: the file that it is about to rewrite.
        :param tells: whether it has located its keys already, and names the file in its inflight instant.
        """
        if beats:
            self.table.storage.put(f".hoodie/.heartbeat/{self.instant}", b"")
        self._put(Action.COMMIT, State.REQUESTED, b"")
        if tells:
            self.tell(into)

    def tell(self, into: BaseFile | None) -> None:
        """Name the file that it is about to rewrite, in its inflight instant."""
        planned = b""
        if into is not None:
            stat = WriteStat(into.file_id, into.partition_path, "", prev_commit=into.instant)
            planned = encode_commit_metadata(CommitMetadata("UPSERT", (stat,), {}, {}), Action.COMMIT)
        self._put(Action.COMMIT, State.INFLIGHT, planned)

    def end(self) -> None:
        """Stop the heartbeat, with or without a commit."""
        self.table.storage.delete(f".hoodie/.heartbeat/{self.instant}")

    def plan_clustering(self, inputs: list[BaseFile]) -> None:
        slices = [
            {"partitionPath": each.partition_path, "fileId": each.file_id, "dataFilePath": each.path}
            for each in inputs
        ]
        plan = {"clusteringPlan": {"inputGroups": [{"slices": slices}]}, "operationType": "CLUSTER"}
        self._put(Action.CLUSTERING, State.REQUESTED, encode("HoodieRequestedReplaceMetadata", plan))

    def begin_rollback_of(self, instant: str) -> None:
        plan = {
            "instantToRollback": {"commitTime": instant, "action": "commit"},
            "RollbackRequests": [],
            "version": 1,
        }
        self._put(Action.ROLLBACK, State.REQUESTED, encode("HoodieRollbackPlan", plan))

    def roll_back(self, instant: str) -> None:
        """As JVM Hudi does: the plan, then files, then the instant; of a pending one the files that markers
        name."""
        found = self.table.timeline().find(instant)
        assert found is not None
        self.begin_rollback_of(instant)
        self._put(Action.ROLLBACK, State.INFLIGHT, b"")
        self._take_away(instant, by_markers=found.state is not State.COMPLETED)
        said = {"startRollbackTime": self.instant, "commitsRollback": [instant], "version": 1}
        said |= {
            "timeTakenInMillis": 1,
            "totalFilesDeleted": 1,
            "partitionMetadata": {},
            "instantsRollback": [],
        }
        self._put(Action.ROLLBACK, State.COMPLETED, encode("HoodieRollbackMetadata", said))

    def restore(self, undone: list[str]) -> None:
        plan = {"instantsToRollback": [{"commitTime": each, "action": "commit"} for each in undone]}
        self._put(Action.RESTORE, State.REQUESTED, encode("HoodieRestorePlan", plan))
        for each in undone:
            self._take_away(each)
        said = {"startRestoreTime": self.instant, "timeTakenInMillis": 1, "instantsToRollback": undone}
        said |= {"hoodieRestoreMetadata": {}, "version": 1, "restoreInstantInfo": []}
        self._put(Action.RESTORE, State.COMPLETED, encode("HoodieRestoreMetadata", said))

    def archive(self, instants: Sequence[Instant]) -> None:
        storage = self.table.storage
        found = (archived_content(storage, instant) for instant in instants)
        append_history(storage, [each for each in found if each is not None])
        take_off(storage, instants)

    def _take_away(self, instant: str, *, by_markers: bool = False) -> None:
        location = Path(self.table.location)
        markers = location / ".hoodie" / ".temp" / instant
        # MarkerUtils: only the type tells that the markers are lines of files.
        if markers.exists():
            assert (markers / "MARKERS.type").read_text() == "TIMELINE_SERVER_BASED"
        files = [path for path in markers.glob("MARKERS*") if path.name != "MARKERS.type"]
        lines = [line for path in files for line in path.read_text().splitlines()]
        named = {location / line.rpartition(".marker.")[0] for line in lines}
        for path in location.rglob(f"*{instant}*"):
            is_data = path.suffix == ".parquet" and (path in named or not by_markers)
            if is_data or (path.parent.name == "timeline" and path.name.startswith(instant)):
                path.unlink()
        shutil.rmtree(markers, ignore_errors=True)

    def begin_restore_of(self, instant: str) -> None:
        plan = {"instantsToRollback": [{"commitTime": instant, "action": "commit"}]}
        self._put(Action.RESTORE, State.REQUESTED, encode("HoodieRestorePlan", plan))

    def _file(self, file_id: str) -> BaseFileWriter:
        return BaseFileWriter(
            self.table.storage,
            partition_path="city=sf",
            file_id=file_id,
            write_token="0-1-2",
            instant=self.instant,
            schema=SCHEMA,
            table_name="trips",
        )

    def _closed(self, sink: BaseFileWriter, file_id: str, prev_commit: str, inserts: int) -> WriteStat:
        written = sink.close()
        return WriteStat(
            file_id,
            "city=sf",
            written.path,
            prev_commit,
            num_writes=written.rows,
            num_inserts=inserts,
            file_size=written.size,
        )

    def _complete(self, action: Action, metadata: CommitMetadata) -> None:
        pending = Action.CLUSTERING if metadata.operation_type == "CLUSTER" else action
        self._put(pending, State.REQUESTED, b"")
        self._put(pending, State.INFLIGHT, b"")
        self._put(action, State.COMPLETED, encode_commit_metadata(metadata, action))

    def _put(self, action: Action, state: State, content: bytes) -> None:
        completed = self.completion_time if state is State.COMPLETED else None
        self.table.storage.put(instant_path(Instant(self.instant, action, state, completed)), content)


def fares(table: HudiTable) -> dict[int, float]:
    """The rows that both readers find; they must be equal."""
    ours = snapshot(table).to_table().sort_by("id").to_pydict()
    theirs = HudiTableBuilder.from_base_uri(table.location).build().read()
    found = pa.Table.from_batches(theirs).select(["id", "fare"]).sort_by("id").to_pydict()
    assert {name: ours[name] for name in ("id", "fare")} == found
    return dict(zip(ours["id"], ours["fare"], strict=True))


def only_file(table: HudiTable) -> BaseFile:
    (base_file,) = table.view().base_files("city=sf")
    return base_file


class SharedLock(InProcessLockProvider):
    """The lock that a JVM and this writer share: the JVM commits between this writer's begin and commit."""

    excludes_hudi = True

    def __init__(self, table: HudiTable, jvm: Callable[[], object]) -> None:
        super().__init__(table.location)
        self._jvm = jvm
        self._acquired = 0

    def __enter__(self) -> Self:
        self._acquired += 1
        if self._acquired == 2:  # the first time is the writer's begin
            self._jvm()
        return super().__enter__()


def ingest(
    table: HudiTable, fares: dict[int, float], jvm: Callable[[], object], **settings: Any
) -> dict[str, Any]:
    """Write trips; the JVM commits right before this writer acquires the lock."""
    return ingest_arrow(table, rows(fares), lock=SharedLock(table, jvm), **settings)


def pending_heartbeats(table: HudiTable) -> list[str]:
    """The instants with a heartbeat file."""
    return table.storage.names(".hoodie/.heartbeat")
