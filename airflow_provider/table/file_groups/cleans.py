"""The files that cleans have deleted, and whether a snapshot of the past is still complete.

A listing does not show that a file is missing. The plan of a clean names the files before it deletes them,
and its metadata names them afterwards (Hudi's ``HoodieCleanerPlan`` and ``HoodieCleanMetadata``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from airflow_provider.exceptions import NoSuchInstantError, SnapshotUnavailableError
from airflow_provider.table.file_groups.view import FileSystemView
from airflow_provider.table.file_names import FileGroupId
from airflow_provider.table.files import parse_data_file_name
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import (
    Action,
    Instant,
    State,
    Timeline,
    archived_commits,
    before,
    decode,
    oldest_archived,
    replaced_by_archived,
)

ORPHANED_INSTANTS = "orphaned_instants"
"""Key in the extra metadata of this package's cleans: comma-separated instants whose files were orphans."""


def cleaned_files(storage: Storage, timeline: Timeline) -> dict[str, Instant]:
    """Data files of commits that cleans have deleted, may have deleted, or plan to delete.

    :param storage: the table's storage.
    :param timeline: the active timeline.
    :return: the clean by path relative to the table.
    """
    known = _taken.setdefault(storage, {})
    found: dict[str, Instant] = {}
    for instant in timeline.instants:
        if instant.action is not Action.CLEAN:
            continue
        if (
            instant.state is State.INFLIGHT
        ):  # the file of an inflight clean is empty; its plan names the files
            instant = Instant(instant.requested_time, Action.CLEAN, State.REQUESTED)
        if instant.file_name not in known:
            try:
                content = timeline.read(instant)  # the JVM may leave an empty file
                known[instant.file_name] = frozenset(_paths(decode(content)) if content else ())
            except NoSuchInstantError:
                continue  # archived just now, together with the commits of its files
        found.update(dict.fromkeys(known[instant.file_name], instant))
    return found


def planned_files(plan: Mapping[str, Any]) -> Iterator[str]:
    """The data files that a ``HoodieCleanerPlan`` names, relative to the table."""
    for partition, files in (plan.get("filePathsToBeDeletedPerPartition") or {}).items():
        for file in files:
            yield _path(partition, file.get("filePath") or "")
    for partition, names in (plan.get("filesToBeDeletedPerPartition") or {}).items():
        for name in names:
            yield _path(partition, name)


def missing_file(
    storage: Storage, view: FileSystemView, timeline: Timeline, *, also_planned: bool = False
) -> tuple[str, Instant] | None:
    """A file that a view should show and that a clean has deleted.

    :param storage: the table's storage.
    :param view: a view of the past.
    :param timeline: the present active timeline.
    :param also_planned: whether an existing file also counts if a clean that has not completed names it.
    :return: the path of the newest such file, and the clean; None when no file is missing.
    """
    found: list[_Taken] = []
    for path, clean in cleaned_files(storage, timeline).items():
        partition, _, name = path.rpartition("/")
        written = parse_data_file_name(name)
        if written is None:
            continue
        group, instant = FileGroupId(partition, written.file_id), written.instant
        if not view.shows(instant) or group in view.replaced:
            continue
        shown = view.base_file(group)
        # A log file belongs to the newest slice that was requested before its instant completed.
        if (
            shown is None
            or shown.instant < instant
            or (written.is_log and shown.instant < view.completed_at(instant))
        ):
            found.append(_Taken(instant, path, group, clean))
            continue
        is_doomed = also_planned and clean.state is not State.COMPLETED
        # The index `files` lists a file until the clean that deletes it has completed.
        if shown.path == path and (is_doomed or storage.stat(path) is None):
            found.append(_Taken(instant, path, group, clean))
    if found:
        found = _not_explained_by_the_archive(storage, view, found)
    if not found:
        return None
    newest = max(found, key=lambda each: each[:2])
    return newest.path, newest.clean


class _Taken(NamedTuple):
    """A file that a clean has deleted and that no slice of its file group replaces in a view."""

    instant: str
    path: str
    group: FileGroupId
    clean: Instant


def _not_explained_by_the_archive(
    storage: Storage, view: FileSystemView, found: list[_Taken]
) -> list[_Taken]:
    """The files that no archived replacecommit has replaced, and that belong to a commit."""
    first = min(each.instant for each in found)
    by_archived = replaced_by_archived(
        storage, {each.group for each in found}, view.shows, completed_after=first
    )
    found = [each for each in found if each.group not in by_archived]
    old = [each for each in found if view.timeline.find(each.instant) is None]
    if not old:
        return found
    # The archived timeline has no undone commit. It tells nothing about instants that are older than itself.
    since = oldest_archived(storage)
    if not since:
        return found
    known = {each.requested_time for each in archived_commits(storage, requested_after=before(first))}
    undone = {each for each in old if each.instant not in known and since <= each.instant}
    return [each for each in found if each not in undone]


def check_complete(storage: Storage, view: FileSystemView, timeline: Timeline, as_of: str | None) -> None:
    """Make sure that no file of a snapshot that leaves out commits was cleaned.

    :param storage: the table's storage.
    :param view: the snapshot.
    :param timeline: the present active timeline.
    :param as_of: the moment, for the error; None for the present snapshot without some transactions.
    :raises SnapshotUnavailableError: when a cleaner has deleted one of its files.
    """
    if found := missing_file(storage, view, timeline):
        path, clean = found
        asked = f"as of {as_of}" if as_of else "of these write ids"
        raise SnapshotUnavailableError(
            f"table {storage.root}: the snapshot {asked} cannot be read any more: clean "
            f"{clean.requested_time} deleted {path}; read a later one",
            instant=as_of,
            clean=clean.requested_time,
        )


def _paths(record: Mapping[str, Any]) -> Iterable[str]:
    orphaned = set(((record.get("extraMetadata") or {}).get(ORPHANED_INSTANTS) or "").split(","))
    done = (record.get("partitionMetadata") or {}).items()
    # A failed deletion may have deleted the file, if only the answer was lost.
    tried = ("successDeleteFiles", "failedDeleteFiles")
    deleted = (_path(part, name) for part, said in done for each in tried for name in said[each])
    for path in (*planned_files(record), *deleted):
        parsed = parse_data_file_name(path.rpartition("/")[2])
        if parsed is None or parsed.instant not in orphaned:
            yield path


def _path(partition: str, file: str) -> str:
    # Hudi writes absolute paths into plans, and names into metadata.
    return f"{partition}/{file.rpartition('/')[2]}".lstrip("/")


_taken: WeakKeyDictionary[Storage, dict[str, frozenset[str]]] = WeakKeyDictionary()
