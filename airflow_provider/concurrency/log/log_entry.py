"""The entries of the commit log: one kind for each thing that can become true of a table.

:class:`Commit`, :class:`Plan`, :class:`Rollback`, :class:`Revert`, :class:`Restore`, :class:`Savepoint` and
:class:`Archival`. Each is one JSON file, whose fields tell its kind. So the files of earlier versions, which
had one kind with all fields, stay readable.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from airflow_provider.table.file_groups import FileGroupId
from airflow_provider.table.timeline import Action


class IndexState(NamedTuple):
    """An index as of an entry of the log: each later commit has to log to it.

    :param partition: the metadata partition, for example ``column_stats``.
    :param instant: requested time of the indexing plan that made it; ``""`` when another Hudi writer made it.
    :param file_groups: the number of file groups of the partition, which never changes.
    :param is_complete: whether readers may use the index; otherwise it is being built.
    :param made: for an index of another Hudi writer, the metadata table's instant that made its file groups.
    """

    partition: str
    instant: str
    file_groups: int
    is_complete: bool
    made: str = ""


_NOTHING: frozenset[Any] = frozenset()


@dataclass(frozen=True, kw_only=True)
class LogEntry:
    """The fields of every entry.

    The caller that decides on an entry leaves out the fields that the commit log sets: its sequence, its
    completion time, the archival bound, and the indexes, unless the entry changes these.

    :param instant: requested time of the instant that this entry completes or schedules. A savepoint has that
        of the commit that it keeps. Empty for an archival, which is no instant.
    :param action: the instant's action on the timeline.
    :param operation: Hudi's operation type, for example ``UPSERT``.
    :param priority: the writer's priority.
    :param completion_time: larger than every earlier entry's.
    :param owner: the writer of the entry.
    :param indexes: the table's indexes as of this entry; None when its writer knew no indexes.
    :param properties: digest of the table's properties that name these indexes. If the table has other
        properties, another Hudi writer has changed them since. Empty where this entry changes them.
    :param archived: requested time up to which instants are archived, or being archived.
    :param sequence: the entry's place in the log.
    """

    instant: str
    action: Action
    operation: str
    priority: int
    completion_time: str = ""
    owner: str = ""
    indexes: tuple[IndexState, ...] | None = None
    archived: str = ""
    properties: str = ""
    sequence: int = field(default=0, compare=False)

    @property
    def shown_completion(self) -> str:
        """The completion time of its instant on the timeline."""
        return self.completion_time

    @property
    def touched(self) -> frozenset[FileGroupId]:
        """File groups whose content this entry changes."""
        return _NOTHING

    @property
    def claimed(self) -> frozenset[FileGroupId]:
        """File groups that a plan made before this entry must not name."""
        return self.touched

    @property
    def undone(self) -> frozenset[str]:
        """Requested times of the instants that are dead from this entry on."""
        return _NOTHING

    @property
    def adds_records_in(self) -> frozenset[str]:
        """Partition paths to which this entry adds records."""
        return _NOTHING

    @property
    def leaves_pending(self) -> bool:
        """Whether its instant stays pending on the table's timeline until a process carries it out."""
        return False

    @property
    def shown_or_hidden(self) -> frozenset[str]:
        """Requested times of the instants that this entry puts on the timeline, or takes off it."""
        return frozenset({self.instant})

    def to_json(self) -> bytes:
        """The entry's file content."""
        said = vars(self)
        content = {
            written: sorted(value) if isinstance(value, frozenset) else value
            for name, written, default in _WRITTEN[type(self)]
            if (value := said[name]) != default
        }
        if isinstance(self, Plan):  # it has no field that tells it from a commit
            content["plans"] = True
        return json.dumps(content, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, sequence: int, data: bytes) -> LogEntry:
        """Read a file's content; fields of later versions are ignored.

        :raises ValueError: when the content is no entry; it may also raise KeyError or TypeError.
        """
        content = json.loads(data)
        kind = _kind_of(content)
        names = _NAMES[kind]
        known = {names[name]: value for name, value in content.items() if name in names}
        for name in _READ.keys() & known.keys():
            if known[name] is not None:
                known[name] = _READ[name](known[name])
        known["sequence"] = sequence
        return kind(**known)


@dataclass(frozen=True, kw_only=True)
class Commit(LogEntry):
    """An instant has completed: a write, or a table service that was planned before.

    :param written: file groups that got a new slice.
    :param replaced: file groups that were taken out.
    :param appended: those of the written file groups that got log files alone. The log files belong to the
        base file that the file group has when the instant completes.
    :param inserted_in: partition paths that got new records.
    :param metadata_path: path of the staged content of the completed instant, relative to the table.
    :param pending_action: the action under which the instant was pending, if it differs: a commit that has to
        take file groups out becomes a replacecommit.
    :param operation_key: the caller's key for finding this commit again.
    :param evolves: whether it changes the table's columns, so that the next commit has to look at them.
    :param seen: under a lock that other Hudi writers share, the newest completion time on the timeline of the
        decision; else empty. If another Hudi writer completed an instant later than this, the committing
        process was paused; the publisher looks for such instants.
    :param replayed: for a commit that a replication has brought, its completion time at the source, which its
        instant keeps on this timeline. The entry's own completion time is later, because the log's order is
        that in which the source's transactions were committed. Empty for a commit that was made here.
    """

    written: frozenset[FileGroupId] = _NOTHING
    replaced: frozenset[FileGroupId] = _NOTHING
    appended: frozenset[FileGroupId] = _NOTHING
    inserted_in: frozenset[str] = _NOTHING
    metadata_path: str | None = None
    pending_action: Action | None = None
    operation_key: str | None = None
    evolves: bool = False
    seen: str = ""
    replayed: str = ""

    @property
    def shown_completion(self) -> str:
        return self.replayed or self.completion_time

    @property
    def touched(self) -> frozenset[FileGroupId]:
        return self.written | self.replaced

    @property
    def adds_records_in(self) -> frozenset[str]:
        return self.inserted_in


@dataclass(frozen=True, kw_only=True)
class Plan(LogEntry):
    """A table service is planned; any process may carry it out.

    :param file_groups: the file groups that the plan will rewrite, or whose slices it will delete.
    :param metadata_path: path of the staged plan, relative to the table.
    :param on_metadata_table: whether its instant is on the metadata table's timeline, and is carried out
        there without another entry. The partition paths of its file groups are still relative to the table,
        so that they are never taken for the table's own.
    """

    file_groups: frozenset[FileGroupId] = field(default=_NOTHING, metadata={"name": "written"})
    metadata_path: str | None = None
    on_metadata_table: bool = False

    @property
    def claimed(self) -> frozenset[FileGroupId]:
        return self.file_groups

    @property
    def leaves_pending(self) -> bool:
        return not self.on_metadata_table

    @property
    def shown_or_hidden(self) -> frozenset[str]:
        return _NOTHING if self.on_metadata_table else frozenset({self.instant})


@dataclass(frozen=True, kw_only=True)
class Rollback(LogEntry):
    """A pending instant is dead: its writer can never commit.

    :param rolls_back: requested time of the instant.
    :param rolled_back_action: that instant's action.
    :param reason: why, for people.
    :param dead_owner: the dead writer; empty when its heartbeat did not say.
    :param dead_operation: the dead writer's operation type; empty when its heartbeat did not say.
    :param dead_priority: the dead writer's priority.
    """

    action: Action = Action.ROLLBACK
    operation: str = "ROLLBACK"
    rolls_back: str
    rolled_back_action: Action = Action.COMMIT
    reason: str = ""
    dead_owner: str = ""
    dead_operation: str = ""
    dead_priority: int = 0

    @property
    def undone(self) -> frozenset[str]:
        return frozenset({self.rolls_back})


@dataclass(frozen=True, kw_only=True)
class Revert(LogEntry):
    """A completed instant is undone: a rewrite, or a write of an aborted transaction; or another Hudi writer
    has undone it.

    :param rolls_back: requested time of the instant.
    :param rolled_back_action: that instant's action.
    :param reverts: sequence of the entry that had completed it.
    :param written: the written file groups of that entry.
    :param replaced: the replaced file groups of that entry.
    :param appended: the appended file groups of that entry.
    :param inserted_in: partition paths in which records become visible again.
    :param by_another: whether another Hudi writer has undone it on the timeline, so that there is no instant
        to publish.
    """

    action: Action = Action.ROLLBACK
    operation: str = "ROLLBACK"
    rolls_back: str
    rolled_back_action: Action = Action.COMMIT
    reverts: int
    written: frozenset[FileGroupId] = _NOTHING
    replaced: frozenset[FileGroupId] = _NOTHING
    appended: frozenset[FileGroupId] = _NOTHING
    inserted_in: frozenset[str] = _NOTHING
    by_another: bool = False

    @property
    def touched(self) -> frozenset[FileGroupId]:
        return self.written | self.replaced

    @property
    def undone(self) -> frozenset[str]:
        return frozenset({self.rolls_back})

    @property
    def adds_records_in(self) -> frozenset[str]:
        return self.inserted_in

    @property
    def shown_or_hidden(self) -> frozenset[str]:
        return self.undone


@dataclass(frozen=True, kw_only=True)
class Restore(LogEntry):
    """The table goes back to an earlier commit: later ones are undone, all at once.

    :param undoes: requested times of the commits that are undone.
    :param metadata_path: path of the staged content of the completed instant, relative to the table.
    """

    action: Action = Action.RESTORE
    operation: str = "RESTORE"
    undoes: frozenset[str] = _NOTHING
    metadata_path: str | None = None

    @property
    def undone(self) -> frozenset[str]:
        return self.undoes

    @property
    def shown_or_hidden(self) -> frozenset[str]:
        return self.undoes


@dataclass(frozen=True, kw_only=True)
class Savepoint(LogEntry):
    """The snapshot of a commit is kept.

    :param metadata_path: path of the staged content of the savepoint, relative to the table.
    """

    action: Action = Action.SAVEPOINT
    operation: str = "SAVEPOINT"
    metadata_path: str | None = None

    @property
    def shown_or_hidden(self) -> frozenset[str]:
        return _NOTHING


@dataclass(frozen=True, kw_only=True)
class Archival(LogEntry):
    """Instants leave the timeline, up to :attr:`LogEntry.archived`. An archival publishes nothing."""

    instant: str = ""
    action: Action = Action.ARCHIVE
    operation: str = "ARCHIVE"

    @property
    def shown_or_hidden(self) -> frozenset[str]:
        return _NOTHING


def without_reverted(entries: Iterable[LogEntry]) -> list[LogEntry]:
    """Entries without those that a later entry among them undoes, and without the reverts of these.

    An entry that was put and undone after a writer's base leaves every file group as the writer knows it. A
    restore stays in the list, because it may also have undone earlier entries.

    :param entries: entries in log order.
    """
    entries = list(entries)
    known = {entry.sequence for entry in entries}
    reverted = {entry.reverts for entry in entries if isinstance(entry, Revert)} & known
    restored = frozenset[str]().union(*(entry.undoes for entry in entries if isinstance(entry, Restore)))
    return [
        entry
        for entry in entries
        if not (isinstance(entry, Revert) and entry.reverts in reverted)
        and not (isinstance(entry, Commit) and (entry.sequence in reverted or entry.instant in restored))
    ]


def _name(each: Any) -> str:
    """The name of a field in the file."""
    return str(each.metadata.get("name", each.name))


def _kind_of(content: Mapping[str, Any]) -> type[LogEntry]:
    if content.get("plans"):
        return Plan
    if content.get("reverts") is not None:
        return Revert
    if content.get("rolls_back") is not None:
        return Rollback
    return _KINDS.get(content["action"], Commit)


def _file_groups(value: Iterable[Iterable[str]]) -> frozenset[FileGroupId]:
    return frozenset(FileGroupId(*each) for each in value)


# Readers of the fields that the file has as a list or a string, by field name.
_READ: Mapping[str, Callable[[Any], Any]] = {
    "written": _file_groups,
    "replaced": _file_groups,
    "appended": _file_groups,
    "file_groups": _file_groups,
    "inserted_in": frozenset,
    "undoes": frozenset,
    "action": Action,
    "pending_action": Action,
    "rolled_back_action": Action,
    "indexes": lambda value: tuple(IndexState(*each) for each in value),
}

_ALWAYS = frozenset({"instant", "action", "operation"})

_KINDS: Mapping[str, type[LogEntry]] = {
    Action.RESTORE: Restore,
    Action.SAVEPOINT: Savepoint,
    Action.ARCHIVE: Archival,
}

_NAMES: Mapping[type[LogEntry], Mapping[str, str]] = {
    kind: {_name(each): each.name for each in fields(kind)}
    for kind in (Commit, Plan, Rollback, Revert, Restore, Savepoint, Archival)
}

# By kind: each field, its name in the file, and the value for which the field is left out.
_WRITTEN: Mapping[type[LogEntry], Sequence[tuple[str, str, Any]]] = {
    kind: [
        (each.name, _name(each), None if each.name in _ALWAYS else each.default)
        for each in fields(kind)
        if each.name != "sequence"
    ]
    for kind in _NAMES
}
