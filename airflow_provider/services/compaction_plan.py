"""Compaction plans: which file groups get a base file that includes their log files.

The plan is Hudi's own record (``HoodieCompactionPlan``). The metadata table and merge-on-read tables both use
this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.table.file_groups import FileGroupId
from airflow_provider.table.metadata_table import MetadataFileSlice
from airflow_provider.table.properties import TableConfig
from airflow_provider.table.timeline import Action, State, Timeline, decode, encode

MAX_DELTA_COMMITS = "hoodie.metadata.compact.max.delta.commits"
LOG_FILE_SIZE_THRESHOLD = "hoodie.compaction.logfile.size.threshold"
_DEFAULTS = {MAX_DELTA_COMMITS: 10, LOG_FILE_SIZE_THRESHOLD: 0}

_PLANNED_BY = "planned_by"
_OURS = "airflow_provider"

_MIB = 1024 * 1024

_SMALL_SHARE = 0.1  # fraction of the base file's bytes below which log files are small


@dataclass(frozen=True)
class CompactionSettings:
    """When a compaction is due, and for which file groups.

    :param max_delta_commits: deltacommits since the last compaction after which another is due.
    :param log_file_size_threshold: bytes that the log files of a file group must have; a group with less is
        left alone (Hudi's ``LogFileSizeBasedCompactionStrategy``). 0 selects every group with a log file.
    :param patience: number of deltacommits, from the base file's completion on, for which log files wait if
        they are small compared with the base file, because a compaction rewrites all of it. With 0 they do
        not wait.
    """

    max_delta_commits: int = _DEFAULTS[MAX_DELTA_COMMITS]
    log_file_size_threshold: int = _DEFAULTS[LOG_FILE_SIZE_THRESHOLD]
    patience: int = 0

    @classmethod
    def of(
        cls,
        config: TableConfig,
        *,
        max_delta_commits: int | None = None,
        log_file_size_threshold: int | None = None,
    ) -> CompactionSettings:
        """The settings of a table; arguments override its properties.

        :param config: the table's configuration, which may contain
            ``hoodie.metadata.compact.max.delta.commits`` and ``hoodie.compaction.logfile.size.threshold``.
        :param max_delta_commits: replaces the table's value.
        :param log_file_size_threshold: replaces the table's value.
        :raises InvalidInputError: when a number is out of range.
        """
        return cls(
            _number(config, MAX_DELTA_COMMITS, max_delta_commits, least=1),
            _number(config, LOG_FILE_SIZE_THRESHOLD, log_file_size_threshold, least=0),
        )


@dataclass(frozen=True)
class CompactionOperation:
    """The compaction of one file group.

    :param partition: its partition.
    :param file_id: its id.
    :param base_instant: requested time of the base file's instant; of the first log file's instant where the
        group has no base file yet.
    :param base_file: name of its base file.
    :param log_files: names of the log files to merge, in the order of merging.
    :param log_bytes: bytes of the log files.
    :param base_bytes: bytes of the base file.
    """

    partition: str
    file_id: str
    base_instant: str
    base_file: str | None
    log_files: tuple[str, ...]
    log_bytes: int = 0
    base_bytes: int = 0

    @classmethod
    def of(cls, file_slice: MetadataFileSlice) -> CompactionOperation | None:
        """The operation for a file slice; None where the slice has no log file."""
        base, logs = file_slice.base_file, file_slice.log_files
        if not logs:
            return None
        base_instant = base.instant if base else min(each.instant for each in logs)
        return cls(
            file_slice.partition,
            file_slice.file_id,
            base_instant,
            _name(base.path) if base else None,
            tuple(_name(each.path) for each in logs),
            sum(each.size for each in logs),
            base.size if base else 0,
        )

    def is_of(self, file_slice: MetadataFileSlice, instant: str) -> bool:
        """Whether a file slice still has exactly the files of the plan.

        :param file_slice: a slice of the same file group.
        :param instant: requested time of the compaction; log files of later instants are ignored.
        """
        base = file_slice.base_file
        logs = {_name(each.path) for each in file_slice.log_files if each.completion_time <= instant}
        return (_name(base.path) if base else None) == self.base_file and logs == set(self.log_files)


@dataclass(frozen=True)
class CompactionPlan:
    """The plan of a compaction.

    :param operations: one operation for each file group.
    """

    operations: tuple[CompactionOperation, ...]

    def file_groups(self, folder: str = "") -> frozenset[FileGroupId]:
        """The file groups that the compaction rewrites.

        :param folder: path of the table with the file groups, relative to the table whose log has the plan.
        """
        found = ((f"{folder}/{each.partition}".lstrip("/"), each.file_id) for each in self.operations)
        return frozenset(FileGroupId(*each) for each in found)

    def to_dict(self) -> dict[str, Any]:
        """The amount of work, JSON-able."""
        return {
            "partitions": sorted({each.partition for each in self.operations}),
            "file_groups": len(self.operations),
            "log_files": sum(len(each.log_files) for each in self.operations),
            "log_bytes": sum(each.log_bytes for each in self.operations),
        }

    def to_avro(self) -> bytes:
        """The content of the requested instant: Hudi's ``HoodieCompactionPlan``."""
        plan = {
            "operations": [_to_avro(each) for each in self.operations],
            "extraMetadata": {_PLANNED_BY: _OURS},
            "version": 2,
            "missingSchedulePartitions": [],
        }
        return encode("HoodieCompactionPlan", plan)

    @classmethod
    def from_avro(cls, content: bytes) -> CompactionPlan | None:
        """Read a requested instant. None for a plan of another Hudi writer, which executes it itself.

        :raises CorruptTableError: when it is not an Avro file.
        """
        record = decode(content)
        if (record["extraMetadata"] or {}).get(_PLANNED_BY) != _OURS:
            return None
        return cls(tuple(map(_from_avro, record["operations"] or ())))


def plan_compaction(
    slices: Iterable[MetadataFileSlice], timeline: Timeline, settings: CompactionSettings
) -> CompactionPlan | None:
    """Choose the file groups to compact.

    :param slices: the newest slice of each file group that may be compacted.
    :param timeline: timeline of the table with these file groups.
    :param settings: which file groups are due.
    :return: None when there is nothing to compact.
    """
    done = [i.completion_time or "" for i in timeline.commits() if i.action is Action.DELTA_COMMIT]
    operations = []
    for file_slice in slices:
        operation = CompactionOperation.of(file_slice)
        if operation is None or operation.log_bytes < settings.log_file_size_threshold:
            continue
        # The wait begins when the index is built, because its log files cannot be compacted before.
        built = timeline.find(operation.base_instant)
        since = max(file_slice.log_files[0].completion_time, (built and built.completion_time) or "")
        waited = sum(completion_time >= since for completion_time in done)
        is_small = operation.log_bytes < _SMALL_SHARE * operation.base_bytes
        if not is_small or waited >= settings.patience:
            operations.append(operation)
    return CompactionPlan(tuple(operations)) if operations else None


def delta_commits_since(timeline: Timeline, *, or_planned: bool = False) -> int:
    """Deltacommits that completed after the last compaction was planned
    (``CompactionUtils.getDeltaCommitsSinceLatestCompaction``).

    :param timeline: timeline of the table with the file groups.
    :param or_planned: whether a pending compaction counts too
        (``CompactionUtils.getDeltaCommitsSinceLatestCompactionRequest``).
    """
    compactions = [i.requested_time for i in timeline.commits() if i.action is Action.COMMIT]
    if or_planned:
        compactions += [i.requested_time for i in timeline.pending() if i.action is Action.COMPACTION]
    last = max(compactions, default="")
    return sum(
        i.action is Action.DELTA_COMMIT and (i.completion_time or "") > last for i in timeline.commits()
    )


def has_pending(timeline: Timeline) -> bool:
    """Whether any Hudi writer has planned or begun a compaction, so that no other may begin.

    :param timeline: timeline of the table with the file groups.
    """
    return any(i.action is Action.COMPACTION and i.state is not State.COMPLETED for i in timeline.pending())


def _number(config: TableConfig, name: str, given: int | None, *, least: int) -> int:
    text = config.raw.get(name, str(_DEFAULTS[name])) if given is None else str(given)
    if not text.isdecimal() or int(text) < least:
        raise InvalidInputError(
            f"{name} must be a whole number of at least {least}, not {text!r}; set the table's property, or "
            "the argument"
        )
    return int(text)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _to_avro(operation: CompactionOperation) -> dict[str, Any]:
    read, written = (operation.base_bytes + operation.log_bytes) / _MIB, operation.base_bytes / _MIB
    return {
        "baseInstantTime": operation.base_instant,
        "deltaFilePaths": list(operation.log_files),
        "dataFilePath": operation.base_file,
        "fileId": operation.file_id,
        "partitionPath": operation.partition,
        "metrics": {
            "TOTAL_LOG_FILES": float(len(operation.log_files)),
            "TOTAL_LOG_FILES_SIZE": float(operation.log_bytes),
            "TOTAL_IO_READ_MB": read,
            "TOTAL_IO_WRITE_MB": written,
            "TOTAL_IO_MB": read + written,
        },
    }


def _from_avro(record: Mapping[str, Any]) -> CompactionOperation:
    return CompactionOperation(
        record["partitionPath"] or "",
        record["fileId"],
        record["baseInstantTime"],
        record["dataFilePath"],
        tuple(record["deltaFilePaths"] or ()),
        round((record["metrics"] or {}).get("TOTAL_LOG_FILES_SIZE", 0)),
        round((record["metrics"] or {}).get("TOTAL_IO_WRITE_MB", 0) * _MIB),
    )
