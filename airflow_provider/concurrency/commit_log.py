"""The commit log: the totally ordered record of what was committed and what is dead.

``.hoodie/commit_log/<20-digit sequence>.json``: each entry is created once, by
put-if-absent, and never changed. The entry *is* the commit point (design section 4).
Everything else on storage, the completed instant included, is derived from it and can be
derived again by anybody.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

from airflow_provider.exceptions import CorruptTableError
from airflow_provider.table.file_groups import FileGroupId
from airflow_provider.table.instant import Action
from airflow_provider.table.storage import Storage

COMMIT_LOG_FOLDER = ".hoodie/commit_log"


@dataclass(frozen=True)
class LogEntry:
    """One entry: a commit, or a rollback that makes an instant dead.

    :param instant: requested time of the instant that this entry completes.
    :param action: its action on the timeline.
    :param completion_time: larger than every earlier entry's.
    :param operation: Hudi's operation type, for example ``UPSERT``.
    :param priority: of the writer.
    :param written: file groups that got a new slice.
    :param replaced: file groups that were taken out.
    :param metadata_path: the staged commit metadata, relative to the table.
    :param rolls_back: of a rollback: requested time of the instant that is dead.
    :param rolled_back_action: of a rollback: that instant's action.
    :param operation_key: the caller's key for finding this commit again.
    :param owner: who wrote it.
    """

    instant: str
    action: Action
    completion_time: str
    operation: str
    priority: int
    written: frozenset[FileGroupId] = frozenset()
    replaced: frozenset[FileGroupId] = frozenset()
    metadata_path: str | None = None
    rolls_back: str | None = None
    rolled_back_action: Action | None = None
    operation_key: str | None = None
    owner: str = ""
    sequence: int = field(default=0, compare=False)

    @property
    def touched(self) -> frozenset[FileGroupId]:
        """File groups whose content this entry changed."""
        return self.written | self.replaced

    def to_json(self) -> bytes:
        """The entry's file content."""
        content = asdict(self)
        del content["sequence"]
        content["written"] = sorted(self.written)
        content["replaced"] = sorted(self.replaced)
        return json.dumps(content, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, sequence: int, data: bytes) -> LogEntry:
        """Read a file's content; fields of later versions are ignored."""
        content = json.loads(data)
        content["written"] = frozenset(FileGroupId(*group) for group in content["written"])
        content["replaced"] = frozenset(FileGroupId(*group) for group in content["replaced"])
        content["action"] = Action(content["action"])
        if content["rolled_back_action"] is not None:
            content["rolled_back_action"] = Action(content["rolled_back_action"])
        known = {name: content[name] for name in cls.__dataclass_fields__ if name in content}
        return cls(**known, sequence=sequence)


class CommitLog:
    """A table's commit log.

    :param storage: the table's storage.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def head(self) -> int:
        """Sequence of the newest entry; 0 when there is none."""
        names = self._storage.names(COMMIT_LOG_FOLDER)
        return max((int(name.removesuffix(".json")) for name in names if name.endswith(".json")), default=0)

    def read(self, sequence: int) -> LogEntry | None:
        """An entry, or None when it was not written yet (or was trimmed by archival).

        :raises CorruptTableError: when the file is not an entry.
        """
        path = _path(sequence)
        try:
            data = self._storage.read(path)
        except FileNotFoundError:
            return None
        try:
            return LogEntry.from_json(sequence, data)
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptTableError(
                f"table {self._storage.root}: {path} is not a commit log entry: {error}", path=path
            ) from error

    def after(self, sequence: int) -> Iterator[LogEntry]:
        """Entries with a larger sequence, in order, up to the head at the moment of asking."""
        while (entry := self.read(sequence + 1)) is not None:
            yield entry
            sequence += 1

    def backwards(self) -> Iterator[LogEntry]:
        """Entries from the newest to the oldest that is kept."""
        sequence = self.head()
        while sequence and (entry := self.read(sequence)) is not None:
            yield entry
            sequence -= 1

    def append(self, sequence: int, entry: LogEntry) -> bool:
        """Put an entry at a sequence, if nobody has.

        :return: True when this call put it: the commit is done.
        """
        return self._storage.put_if_absent(_path(sequence), entry.to_json())


def _path(sequence: int) -> str:
    return f"{COMMIT_LOG_FOLDER}/{sequence:020d}.json"
