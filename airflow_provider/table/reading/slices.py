"""The file slices of a snapshot, with their log files.

:mod:`airflow_provider.table.reading.log_merge` reads their rows.
"""

from __future__ import annotations

from collections.abc import Iterable

from airflow_provider.table.file_groups import FileGroupId, FileSlice, FileSystemView
from airflow_provider.table.file_names import parse_base_file_name
from airflow_provider.table.files import LogFileName
from airflow_provider.table.hudi_table import HudiTable


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
    for partition in partitions:
        names = list(table.storage.names(partition))
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
    return found


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
