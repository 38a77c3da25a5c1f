"""The file slices of a snapshot, with their log files, and those that a query opens.

A query skips file slices by partition, record key, and the statistics of their files.
:mod:`airflow_provider.table.reading.log_merge` reads the rows of a slice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor

from airflow_provider.exceptions import TableServiceError
from airflow_provider.table.file_groups import FileGroupId, FileSlice, FileSystemView, looking_again
from airflow_provider.table.file_names import parse_base_file_name
from airflow_provider.table.files import DATA_BLOCKS, LogFileName
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata_table import MetadataPartition
from airflow_provider.table.reading.log_merge import SliceReader
from airflow_provider.table.skipping import Step, Where, groups_by_key, select_partitions, without_matches

_SLICES = "file slices"
_READERS = 8  # of the headers of log blocks, which lie in a file's first bytes


@looking_again
def file_slices(table: HudiTable, as_of: str | None = None) -> list[FileSlice]:
    """The newest visible slice of every live file group, with its log files.

    :param table: the table, copy-on-write or merge-on-read.
    :param as_of: see :meth:`~airflow_provider.table.timeline.active.Timeline.as_of`; now when None.
    """
    view = table.view(as_of)
    return slices_of(table, view, view.all_partitions())


def slices_of(table: HudiTable, view: FileSystemView, partitions: Iterable[str]) -> list[FileSlice]:
    """The newest slice of every live file group of some partitions, with its log files.

    :param table: the table, copy-on-write or merge-on-read.
    :param view: the snapshot.
    :param partitions: partition paths.
    """
    found = []
    listed = {}
    for partition in partitions:
        names = listed[partition] = list(table.storage.names(partition))
        bases = _bases(view, partition, names)
        logs: dict[str, list[tuple[str, int, str, str]]] = {}
        for name in names:
            log_file = LogFileName.parse(name)
            if log_file is None or FileGroupId(partition, log_file.file_id) in view.replaced:
                continue
            # In layout 1 a file's name tells only its slice. The reader skips blocks of instants that were
            # rolled back.
            if table.config.layout == 1 or view.shows(log_file.instant):
                place = (log_file.instant, log_file.version, log_file.write_token, name)
                logs.setdefault(log_file.file_id, []).append(place)
        for file_id in sorted({*bases, *logs}):
            base_instant, base_path = bases.get(file_id, ("", None))
            on_it = [
                log
                for log in logs.get(file_id, ())
                if log[0] >= base_instant or view.completed_at(log[0]) >= base_instant
            ]
            on_it.sort(key=lambda log: (view.completed_at(log[0]), *log))
            paths = tuple(f"{partition}/{name}".lstrip("/") for *_, name in on_it)
            instant = base_instant or on_it[0][0]
            found.append(FileSlice(partition, file_id, instant, base_path, paths))
    view.check_standing(listed)
    return found


def slices_of_query(
    table: HudiTable,
    view: FileSystemView,
    reader: SliceReader,
    where: Where | None,
    steps: list[Step] | None = None,
) -> list[FileSlice]:
    """The file slices that can have a row of a query.

    :param table: a merge-on-read table.
    :param view: the snapshot.
    :param reader: reads its slices.
    :param where: the query's condition; None for all rows.
    :param steps: takes the steps that skip some; then all slices of the snapshot are counted.
    :raises InvalidInputError: when the condition cannot be evaluated over the table's columns.
    """
    if where is None:
        return slices_of(table, view, view.all_partitions())
    if (found := _with_keys(table, view, reader, where)) is not None:
        if steps is not None:
            everything = len(slices_of(table, view, view.all_partitions()))
            step = Step(MetadataPartition.RECORD_INDEX, everything, everything - len(found), _SLICES)
            steps.append(step)
        return found
    partitions = select_partitions(view, table.config, reader.schema.columns, where, steps)
    slices = slices_of(table, view, partitions)
    kept = _by_statistics(view, reader, where, slices)
    if steps is not None and view.indexes is not None and view.indexes.has(MetadataPartition.COLUMN_STATS):
        steps.append(Step(MetadataPartition.COLUMN_STATS, len(slices), len(slices) - len(kept), _SLICES))
    return kept


def _with_keys(
    table: HudiTable, view: FileSystemView, reader: SliceReader, where: Where
) -> list[FileSlice] | None:
    """The file slices with the record keys that a query names; None where no index can tell."""
    groups = groups_by_key(view, table.config, reader.schema.columns, where)
    if groups is None:
        return None
    slices = slices_of(table, view, sorted({group.partition_path for group in groups}))
    found = [each for each in slices if each.file_group in groups]
    return found if len(found) == len(groups) else None  # otherwise the index is not of this snapshot


def _by_statistics(
    view: FileSystemView, reader: SliceReader, where: Where, slices: list[FileSlice]
) -> list[FileSlice]:
    if reader.semantics.keeps_values or reader.config.layout == 1:
        # A merged row has values of several versions. In layout 1, later writes append to a log file, and
        # nothing says which of them its statistics know.
        asked = [each for each in slices if not each.log_paths]
    else:
        asked = slices
    skipped = without_matches(view, reader.schema.columns, where, asked)
    with ThreadPoolExecutor(_READERS, "log-block-headers") as pool:
        rows_are_known = pool.map(lambda one: _rows_are_known(reader, *one), skipped)
        groups = {each.file_group for (each, _), known in zip(skipped, rows_are_known, strict=True) if known}
    return [each for each in slices if each.file_group not in groups]


def _rows_are_known(reader: SliceReader, file_slice: FileSlice, without_statistics: Collection[str]) -> bool:
    """Whether the statistics of a file slice cover its rows, by the headers of its log blocks.

    They do not where a block has partial updates, as of the JVM's ``MERGE INTO``: a merged row then takes
    values from an older version, and the statistics say null for the columns that the block lacks. A log file
    without statistics may only delete keys.
    """
    try:
        for path in file_slice.log_paths:
            kinds = [each for each in reader.blocks_of_file(path) if each.block_type in DATA_BLOCKS]
            if any(each.is_partial for each in kinds) or (kinds and path in without_statistics):
                return False
    except (FileNotFoundError, TableServiceError):
        return False  # who reads the slice sees the error
    return True


def _bases(view: FileSystemView, partition: str, names: list[str]) -> dict[str, tuple[str, str]]:
    newest: dict[str, tuple[str, str]] = {}
    for name in names:
        parsed = parse_base_file_name(name)
        if parsed is None or FileGroupId(partition, parsed[0]) in view.replaced:
            continue
        if view.shows(parsed[2]):
            path = f"{partition}/{name}".lstrip("/")
            newest[parsed[0]] = max(newest.get(parsed[0], ("", "")), (parsed[2], path))
    return newest
