"""Hudi's markers: they name the data files of a write, each put before its data file.

Another Hudi writer that rolls back a dead write finds its files by the markers; without markers it deletes
nothing. Before a write commits, it finds the files of failed task attempts by their markers, and deletes
them. It deletes its markers once it has committed; a rollback deletes those of the write that it undoes.

On a local file system each process adds a line for each data file to a file of its own, ``MARKERS<id>``,
beside the file ``MARKERS.type`` (Hudi's default, ``TIMELINE_SERVER_BASED``). Files and folders for single
markers would make commits slow: ext4 does not use the inode of a deleted file again within half a minute. An
object store has no appends, so there each data file has an empty file of its own (``DIRECT``): one request,
where a data file costs several.

Sources: ``DirectWriteMarkers``, ``TimelineServerBasedWriteMarkers``, ``MarkerUtils``,
``HoodieTable.reconcileAgainstMarkers``, ``MarkerBasedRollbackStrategy``, ``TimelineArchiverV2`` of Apache
Hudi.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from functools import cache
from uuid import uuid4

from airflow_provider.table.storage import Storage

MARKERS_FOLDER = ".hoodie/.temp"

_OF_PROCESS = "MARKERS"
_TYPE = "MARKERS.type"
_TIMELINE_SERVER_BASED = b"TIMELINE_SERVER_BASED"


class MarkerType(StrEnum):
    """The kind of a data file (``IOType``)."""

    CREATE = "CREATE"
    """The first file of its file group."""

    MERGE = "MERGE"
    """A later base file of its file group."""

    APPEND = "APPEND"
    """A log file of its file group."""


def write_marker(storage: Storage, instant: str, data_file: str, marker_type: MarkerType) -> None:
    """Announce that a data file is about to be written. A second call does no harm.

    :param storage: the table's storage.
    :param instant: requested time of the write.
    :param data_file: path of the data file, relative to the table.
    :param marker_type: the kind of the data file.
    """
    folder, marker = f"{MARKERS_FOLDER}/{instant}", f"{data_file}.marker.{marker_type}"
    if not storage.takes_appends:
        storage.put_if_absent(f"{folder}/{marker}", b"")
        return
    mine, line = f"{folder}/{_OF_PROCESS}{_process(os.getpid())}", f"{marker}\n".encode()
    if not storage.append(mine, line):
        # The type comes first: without it another Hudi writer looks for files of single markers.
        storage.put_if_absent(f"{folder}/{_TYPE}", _TIMELINE_SERVER_BASED)
        if not storage.put_if_absent(mine, line):  # another thread was faster
            storage.append(mine, line)


@cache
def _process(pid: int) -> int:
    """A number of this process, which no process on another machine has; a forked process has its own."""
    return uuid4().int >> 65


def marked_files(storage: Storage, instant: str) -> list[str]:
    """Paths of the data files that a write has begun, relative to the table; some may not exist yet.

    :param storage: the table's storage.
    :param instant: requested time of the write.
    """
    folder = f"{MARKERS_FOLDER}/{instant}"
    return [marker.rpartition(".marker.")[0] for marker in _markers(storage, folder)]


def _markers(storage: Storage, folder: str) -> Iterator[str]:
    for file in storage.list(folder, recursive=True):
        name = file.path.removeprefix(f"{folder}/")
        if not name.startswith(_OF_PROCESS):
            yield name
        elif name != _TYPE:
            with suppress(FileNotFoundError):  # just deleted by a rollback
                lines = storage.read(file.path).decode().splitlines()
                yield from (line for line in lines if ".marker." in line)


def delete_markers(storage: Storage, instant: str) -> None:
    """Delete the folder with the markers of an instant that has ended.

    :param storage: the table's storage.
    :param instant: requested time of the instant.
    """
    storage.delete_folder(f"{MARKERS_FOLDER}/{instant}")


def delete_markers_upto(storage: Storage, instant: str) -> None:
    """Delete the markers of writers that died before they could delete them.

    :param storage: the table's storage.
    :param instant: requested time up to which all instants have ended.
    """
    for left in storage.names(MARKERS_FOLDER):
        if left <= instant:
            delete_markers(storage, left)
