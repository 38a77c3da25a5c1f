"""The choice of file groups of a merge-on-read table that a compaction rewrites.

Sources: ``ScheduleCompactionActionExecutor`` (when one is due), ``LogFileSizeBasedCompactionStrategy``,
``LogFileNumBasedCompactionStrategy``, ``BoundedIOCompactionStrategy`` and
``PartitionRegexBasedCompactionStrategy`` of Apache Hudi.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from airflow_provider.exceptions import InvalidInputError, NoSuchInstantError
from airflow_provider.services.compaction_plan import CompactionOperation, CompactionPlan
from airflow_provider.services.partition_patterns import matches
from airflow_provider.table.file_groups import FileGroupId, FileSlice, FileSystemView
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.reading import slices_of
from airflow_provider.table.timeline import Action, Instant, State, instant_path


@dataclass(frozen=True)
class TableCompactionSettings:
    """When a compaction of a merge-on-read table is due, and for which file groups.

    :param delta_commits: deltacommits since the last compaction after which another one is due
        (``hoodie.compact.inline.max.delta.commits``).
    :param min_log_files: log files that a file group must have; a group with fewer is left alone.
    :param min_log_bytes: bytes that the log files of a file group must have; a group with less is left alone.
    :param partitions: patterns of partition paths, such as ``dest=S*``; all partitions when empty.
    :param max_io_bytes: most bytes that one compaction reads and writes; its first file group may exceed
        them. The file groups with the largest log files come first. No bound when None.
    :raises InvalidInputError: when a number is out of range.
    """

    delta_commits: int = 5
    min_log_files: int = 1
    min_log_bytes: int = 0
    partitions: tuple[str, ...] = ()
    max_io_bytes: int | None = None

    def __post_init__(self) -> None:
        for name, least in (
            ("delta_commits", 1),
            ("min_log_files", 1),
            ("min_log_bytes", 0),
            ("max_io_bytes", 1),
        ):
            value = getattr(self, name)
            if name == "max_io_bytes" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InvalidInputError(f"{name} must be a whole number of at least {least}, not {value!r}")
        if not isinstance(self.partitions, tuple) or not all(
            isinstance(each, str) for each in self.partitions
        ):
            raise InvalidInputError(
                f"partitions must be patterns of partition paths, not {self.partitions!r}"
            )


def plan_table_compaction(
    table: HudiTable,
    settings: TableCompactionSettings,
    view: FileSystemView,
    taken: frozenset[FileGroupId],
) -> CompactionPlan | None:
    """Choose the file groups to compact.

    :param table: a merge-on-read table.
    :param settings: which file groups are due.
    :param view: the snapshot to plan on; its log files go into the new base files.
    :param taken: file groups to leave alone.
    :return: None when there is nothing to compact.
    """
    partitions = [path for path in view.all_partitions() if matches(path, settings.partitions)]
    found = [
        operation
        for partition in partitions
        for operation in operations_of(table, view, partition)
        if FileGroupId(partition, operation.file_id) not in taken
        and len(operation.log_files) >= settings.min_log_files
        and operation.log_bytes >= settings.min_log_bytes
    ]
    found.sort(key=lambda each: (-each.log_bytes, each.partition, each.file_id))
    chosen: list[CompactionOperation] = []
    size = 0
    for operation in found:
        size += 2 * operation.base_bytes + operation.log_bytes
        if chosen and settings.max_io_bytes is not None and size > settings.max_io_bytes:
            break
        chosen.append(operation)
    return CompactionPlan(tuple(chosen)) if chosen else None


def read_plan(table: HudiTable, instant: str, action: Action) -> CompactionPlan:
    """The pending plan of a compaction or a log compaction.

    :param table: the table.
    :param instant: the plan's requested time.
    :param action: the action, which tells a compaction from a log compaction.
    :raises NoSuchInstantError: when this package has no such plan.
    """
    try:
        plan = CompactionPlan.from_avro(
            table.storage.read(instant_path(Instant(instant, action, State.REQUESTED)))
        )
    except FileNotFoundError:
        plan = None
    if plan is None:
        raise NoSuchInstantError(
            f"table {table.location}: there is no {action} plan {instant} of this package: it was completed, "
            "rolled back, or never was; schedule one",
            instant=instant,
        )
    return plan


def slice_of(operation: CompactionOperation) -> FileSlice:
    """The file slice that an operation of a plan reads: only the files that the operation names."""

    def path(name: str) -> str:
        return f"{operation.partition}/{name}".lstrip("/")

    return FileSlice(
        operation.partition,
        operation.file_id,
        operation.base_instant,
        None if operation.base_file is None else path(operation.base_file),
        tuple(map(path, operation.log_files)),
    )


def operations_of(table: HudiTable, view: FileSystemView, partition: str) -> Iterator[CompactionOperation]:
    """The file slices of a partition that have log files, as operations of a plan.

    :param table: a merge-on-read table.
    :param view: the snapshot.
    :param partition: partition path.
    """
    sizes = {each.path: each.size for each in (*view.base_files(partition), *view.log_files(partition))}
    for file_slice in slices_of(table, view, [partition]):
        if file_slice.log_paths:
            yield CompactionOperation(
                partition,
                file_slice.file_id,
                file_slice.base_instant,
                None if file_slice.base_path is None else _name(file_slice.base_path),
                tuple(map(_name, file_slice.log_paths)),
                sum(sizes.get(path, 0) for path in file_slice.log_paths),
                sizes.get(file_slice.base_path or "", 0),
            )


def _name(path: str) -> str:
    return path.rpartition("/")[2]
