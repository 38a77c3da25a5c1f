"""The files of a write before its entry in the commit log. No reader sees them.

They are its plan, which is the inflight instant; its data files; its staged commit metadata; and its staged
log files of the indexes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence

from airflow_provider.concurrency.commit.commit_content import CommitContent
from airflow_provider.concurrency.commit.staged_paths import staged_metadata_path, staged_plan_path
from airflow_provider.concurrency.commit.undone_files import files_in
from airflow_provider.concurrency.heartbeats import HeartbeatInfo
from airflow_provider.concurrency.indexes import StagedChange, change_of_write, drop_staged
from airflow_provider.concurrency.log import IndexState
from airflow_provider.exceptions import CommitError, InvalidInputError
from airflow_provider.table.file_groups import FileGroupId, FileSystemView
from airflow_provider.table.files import delete_markers, marked_files
from airflow_provider.table.metadata_table import FileChanges
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import (
    Action,
    CommitMetadata,
    Instant,
    State,
    WriteStat,
    encode_commit_metadata,
    instant_path,
    requested_metadata,
)


class StagedWrite:
    """The files that one write has put on storage so far.

    :param storage: the table's storage.
    :param instant: requested time.
    :param action: the action under which the write is pending.
    :param info: the content of its heartbeat.
    """

    def __init__(self, storage: Storage, instant: str, action: Action, info: HeartbeatInfo) -> None:
        self._storage = storage
        self._instant = instant
        self._action = action
        self._info = info
        self._planned: tuple[WriteStat, ...] = ()
        self._indexed = StagedChange(storage, instant)

    def plan(
        self,
        file_groups: Iterable[FileGroupId],
        partitions: Iterable[str],
        appended: Iterable[FileGroupId] = (),
    ) -> None:
        """Put the plan; see :meth:`Writer.plan`. An empty list of log files marks an appended file group.

        :raises InvalidInputError: when the write has a plan already.
        """
        groups = frozenset(file_groups)
        new_in = sorted(set(partitions) - {group.partition_path for group in groups})
        planned = [*_stats_of(groups, appended), *(WriteStat("", partition, path="") for partition in new_in)]
        content = self._plan_of(planned)
        if not self._storage.put_if_absent(self._plan_path, content) and not self._is_put_already(content):
            raise InvalidInputError(f"instant {self._instant} is planned already", instant=self._instant)
        self._storage.sync()  # a rollback finds data files by the plan only
        self._planned = tuple(planned)

    def _is_put_already(self, content: bytes) -> bool:
        """Whether the existing plan is this writer's own, because the storage's client sent its put twice."""
        return not self._planned and self._storage.read(self._plan_path) == content

    def extend_plan(self, file_groups: Iterable[FileGroupId]) -> None:
        """Name further file groups in the plan."""
        known = {stat.file_group for stat in self._planned}
        if more := set(file_groups) - known:
            self._planned = (*self._planned, *_stats_of(more, ()))
            self._storage.put(self._plan_path, self._plan_of(self._planned))

    def stage(self, content: CommitContent) -> None:
        """Delete data files that the content does not name, and stage the commit metadata.

        :raises CommitError: when a data file is missing, or would be hidden from readers.
        """
        for stat in content.write_stats:
            if stat.prev_commit != "null" and stat.prev_commit > self._instant:
                raise CommitError(
                    f"table {self._storage.root}: {stat.path} of instant {self._instant} is hidden behind "
                    f"the slice of {stat.prev_commit} on which it was merged; give it a new file id, and "
                    f"take {stat.file_id} out (see Writer.must_replace)",
                    instant=self._instant,
                )
        # Two files with one file id and instant break readers, so the files of failed task attempts must be
        # gone before the commit. Their markers tell which there are, however many files the partitions have
        # (HoodieTable.reconcileAgainstMarkers).
        reported = {stat.path for stat in content.write_stats}
        for path in sorted(set(marked_files(self._storage, self._instant)) - reported):
            self._storage.delete(path)
        if missing := _missing(self._storage, reported):
            raise CommitError(
                f"table {self._storage.root}: data file {missing[0]} of instant {self._instant} was reported "
                "as written but is not there; run the write again",
                instant=self._instant,
                missing=missing,
            )
        self._storage.sync_later(sorted(reported))  # other processes have written some of them
        encoded = content.encoded(self._info.operation, self._action)
        self._storage.put(staged_metadata_path(self._instant), encoded)
        if action := content.renamed_action(self._action):
            self._storage.put(staged_plan_path(self._instant), requested_metadata(action))

    def is_logged_to(self, indexes: Iterable[IndexState]) -> bool:
        """Whether the staged index records are for exactly these indexes."""
        return self._indexed.is_for(tuple(indexes))

    @property
    def tells_anew_in(self) -> frozenset[str]:
        """Partition paths whose statistics the staged records compute anew; see :class:`StagedChange`."""
        return self._indexed.tells_anew_in

    def log_to(
        self, indexes: tuple[IndexState, ...], content: CommitContent, view: Callable[[], FileSystemView]
    ) -> None:
        """Stage the index records of the write.

        :param indexes: the table's indexes.
        :param content: the content that the write is about to commit.
        :param view: returns a snapshot after which no conflicting commit has completed; called only where it
            is needed.
        """

        def change() -> FileChanges:
            return change_of_write(
                self._storage, content.write_stats, content.taken_out, self._info.operation, view, indexes
            )

        self._indexed.stage(indexes, change, view, content.schema)

    def delete(self) -> None:
        """Delete the files that the write put on storage after its rollback had deleted the others.

        :raises OSError: when the storage fails; no other process would find what is left. So one failure
            leaves no other data file.
        """
        failed: OSError | None = None
        for path in files_in(self._storage, {stat.partition_path for stat in self._planned}, self._instant):
            try:
                self._storage.delete(path)
            except OSError as error:
                failed = error
        if failed is not None:
            raise failed
        delete_markers(self._storage, self._instant)
        drop_staged(self._storage, self._instant)
        self._storage.delete(staged_metadata_path(self._instant))
        self._storage.delete(staged_plan_path(self._instant))

    @property
    def _plan_path(self) -> str:
        return instant_path(Instant(self._instant, self._action, State.INFLIGHT))

    def _plan_of(self, stats: Sequence[WriteStat]) -> bytes:
        metadata = CommitMetadata(
            operation_type=self._info.operation,
            write_stats=tuple(stats),
            replaced={},
            extra_metadata={"priority": str(self._info.priority)},
        )
        return encode_commit_metadata(metadata, Action.COMMIT)


def _stats_of(file_groups: Iterable[FileGroupId], appended: Iterable[FileGroupId]) -> list[WriteStat]:
    logs = frozenset(appended)
    return [
        WriteStat(group.file_id, group.partition_path, path="", log_files=() if group in logs else None)
        for group in sorted(file_groups)
    ]


def _missing(storage: Storage, paths: Collection[str]) -> list[str]:
    """Those of some data files that do not exist."""
    names: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        folder, _, name = path.rpartition("/")
        names[folder].add(name)
    missing = []
    for folder, of_folder in names.items():
        if len(of_folder) <= _CHEAPER_THAN_A_LISTING:
            absent = [name for name in of_folder if storage.stat(f"{folder}/{name}".lstrip("/")) is None]
        else:
            absent = list(of_folder.difference(storage.names(folder)))
        missing += [f"{folder}/{name}".lstrip("/") for name in absent]
    return sorted(missing)


# A partition may have thousands of files. A request to an object store lists a thousand of them.
_CHEAPER_THAN_A_LISTING = 3
