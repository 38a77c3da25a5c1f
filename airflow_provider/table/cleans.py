"""What cleans have deleted, and whether a snapshot of the past is still whole.

A listing does not tell what is not there. What a clean took is in its plan, before it is gone, and in its
metadata after (Hudi's ``HoodieCleanerPlan`` and ``HoodieCleanMetadata``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from airflow_provider.exceptions import NoSuchInstantError, SnapshotUnavailableError
from airflow_provider.table.archived_timeline import archived_since, newest_archived
from airflow_provider.table.base_file import parse_base_file_name
from airflow_provider.table.file_groups import FileGroupId, FileSystemView
from airflow_provider.table.instant import Action, Instant, State
from airflow_provider.table.metadata import decode
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import Timeline

ORPHANED_INSTANTS = "orphaned_instants"
"""In the extra metadata of our cleans: instants, comma separated, whose files were of no commit."""


def taken(storage: Storage, timeline: Timeline) -> dict[str, Instant]:
    """Data files that the cleans on a timeline have deleted, or plan to, and were of a commit.

    :param storage: the table's storage.
    :param timeline: the active timeline.
    :return: the clean by path relative to the table.
    """
    known = _taken.setdefault(storage, {})
    found: dict[str, Instant] = {}
    for instant in timeline.instants:
        if instant.action is not Action.CLEAN:
            continue
        if instant.state is State.INFLIGHT:  # an inflight clean says nothing, its plan does
            instant = Instant(instant.requested_time, Action.CLEAN, State.REQUESTED)
        if instant.file_name not in known:
            try:
                content = timeline.read(instant)  # the JVM may leave an empty one
                known[instant.file_name] = frozenset(_paths(decode(content)) if content else ())
            except NoSuchInstantError:
                continue  # archived in this moment, and all that it may concern with it
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


def lacking(
    storage: Storage, view: FileSystemView, timeline: Timeline, *, also_planned: bool = False
) -> tuple[str, Instant] | None:
    """A file that a view should show, and a clean took.

    :param storage: the table's storage.
    :param view: of the past.
    :param timeline: the active timeline of now.
    :param also_planned: whether a file that is still there, but named by a clean that has not completed,
        counts too.
    :return: the newest such file's path, and the clean; None when the view shows everything.
    """
    found: list[tuple[str, str, Instant]] = []
    for path, clean in taken(storage, timeline).items():
        partition, _, name = path.rpartition("/")
        parsed = parse_base_file_name(name)
        if parsed is None:
            continue
        group, instant = FileGroupId(partition, parsed[0]), parsed[2]
        if not view.shows(instant) or group in view.replaced:
            continue
        shown = view.base_file(group)
        is_doomed = also_planned and clean.state is not State.COMPLETED
        if shown is None or shown.instant < instant or (is_doomed and shown.path == path):
            found.append((instant, path, clean))
    return max(found, key=lambda each: each[:2])[1:] if found else None


def check_complete(storage: Storage, view: FileSystemView, timeline: Timeline, as_of: str) -> None:
    """Make sure that nothing that a snapshot of the past shows was cleaned, and that it shows no more.

    :param storage: the table's storage.
    :param view: the snapshot.
    :param timeline: the active timeline of now.
    :param as_of: the moment, for the error.
    :raises SnapshotUnavailableError: when a cleaner has deleted some of it, or when a commit that completed
        later was archived, because it was requested earlier.
    """
    later = archived_since(storage, timeline, newest_archived(storage), timeline.bound(as_of))
    if later is not None:
        raise SnapshotUnavailableError(
            f"table {storage.root}: the snapshot as of {as_of} cannot be told any more: commit "
            f"{later.requested_time}, which completed later, was archived; read a later one",
            instant=as_of,
        )
    if found := lacking(storage, view, timeline):
        path, clean = found
        raise SnapshotUnavailableError(
            f"table {storage.root}: the snapshot as of {as_of} cannot be read any more: clean "
            f"{clean.requested_time} deleted {path}; read a later one",
            instant=as_of,
            clean=clean.requested_time,
        )


def _paths(record: Mapping[str, Any]) -> Iterable[str]:
    orphaned = set(((record.get("extraMetadata") or {}).get(ORPHANED_INSTANTS) or "").split(","))
    done = (record.get("partitionMetadata") or {}).items()
    deleted = (_path(part, name) for part, said in done for name in said["successDeleteFiles"])
    for path in (*planned_files(record), *deleted):
        parsed = parse_base_file_name(path.rpartition("/")[2])
        if parsed is None or parsed[2] not in orphaned:
            yield path


def _path(partition: str, file: str) -> str:
    # Hudi writes absolute paths into plans, and names into metadata.
    return f"{partition}/{file.rpartition('/')[2]}".lstrip("/")


_taken: WeakKeyDictionary[Storage, dict[str, frozenset[str]]] = WeakKeyDictionary()
