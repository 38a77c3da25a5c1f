"""Another engine on a table of the simulation: it works like JVM Hudi, and does not know the commit log.

It does its work under the lock in one step, because it does not check twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider.concurrency.conflicts.foreign_writers import clustered
from airflow_provider.concurrency.heartbeats.heartbeat import heartbeat_path
from airflow_provider.concurrency.log.log_entry import Commit
from airflow_provider.services.archival import archived_content, take_off
from airflow_provider.table.file_groups.view import BaseFile, FileGroupId, FileSystemView
from airflow_provider.table.files.markers import delete_markers, marked_files
from airflow_provider.table.timeline.active import Timeline, instant_path
from airflow_provider.table.timeline.archive_files import append_history
from airflow_provider.table.timeline.instant import WRITE_ACTIONS, Action, Instant, State, after, now
from airflow_provider.table.timeline.metadata import CommitMetadata, encode, encode_commit_metadata
from tests.unit.concurrency.other_hudi_writers.foreign_metadata_table import ForeignMetadataTable
from tests.unit.concurrency.simulation.rows import PARTITION, Row, read_rows, write_rows
from tests.unit.concurrency.simulation.scheduler import NoLock, Simulation


class SharedLock(NoLock):
    """The lock of both engines; a paused holder has lost it."""

    excludes_hudi = True


@dataclass
class Begun:
    """A write of the other engine, with its base."""

    name: str
    instant: str
    base: Timeline
    files: dict[BaseFile, dict[str, Row]]
    keys: frozenset[str]

    @property
    def new_keys(self) -> frozenset[str]:
        """The keys that its base lacks: they go into a file group of their own."""
        return self.keys.difference(*self.files.values())


class AnotherEngine:
    """Works like JVM Hudi under optimistic concurrency control, and puts no entry."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._metadata_table = ForeignMetadataTable(self._storage, self._time)
        self.begun: list[Begun] = []
        self.planned: dict[str, list[BaseFile]] = {}
        self.done: list[tuple[str, frozenset[str]]] = []
        self.failed: list[str] = []
        self._rolled_back: set[str] = set()
        self._own: set[str] = set()
        self._newest = ""

    @property
    def _storage(self):
        return self._simulation.table().storage

    def sees_what_is_undone(self) -> bool:
        """Whether a writer of this package is paused between its last put and the check after it.

        Until the check readers see a commit that was rolled back, or that conflicts with another commit:
        "Which pauses it survives" in docs/commit-protocol.md.
        """
        completed = Timeline.load(self._storage).completed()
        seen_by = self._before_its_last_check()
        own = [each.completion_time or "" for each in completed if each.requested_time in self._own]
        return any(
            each.requested_time in self._rolled_back
            or max(own, default="") > seen_by.get(each.requested_time, max(own, default=""))
            for each in completed
        )

    def builds_on_what_it_may_undo(self) -> bool:
        """Whether a pending write or plan has read a commit of this package that is not checked yet.

        An insert would undo that commit, because both may have added the same keys.
        """
        pending = [*self.planned.values(), *(each.files for each in self.begun)]
        unchecked = self._before_its_last_check()
        return any(each.instant in unchecked for files in pending for each in files)

    def _before_its_last_check(self) -> dict[str, str]:
        """By instant, the commits that nobody has acknowledged: until when each has looked at others."""
        commits = (each for each in self._simulation.entries() if isinstance(each, Commit))
        return {
            each.instant: each.seen for each in commits if each.instant not in self._simulation.acknowledged
        }

    def begin(self, name: str, keys: frozenset[str]) -> None:
        """Roll dead writers back, take an instant, read."""
        self._roll_dead_writers_back()
        instant = self._time()
        self._storage.put(heartbeat_path(instant), b"")
        self._put(instant, Action.COMMIT, State.REQUESTED)
        base = Timeline.load(self._storage)
        files = {each: read_rows(self._storage, each.path) for each in self._view(base).base_files(PARTITION)}
        self._put(instant, Action.COMMIT, State.INFLIGHT)
        touched = {each: rows for each, rows in files.items() if keys & rows.keys()}
        self.begun.append(Begun(name, instant, base, touched, keys))

    def commit(self, write: Begun) -> None:
        """Write the files; then, under the lock, check for conflicts, and complete."""
        self.begun.remove(write)
        timeline = Timeline.load(self._storage)
        groups = {each.file_group for each in write.files}
        is_dead = timeline.find(write.instant) is None  # somebody has rolled it back
        if not is_dead and self._is_silent(write.instant):
            self.failed.append(write.name)  # HeartbeatUtils.abortIfHeartbeatExpired
            return
        if is_dead or self._conflicts(write, timeline) or groups & self._closed():
            self.failed.append(write.name)
            if not is_dead:
                self._roll_back(write.instant)
            return
        stats = []
        for base, rows in write.files.items():
            merged = {
                key: Row(write.instant, (*row.history, write.name)) if key in write.keys else row
                for key, row in rows.items()
            }
            stats.append(write_rows(self._storage, base.file_id, write.instant, merged, base=base))
        if write.new_keys:
            rows = {key: Row(write.instant, (write.name,)) for key in write.new_keys}
            stats.append(write_rows(self._storage, f"{write.name}-0", write.instant, rows, inserts=len(rows)))
        self._complete(write.instant, Action.COMMIT, CommitMetadata("UPSERT", tuple(stats)))
        self.done.append((write.name, write.keys))

    def plan_clustering(self) -> None:
        pending = {each.file_group for write in self.begun for each in write.files}
        files = self._view(Timeline.load(self._storage)).base_files(PARTITION)
        inputs = [each for each in files if each.file_group not in self._closed() | pending][:2]
        if not inputs:
            return
        slices = [
            {"partitionPath": each.partition_path, "fileId": each.file_id, "dataFilePath": each.path}
            for each in inputs
        ]
        plan = {"clusteringPlan": {"inputGroups": [{"slices": slices}]}, "operationType": "CLUSTER"}
        instant = self._time()
        content = encode("HoodieRequestedReplaceMetadata", plan)
        self._storage.put(instant_path(Instant(instant, Action.CLUSTERING, State.REQUESTED)), content)
        self.planned[instant] = inputs

    def cluster(self, instant: str) -> None:
        """Complete a clustering, without a look at commits since its plan."""
        inputs = self.planned.pop(instant)
        if self._storage.stat(instant_path(Instant(instant, Action.CLUSTERING, State.REQUESTED))) is None:
            return  # ActiveTimelineV2.transitionPendingState fails: a rollback has taken the plan away
        rows = {key: row for each in inputs for key, row in read_rows(self._storage, each.path).items()}
        stat = write_rows(self._storage, f"clustered{instant}-0", instant, rows)
        replaced = {PARTITION: tuple(each.file_id for each in inputs)}
        self._put(instant, Action.CLUSTERING, State.INFLIGHT)
        self._complete(instant, Action.REPLACE_COMMIT, CommitMetadata("CLUSTER", (stat,), replaced))

    def archive(self) -> None:
        """Archive all commits but the two newest, up to the first pending instant."""
        if self._may_write_late():
            return
        timeline = Timeline.load(self._storage)
        stays = min(
            [each.requested_time for each in timeline.commits()[-2:]]
            + [each.requested_time for each in timeline.pending()],
            default="",
        )
        # Its archival waits until no replaced file is left.
        if any(each.action is Action.REPLACE_COMMIT for each in timeline.completed()):
            return
        # A pending write has to see the commits since it began.
        leaving = [each for each in timeline.completed() if (each.completion_time or "") < stays]
        found = (archived_content(self._storage, each) for each in leaving)
        append_history(self._storage, [each for each in found if each is not None])
        take_off(self._storage, leaving)

    def _may_write_late(self) -> bool:
        """Whether a writer of this package has been rolled back, and is paused before another data file.

        "Which pauses it survives" in docs/commit-protocol.md: not one that outlasts the archival.
        """
        running = {actor.name for actor in self._simulation.running()}
        writes = self._simulation.writes
        return any(writes[each].writer in running for each in self._rolled_back & writes.keys())

    # --- its own ways ---------------------------------------------------------------------

    def _conflicts(self, write: Begun, timeline: Timeline) -> bool:
        groups = {each.file_group for each in write.files}
        known = {each.requested_time for each in write.base.completed()}
        for each in timeline.commits():
            if each.requested_time not in known:
                metadata = timeline.commit_metadata(each)
                written = {(stat.partition_path, stat.file_id) for stat in metadata.write_stats}
                taken = {(path, file_id) for path, ids in metadata.replaced.items() for file_id in ids}
                if groups & (written | taken):
                    return True
        archived = known - {each.requested_time for each in timeline.completed()}
        return bool(archived & {write.instant})

    def _closed(self) -> set[FileGroupId]:
        """The file groups of pending clusterings of both engines (``SparkRejectUpdateStrategy``)."""
        timeline = Timeline.load(self._storage)
        return set().union(*(clustered(timeline, each) for each in timeline.pending()))

    def _roll_dead_writers_back(self) -> None:
        own = {write.instant for write in self.begun}
        for each in Timeline.load(self._storage).pending():
            if each.action not in WRITE_ACTIONS or each.requested_time in own:
                continue
            if self._is_silent(each.requested_time):
                self._roll_back(each.requested_time)

    def _is_silent(self, instant: str) -> bool:
        beat = self._storage.stat(heartbeat_path(instant))
        return beat is None or self._simulation.clock() - beat.modified > 3600

    def _roll_back(self, dead: str) -> None:
        self._rolled_back.add(dead)
        instant = self._time()
        plan = {
            "instantToRollback": {"commitTime": dead, "action": "commit"},
            "RollbackRequests": [],
            "version": 1,
        }
        requested = instant_path(Instant(instant, Action.ROLLBACK, State.REQUESTED))
        self._storage.put(requested, encode("HoodieRollbackPlan", plan))
        self._put(instant, Action.ROLLBACK, State.INFLIGHT)
        # MarkerBasedRollbackStrategy: it knows no other files of a dead write.
        gone = [path for path in marked_files(self._storage, dead) if self._storage.delete(path)]
        left = [name for name in self._storage.names(PARTITION) if dead in name]
        # A rollback of this package, which is under way, deletes the markers, too.
        is_undone = any(dead in each.undone for each in self._simulation.entries())
        assert is_undone or not left, f"no markers lead from instant {dead} to {left}"
        for state in (State.INFLIGHT, State.REQUESTED):
            for action in (Action.COMMIT, Action.REPLACE_COMMIT):
                self._storage.delete(instant_path(Instant(dead, action, state)))
        self._storage.delete(heartbeat_path(dead))
        said = {"startRollbackTime": instant, "timeTakenInMillis": 1, "totalFilesDeleted": 1, "version": 1}
        said |= {"commitsRollback": [dead], "partitionMetadata": {}}
        said |= {"instantsRollback": [{"commitTime": dead, "action": "commit"}]}
        self._metadata_table.roll_back(dead, instant, gone)
        completed = Instant(instant, Action.ROLLBACK, State.COMPLETED, self._time())
        self._storage.put(instant_path(completed), encode("HoodieRollbackMetadata", said))
        delete_markers(self._storage, dead)

    def _view(self, timeline: Timeline) -> FileSystemView:
        return FileSystemView(self._storage, timeline)

    def _time(self) -> str:
        newest = Timeline.load(self._storage).newest_completion
        self._newest = after(max(now(), self._newest, newest))
        while any(self._newest in path for path in self._simulation.files):  # it waits for its millisecond
            self._newest = after(self._newest)
        return self._newest

    def _put(self, instant: str, action: Action, state: State) -> None:
        self._storage.put(instant_path(Instant(instant, action, state)), b"")

    def _complete(self, instant: str, action: Action, metadata: CommitMetadata) -> None:
        self._own.add(instant)
        self._metadata_table.commit(instant, metadata.write_stats)
        completed = Instant(instant, action, State.COMPLETED, self._time())
        self._storage.put(instant_path(completed), encode_commit_metadata(metadata, action))
        self._storage.delete(heartbeat_path(instant))
