"""The choice of file groups of a merge-on-read table that a compaction rewrites.

Sources: ``LogFileSizeBasedCompactionStrategy``, ``LogFileNumBasedCompactionStrategy``,
``BoundedIOCompactionStrategy``, ``DayBasedCompactionStrategy`` and ``PartitionRegexBasedCompactionStrategy``
of Apache Hudi.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import date

from airflow_provider.concurrency.plans import end_of_plan
from airflow_provider.exceptions import InvalidInputError, NoSuchInstantError
from airflow_provider.services.compaction_plan import CompactionOperation, CompactionPlan
from airflow_provider.services.partition_patterns import matches
from airflow_provider.services.table_compaction.compaction_settings import TableCompactionSettings
from airflow_provider.table.file_groups import FileGroupId, FileSlice, FileSystemView
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.reading import slices_of
from airflow_provider.table.timeline import Action, Instant, State, instant_path

_DAY = re.compile(r"(\d{4})[/-](\d{1,2})[/-](\d{1,2})")


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
    :raises InvalidInputError: when the newest days are asked for, and a partition is no day.
    """
    partitions = _partitions_of(table, settings, view)
    found = [
        operation
        for partition in partitions
        for operation in operations_of(table, view, partition)
        if FileGroupId(partition, operation.file_id) not in taken
        and len(operation.log_files) >= settings.min_log_files
        and operation.log_bytes >= settings.min_log_bytes
    ]
    found.sort(key=lambda each: (-each.log_bytes, each.partition, each.file_id))
    if settings.most_files_first:
        found.sort(key=lambda each: -len(each.log_files))
    if settings.newest_days is not None:
        found.sort(key=lambda each: partitions.index(each.partition))
    chosen: list[CompactionOperation] = []
    size = 0
    for operation in found:
        size += 2 * operation.base_bytes + operation.log_bytes
        if chosen and settings.max_io_bytes is not None and size > settings.max_io_bytes:
            break
        chosen.append(operation)
    return CompactionPlan(tuple(chosen)) if chosen else None


def _partitions_of(table: HudiTable, settings: TableCompactionSettings, view: FileSystemView) -> list[str]:
    """The partitions to compact; those of the newest days first, if they are asked for."""
    wanted = re.compile(settings.partition_regex or "")
    found = [
        path
        for path in view.all_partitions()
        if matches(path, settings.partitions) and wanted.search(path) is not None
    ]
    if settings.newest_days is None:
        return found
    return sorted(found, key=lambda path: _day_of(table, path), reverse=True)[: settings.newest_days]


def _day_of(table: HudiTable, path: str) -> date:
    """The day of a partition, with or without the names of its columns.

    Hudi's class reads only ``yyyy/MM/dd``. A column with dates has paths such as ``day=2024-05-01``.
    """
    day = _DAY.fullmatch("/".join(each.rpartition("=")[2] for each in path.split("/")))
    with suppress(ValueError):  # the 31st of a shorter month
        if day is not None:
            return date(*map(int, day.groups()))
    raise InvalidInputError(
        f"table {table.location}: partition {path!r} is no day such as 2024/05/01 or day=2024-05-01, and the "
        "partitions of the newest days are asked for; leave it out by partitions, or choose another strategy"
    )


def read_plan(table: HudiTable, instant: str, action: Action) -> CompactionPlan:
    """The plan of a compaction or a log compaction that is pending, or has completed.

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
            f"table {table.location}: there is no {action} plan {instant} of this package: "
            f"{end_of_plan(table, instant)}; schedule another one (in a DAG: clear the task that has "
            "scheduled it, with the tasks after it)",
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
