"""Checkpoints that have expired: what a window needs was archived, cleaned, or undone by a restore."""

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
    """Whether a time is in a window, whose start is not part of it; None where it has no start, or end."""
    return (start is None or time > start) and (end is None or time <= end)


def request_of(instant: Instant) -> str:
    """An instant's requested time."""
    return instant.requested_time


def completion_of(instant: Instant) -> str:
    """An instant's completion time; empty where it has none."""
    return instant.completion_time or ""


def check_not_archived(
    table: HudiTable, start: str | None, end: str | None, timeline: Timeline, *, by_completion: bool
) -> None:
    """Make sure that every commit of a window is still on the active timeline.

    :param table: the table.
    :param start: the checkpoint; None for a snapshot.
    :param end: the last checkpoint of the window; None where it ends now.
    :param timeline: the active timeline.
    :param by_completion: whether checkpoints are completion times; else they are requested times.
    :raises CheckpointExpiredError: when one was archived.
    """
    # A snapshot shows all that was archived, so it cannot be one of before.
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
        # Archival writes the history first and takes instants off the timeline after.
        if within(position(instant), None, until) and timeline.find(instant.requested_time) is None:
            why = f"commit {instant.requested_time}, completed at {completion_of(instant)}, was archived"
            raise expired(table, start, why)


def check_not_undone(table: HudiTable, start: str | None, timeline: Timeline, *, by_completion: bool) -> None:
    """Make sure that no restore has undone what a consumer has read up to its checkpoint.

    :param table: the table.
    :param start: the checkpoint; None for a snapshot.
    :param timeline: the active timeline.
    :param by_completion: see :func:`check_not_archived`.
    :raises CheckpointExpiredError: when one has.
    """
    if start is None:
        return
    for restore in timeline.completed():
        if restore.action is not Action.RESTORE or completion_of(restore) <= start:
            continue
        said = decode(timeline.read(restore))
        back_to = (said.get("extraMetadata") or {}).get(RESTORED_TO_COMPLETION)
        undone = min(said["instantsToRollback"], default=start)
        # What was undone had completed after the commit that the table went back to.
        if start > back_to if by_completion and back_to else start >= undone:
            why = f"restore {restore.requested_time} has undone commits from before it"
            raise expired(table, start, why)


def check_files_are_there(table: HudiTable, start: str | None, paths: Iterable[str]) -> None:
    """Make sure that no clean has taken a file of a window.

    :param table: the table.
    :param start: the checkpoint.
    :param paths: of the files.
    :raises CheckpointExpiredError: when one has.
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
    :param start: its checkpoint; None for a snapshot.
    :param why: what is not there any more.
    """
    asked = "a snapshot of the past" if start is None else f"the changes since checkpoint {start}"
    return CheckpointExpiredError(
        f"table {table.location}: {asked} cannot be read any more: {why}; "
        "start again from a snapshot of now, that is with neither a checkpoint nor an end (start=None)",
        location=table.location,
        checkpoint=start,
    )
