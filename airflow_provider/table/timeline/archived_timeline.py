"""The archived timeline: instants that were moved out of the active one.

Layout 2 is Hudi's LSM timeline (``LSMTimeline``): Parquet files in ``.hoodie/timeline/history``,
named ``<first instant>_<last instant>_<level>.parquet``. ``manifest_<n>`` lists the valid files, and
``_version_`` names the valid manifest. A manifest is complete as soon as it exists, so this module uses the
newest one, even while ``_version_`` still names an older one.

Layout 1 (table version 6) has log files with Avro blocks in ``.hoodie/archived``; see
:mod:`airflow_provider.table.timeline.legacy_archive`.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from airflow_provider.exceptions import CorruptTableError, NoSuchInstantError
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline.active import TIMELINE_FOLDER, Timeline
from airflow_provider.table.timeline.instant import WRITE_ACTIONS, Action, Instant, State
from airflow_provider.table.timeline.legacy_archive import legacy_records
from airflow_provider.table.timeline.metadata import CommitMetadata, decode_commit_metadata

HISTORY_FOLDER = f"{TIMELINE_FOLDER}/history"
VERSION_PATH = f"{HISTORY_FOLDER}/_version_"

_T = TypeVar("_T")

_MANIFEST = re.compile(r"^manifest_(\d+)$")
_COLUMNS = ("instantTime", "completionTime", "action")


@dataclass(frozen=True)
class ArchivedInstant:
    """An instant with its content, as it was when it was archived.

    :param instant: the completed instant.
    :param metadata: content of the completed instant, Avro; None when it was empty.
    :param plan: content of the requested instant, Avro; None when it was empty.
    """

    instant: Instant
    metadata: bytes | None = field(repr=False)
    plan: bytes | None = field(repr=False)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> ArchivedInstant:
        """Read a row of a Parquet file."""
        return cls(_instant(row), row["metadata"], row["plan"])

    @property
    def commit_metadata(self) -> CommitMetadata:
        """The commit metadata of a commit or replacecommit."""
        return decode_commit_metadata(self.metadata or b"")


class HistoryFile(NamedTuple):
    """A Parquet file of the archived timeline.

    :param name: its name, without its folder.
    :param size: bytes.
    """

    name: str
    size: int

    @property
    def first(self) -> str:
        """Requested time of its first instant."""
        return self.name.split("_")[0]

    @property
    def last(self) -> str:
        """Requested time of its last instant."""
        return self.name.split("_")[1]

    @property
    def level(self) -> int:
        """The number of times that its instants were merged into a larger file."""
        return int(self.name.removesuffix(".parquet").split("_")[2])


@dataclass(frozen=True)
class Manifest:
    """The list of the files of the archived timeline.

    :param version: its number; 0 when no instant is archived.
    :param files: in the order in which they were added.
    """

    version: int = 0
    files: tuple[HistoryFile, ...] = ()

    @classmethod
    def newest(cls, storage: Storage) -> Manifest:
        """The newest manifest of a table.

        :param storage: the table's storage.
        :raises CorruptTableError: when it is not a manifest.
        """
        version = max(manifest_versions(storage), default=0)
        if not version:
            return cls()
        try:
            return cls.read(storage, version)
        except FileNotFoundError:
            return cls.newest(storage)  # deleted, because there are newer ones

    @classmethod
    def read(cls, storage: Storage, version: int) -> Manifest:
        """One manifest of a table.

        :raises FileNotFoundError: when it does not exist, or is deleted already.
        :raises CorruptTableError: when it is not a manifest.
        """
        content = storage.read(manifest_path(version))
        try:
            listed = json.loads(content)["files"]
            files = tuple(HistoryFile(str(each["fileName"]), int(each["fileLen"])) for each in listed)
        except (ValueError, KeyError, TypeError) as error:
            path = manifest_path(version)
            raise CorruptTableError(
                f"table {storage.root}: {path} is not a manifest of the archived timeline: {error!r}",
                path=path,
            ) from error
        return cls(version, files)

    def to_json(self) -> bytes:
        """The manifest's file content."""
        files = [{"fileName": each.name, "fileLen": each.size} for each in self.files]
        return json.dumps({"files": files}, indent=2).encode()


def manifest_path(version: int) -> str:
    """The path of a manifest, relative to the table.

    :param version: its number.
    """
    return f"{HISTORY_FOLDER}/manifest_{version}"


def manifest_versions(storage: Storage) -> list[int]:
    """The numbers of the existing manifests."""
    found = (_MANIFEST.match(name) for name in storage.names(HISTORY_FOLDER))
    return [int(match[1]) for match in found if match]


@contextmanager
def reading(storage: Storage, file: HistoryFile) -> Iterator[None]:
    """A context that reads a file of the archived timeline, and translates its errors.

    :raises CorruptTableError: when it is no such file.
    """
    try:
        yield
    except ValueError as error:  # also raised by Arrow, and for an action of a later Hudi
        path = f"{HISTORY_FOLDER}/{file.name}"
        raise CorruptTableError(
            f"table {storage.root}: {path} of the archived timeline cannot be read: {error}", path=path
        ) from error


def newest_archived(storage: Storage) -> str:
    """Requested time of the last archived instant of a table of layout 2; empty when there is none.

    Archival begins with the oldest instant. It stops before an instant that is pending, or whose rollback is
    not finished. So every instant up to this one has ended.

    :param storage: the table's storage.
    """
    return max((each.last for each in Manifest.newest(storage).files), default="")


def oldest_archived(storage: Storage) -> str:
    """Requested time of the first archived instant of a table of layout 2; empty when there is none.

    :param storage: the table's storage.
    """
    return min((each.first for each in Manifest.newest(storage).files), default="")


def archived_instants(
    storage: Storage,
    layout: int = 2,
    *,
    actions: Collection[Action] = tuple(Action),
    requested_after: str | None = None,
    completed_after: str | None = None,
) -> Iterator[Instant]:
    """Completed instants that were archived, without their content.

    From an LSM timeline this reads only the columns with times and actions, and skips files whose instants
    were all requested too early.

    :param storage: the table's storage.
    :param layout: timeline layout version.
    :param actions: the wanted actions.
    :param requested_after: only instants that were requested after this time.
    :param completed_after: only instants that completed after this time.
    :raises CorruptTableError: when the archived timeline cannot be read.
    """
    wanted = _Wanted(frozenset(actions), requested_after or "", completed_after or "")
    if layout == 1:
        for record in legacy_records(storage):
            if wanted.has(record.instant):
                yield record.instant
        return
    for row in _rows(storage, list(_COLUMNS), wanted):
        yield _instant(row)


def archived_commits(
    storage: Storage,
    layout: int = 2,
    *,
    requested_after: str | None = None,
    completed_after: str | None = None,
) -> Iterator[Instant]:
    """Completed commits and replacecommits that were archived; see :func:`archived_instants`."""
    return archived_instants(
        storage,
        layout,
        actions=WRITE_ACTIONS,
        requested_after=requested_after,
        completed_after=completed_after,
    )


def archived_since(storage: Storage, timeline: Timeline, upto: str, moment: str) -> Instant | None:
    """An archived commit that completed after a moment; other Hudi readers show it as of that moment too.

    :param storage: the table's storage.
    :param timeline: the active timeline.
    :param upto: requested time up to which instants leave the timeline, or have left it.
    :param moment: completion time.
    """
    leaving = (commit for commit in timeline.commits() if commit.requested_time <= upto)
    later = (commit for commit in leaving if (commit.completion_time or "") > moment)
    return next(itertools.chain(later, archived_commits(storage, completed_after=moment)), None)


def replaced_by_archived(
    storage: Storage,
    file_groups: Collection[tuple[str, str]],
    is_shown: Callable[[str], bool],
    *,
    completed_after: str = "",
) -> set[tuple[str, str]]:
    """The file groups that archived replacecommits have replaced.

    It reads the newest history first, and stops once all file groups are found.

    :param storage: the table's storage.
    :param file_groups: partition path and file id of each.
    :param is_shown: tells by the requested time whether a replacecommit counts.
    :param completed_after: only replacecommits that completed after this time.
    """
    wanted = _Wanted(frozenset({Action.REPLACE_COMMIT}), completed_after=completed_after)

    def read(manifest: Manifest) -> list[tuple[str, str]]:
        missing, found = set(file_groups), set[tuple[str, str]]()
        for file in sorted(manifest.files, key=lambda each: each.last, reverse=True):
            if not missing:
                break
            for row in _rows_in(storage, file, [*_COLUMNS, "metadata", "plan"], wanted):
                if is_shown(row["instantTime"]):
                    replaced = ArchivedInstant.from_row(row).commit_metadata.replaced
                    found |= {group for group in missing if group[1] in replaced.get(group[0], ())}
            missing -= found
        return sorted(found)

    return set(_of_newest(storage, read))


def archived(
    storage: Storage,
    layout: int = 2,
    *,
    actions: Collection[Action] = tuple(Action),
    requested_after: str | None = None,
    completed_after: str | None = None,
) -> Iterator[ArchivedInstant]:
    """Like :func:`archived_instants`, with content."""
    wanted = _Wanted(frozenset(actions), requested_after or "", completed_after or "")
    if layout == 1:
        for record in legacy_records(storage):
            if wanted.has(record.instant):
                yield ArchivedInstant(record.instant, record.metadata, record.plan)
        return
    for row in _rows(storage, [*_COLUMNS, "metadata", "plan"], wanted):
        yield ArchivedInstant.from_row(row)


def find_archived(storage: Storage, requested_time: str, layout: int = 2) -> ArchivedInstant | None:
    """One archived instant, with its content.

    :param storage: the table's storage.
    :param requested_time: requested time of the instant.
    :param layout: timeline layout version.
    """
    if layout == 1:
        for found in archived(storage, layout):
            if found.instant.requested_time == requested_time:
                return found
        return None
    rows = _rows(storage, [*_COLUMNS, "metadata", "plan"], _Wanted(only=requested_time))
    return next(map(ArchivedInstant.from_row, rows), None)


def read_completed(storage: Storage, timeline: Timeline, instant: Instant) -> bytes:
    """The content of a completed instant of a timeline, even if it was archived meanwhile.

    :param storage: the table's storage.
    :param timeline: a timeline that shows the instant.
    :param instant: a completed instant.
    :raises NoSuchInstantError: when the instant was undone since.
    """
    try:
        return timeline.read(instant)
    except NoSuchInstantError:
        # Archival copies an instant to the archived timeline before it deletes its file.
        kept = find_archived(storage, instant.requested_time, instant.layout)
        if kept is None:
            raise
        return kept.metadata or b""


def metadata_of(storage: Storage, timeline: Timeline, commit: Instant) -> CommitMetadata:
    """The metadata of a commit of a timeline; see :func:`read_completed`."""
    return decode_commit_metadata(read_completed(storage, timeline, commit))


def find_commit(
    storage: Storage, timeline: Timeline, requested_time: str, layout: int = 2
) -> tuple[Instant, CommitMetadata] | None:
    """A completed commit of a timeline or of the archived one, with its metadata.

    :param storage: the table's storage.
    :param timeline: an active timeline.
    :param requested_time: requested time of the commit.
    :param layout: timeline layout version.
    :return: None when there is no such commit, or it is pending.
    :raises NoSuchInstantError: when it was undone since the timeline was loaded.
    """
    found = timeline.find(requested_time)
    if found is not None and found.action in WRITE_ACTIONS:
        done = found.state is State.COMPLETED
        return (found, metadata_of(storage, timeline, found)) if done else None
    kept = find_archived(storage, requested_time, layout)
    if kept is None or kept.instant.action not in WRITE_ACTIONS:
        return None
    return kept.instant, kept.commit_metadata


def archived_write_ids(storage: Storage) -> Iterator[int]:
    """The write ids of archived commits that belonged to metastore transactions.

    Files that this package has written have them in their footers.

    :param storage: the table's storage.
    """
    known = _write_ids.setdefault(storage, {})

    def read(manifest: Manifest) -> list[int]:
        for file in manifest.files:
            if file.name not in known:
                known[file.name] = _write_ids_in(storage, file)
        return [write_id for file in reversed(manifest.files) for write_id in known[file.name]]

    yield from _of_newest(storage, read)


def archived_writes(storage: Storage) -> dict[str, tuple[str, int]]:
    """The completion time and the write id of each archived commit of a metastore transaction.

    A file is read once, and not at all when its footer says that it has no write ids.

    :param storage: the table's storage; of layout 2.
    :return: by the requested time of the commit.
    """
    known, write_ids = _writes.setdefault(storage, {}), _write_ids.setdefault(storage, {})

    def read(manifest: Manifest) -> list[tuple[str, tuple[str, int]]]:
        for file in manifest.files:
            if file.name not in write_ids:
                write_ids[file.name] = _write_ids_in(storage, file)
            if file.name not in known:
                known[file.name] = _writes_in(storage, file) if write_ids[file.name] else []
        return [each for file in manifest.files for each in known[file.name]]

    return dict(_of_newest(storage, read))


def write_ids_of(instants: Iterable[ArchivedInstant]) -> list[int]:
    """The write ids in the commit metadata of instants."""
    writes = (each for each in instants if each.metadata and each.instant.action in WRITE_ACTIONS)
    # Most commits have no write id. The bytes show this without decoding, because Hudi does not compress
    # commit metadata.
    commits = (each.commit_metadata for each in writes if each.metadata and b"write_id" in each.metadata)
    found = (commit.extra_metadata.get("write_id") for commit in commits)
    return sorted(int(each) for each in found if each is not None)


def _write_ids_in(storage: Storage, file: HistoryFile) -> list[int]:
    import pyarrow.parquet as pq  # see _rows

    filesystem, base = storage.arrow()
    with reading(storage, file):
        source = filesystem.open_input_file(f"{base}/{HISTORY_FOLDER}/{file.name}")
        said = (pq.read_metadata(source).metadata or {}).get(WRITE_IDS_KEY)
        if said is not None:
            return [int(each) for each in json.loads(said)]
        return write_ids_of(map(ArchivedInstant.from_row, pq.read_table(source).to_pylist()))


def _writes_in(storage: Storage, file: HistoryFile) -> list[tuple[str, tuple[str, int]]]:
    found = []
    for row in _rows_in(storage, file, [*_COLUMNS, "metadata"], _Wanted(frozenset(WRITE_ACTIONS))):
        if b"write_id" in (row["metadata"] or b""):
            said = decode_commit_metadata(row["metadata"]).extra_metadata.get("write_id")
            if said is not None:
                found.append((row["instantTime"], (row["completionTime"], int(said))))
    return found


WRITE_IDS_KEY = b"airflow_provider.write_ids"

_write_ids: WeakKeyDictionary[Storage, dict[str, list[int]]] = WeakKeyDictionary()
_writes: WeakKeyDictionary[Storage, dict[str, list[tuple[str, tuple[str, int]]]]] = WeakKeyDictionary()


class _Wanted(NamedTuple):
    actions: frozenset[Action] = frozenset(Action)
    requested_after: str = ""
    completed_after: str = ""
    only: str | None = None

    def has(self, instant: Instant) -> bool:
        return (
            instant.action in self.actions
            and instant.requested_time > self.requested_after
            and (instant.completion_time or "") > self.completed_after
        )

    def may_be_in(self, file: HistoryFile) -> bool:
        if self.only is not None:
            return file.first <= self.only <= file.last
        return file.last > self.requested_after


def _rows(storage: Storage, columns: list[str], wanted: _Wanted) -> Iterator[dict[str, Any]]:
    def read(manifest: Manifest) -> list[dict[str, Any]]:
        files = [each for each in manifest.files if wanted.may_be_in(each)]
        return [row for each in files for row in _rows_in(storage, each, columns, wanted)]

    yield from _of_newest(storage, read)


def _rows_in(
    storage: Storage, file: HistoryFile, columns: list[str], wanted: _Wanted
) -> list[dict[str, Any]]:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq  # imports pandas, which would add a second to every import of the engine

    condition = pc.field("action").isin(sorted(wanted.actions))
    condition &= pc.field("instantTime") > wanted.requested_after
    condition &= pc.field("completionTime") > wanted.completed_after
    if wanted.only is not None:
        condition &= pc.field("instantTime") == wanted.only
    filesystem, base = storage.arrow()
    with reading(storage, file):
        source = filesystem.open_input_file(f"{base}/{HISTORY_FOLDER}/{file.name}")
        rows: list[dict[str, Any]] = pq.read_table(source, columns=columns, filters=condition).to_pylist()
        return rows


def _of_newest(storage: Storage, read: Callable[[Manifest], list[_T]]) -> list[_T]:
    """The content of the files of the newest manifest. If these are merged meanwhile, a newer one is read."""
    while True:
        manifest = Manifest.newest(storage)
        try:
            return read(manifest)
        except FileNotFoundError as error:
            if Manifest.newest(storage) == manifest:
                path = manifest_path(manifest.version)
                raise CorruptTableError(
                    f"table {storage.root}: {path} names a file that is not there: {error}", path=path
                ) from error


def _instant(row: Mapping[str, Any]) -> Instant:
    return Instant(row["instantTime"], Action(row["action"]), State.COMPLETED, row["completionTime"])
