"""Hudi's markers: files that name the data files of a write, each put before its data file.

Another Hudi writer that rolls back a dead write finds its files by the markers; without markers it deletes
nothing. These are direct markers: one empty file for each data file, which is Hudi's default without a file
``MARKERS.type``. On an object store a marker costs one request, and a data file costs several. Before a write
commits, it finds the files of failed task attempts by their markers, and deletes them. It deletes its markers
once it has committed; a rollback deletes those of the write that it undoes.

Sources: ``DirectWriteMarkers``, ``HoodieTable.reconcileAgainstMarkers``, ``MarkerBasedRollbackStrategy``,
``TimelineArchiverV2`` of Apache Hudi.
"""

from __future__ import annotations

from enum import StrEnum

from airflow_provider.table.storage import Storage

MARKERS_FOLDER = ".hoodie/.temp"


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
    storage.put_if_absent(f"{MARKERS_FOLDER}/{instant}/{data_file}.marker.{marker_type}", b"")


def marked_files(storage: Storage, instant: str) -> list[str]:
    """Paths of the data files that a write has begun, relative to the table; some may not exist yet.

    :param storage: the table's storage.
    :param instant: requested time of the write.
    """
    folder = f"{MARKERS_FOLDER}/{instant}"
    markers = (each.path.removeprefix(f"{folder}/") for each in storage.list(folder, recursive=True))
    return [marker.rpartition(".marker.")[0] for marker in markers]


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
