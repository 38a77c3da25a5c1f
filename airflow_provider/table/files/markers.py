"""Hudi's markers: files that say which data files a write makes, each put before the data file.

By them another Hudi writer finds what a dead write has left, when it rolls that back: without them it
deletes nothing. They are direct ones: one empty file for each data file, which Hudi takes for granted where
there is no ``MARKERS.type``. On an object store that is one request, beside the several of a data file. A
write takes its own away once it has committed, and whoever rolls it back does.

Sources: ``DirectWriteMarkers``, ``MarkerBasedRollbackStrategy``, ``TimelineArchiverV2`` of Apache Hudi.
"""

from __future__ import annotations

from enum import StrEnum

from airflow_provider.table.storage import Storage

MARKERS_FOLDER = ".hoodie/.temp"


class MarkerType(StrEnum):
    """How a data file comes (``IOType``)."""

    CREATE = "CREATE"
    """It is the first of its file group."""

    MERGE = "MERGE"
    """It is the next of its file group."""


def write_marker(storage: Storage, instant: str, data_file: str, marker_type: MarkerType) -> None:
    """Say that a data file is about to be written; once more does no harm.

    :param storage: the table's storage.
    :param instant: requested time of the write.
    :param data_file: its path, relative to the table.
    :param marker_type: how it comes.
    """
    storage.put_if_absent(f"{MARKERS_FOLDER}/{instant}/{data_file}.marker.{marker_type}", b"")


def delete_markers(storage: Storage, instant: str) -> None:
    """Delete the markers of an instant that has ended, or rather their folder.

    :param storage: the table's storage.
    :param instant: its requested time.
    """
    storage.delete_folder(f"{MARKERS_FOLDER}/{instant}")


def delete_markers_upto(storage: Storage, instant: str) -> None:
    """Delete what is left of markers: whoever wrote them died before they could go.

    :param storage: the table's storage.
    :param instant: requested time up to which all instants have ended.
    """
    for left in storage.names(MARKERS_FOLDER):
        if left <= instant:
            delete_markers(storage, left)
