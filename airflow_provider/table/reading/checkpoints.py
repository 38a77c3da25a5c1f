"""Expired checkpoints: a commit or file of the window was archived, cleaned, or undone by a restore."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_provider.exceptions import CheckpointExpiredError
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.timeline import (
    RESTORED_TO_COMPLETION,
    Action,
    Instant,
    Timeline,
    archived_commits,
    decode,
)


def within(time: str, start: str | None, end: str | None) -> bool:
    """Whether a time is after the window's start and not after its end; None is an open end."""
    return (start is None or time > start) and (end is None or time <= end)


def request_of(instant: Instant) -> str:
    """An instant's requested time."""
    return instant.requested_time


def completion_of(instant: Instant) -> str:
    """An instant's completion time; empty when it has none."""
    return instant.completion_time or ""


def check_not_archived(
    table: HudiTable, start: str | None, end: str | None, timeline: Timeline, *, by_completion: bool
) -> None:
    """Make sure that every commit of a window is still on the active timeline.

    :param table: the table.
    :param start: the checkpoint; None for a snapshot.
    :param end: the last checkpoint of the window; None when the window ends now.
    :param timeline: the active timeline.
    :param by_completion: whether checkpoints are completion times; otherwise they are requested times.
    :raises CheckpointExpiredError: when a commit was archived.
    """
    # A snapshot shows all archived commits, so it must not end before one of them.
    after, until = (end, None) if start is None else (start, end)
    if after is None:
        return
    if by_completion:
        archived = archived_commits(table.storage, completed_after=after)
        position = completion_of
    else:
        archived = archived_commits(table.storage, table.config.layout, requested_after=after)
        position = request_of
    for instant in archived:
        # Archival writes the archived timeline before it deletes instants from the active one.
        if within(position(instant), None, until) and timeline.find(instant.requested_time) is None:
            why = f"commit {instant.requested_time}, completed at {completion_of(instant)}, was archived"
            raise expired(table, start, why)


def check_not_undone(table: HudiTable, start: str | None, timeline: Timeline, *, by_completion: bool) -> None:
    """Make sure that no restore has undone a commit that a consumer has read up to its checkpoint.

    :param table: the table.
    :param start: the checkpoint; None for a snapshot.
    :param timeline: the active timeline.
    :param by_completion: see :func:`check_not_archived`.
    :raises CheckpointExpiredError: when a restore has undone one.
    """
    if start is None:
        return
    for restore in timeline.completed():
        if restore.action is not Action.RESTORE or completion_of(restore) <= start:
            continue
        metadata = decode(timeline.read(restore))
        back_to = (metadata.get("extraMetadata") or {}).get(RESTORED_TO_COMPLETION)
        undone = min(metadata["instantsToRollback"], default=start)
        # A restore undoes the commits that completed after the one that the table goes back to.
        if start > back_to if by_completion and back_to else start >= undone:
            why = f"restore {restore.requested_time} has undone commits from before it"
            raise expired(table, start, why)


def check_files_are_there(table: HudiTable, start: str | None, paths: Iterable[str]) -> None:
    """Make sure that no clean has deleted a file of a window.

    :param table: the table.
    :param start: the checkpoint.
    :param paths: the files' paths.
    :raises CheckpointExpiredError: when a clean has deleted one.
    """
    by_folder: dict[str, set[str]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        by_folder.setdefault(folder, set()).add(name)
    for folder, names in sorted(by_folder.items()):
        if gone := names - set(table.storage.names(folder)):
            path = f"{folder}/{min(gone)}".lstrip("/")
            raise expired(table, start, f"base file {path} of its window was cleaned")


def expired(table: HudiTable, start: str | None, why: str) -> CheckpointExpiredError:
    """The error for a window that cannot be read any more.

    :param table: the table.
    :param start: the window's checkpoint; None for a snapshot.
    :param why: which commit or file is gone.
    """
    asked = "a snapshot of the past" if start is None else f"the changes since checkpoint {start}"
    return CheckpointExpiredError(
        f"table {table.location}: {asked} cannot be read any more: {why}; "
        "start again from a snapshot of now, that is with neither a checkpoint nor an end (start=None)",
        location=table.location,
        checkpoint=start,
    )
