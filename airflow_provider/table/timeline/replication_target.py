"""What the target of a replication says of itself: where it comes from, and which commits may come late.

A replication brings a commit when its transaction is committed. So one that had completed early at the source
may come late, and takes its place on the timeline between others then. An incremental reader of a target
has to wait for it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from airflow_provider.table.storage import Storage

STATE_PATH = ".hoodie/.replication"


@dataclass(frozen=True)
class TargetState:
    """How far a target is.

    :param source: location of the table that it is a copy of.
    :param floor: a time up to which everything is there: nothing that comes later was requested, or had
        completed, before.
    :param archived: requested time up to which the source had archived then.
    :param late: the lowest completion time of a commit that is not there yet although later ones may be;
        empty when there is none.
    :param open: the lowest requested time of a write that had not ended at the source, or whose transaction
        had not; empty when there is none.
    """

    source: str
    floor: str = ""
    archived: str = ""
    late: str = ""
    open: str = ""

    @classmethod
    def read(cls, storage: Storage) -> TargetState | None:
        """The state of a table; None when it is no target.

        :param storage: the table's storage.
        """
        try:
            content = json.loads(storage.read(STATE_PATH))
        except FileNotFoundError:
            return None
        return cls(**{name: content[name] for name in cls.__dataclass_fields__ if name in content})

    def write(self, storage: Storage) -> None:
        """Record the state, where it has changed.

        :param storage: the target's storage.
        """
        if self.read(storage) != self:
            storage.put(STATE_PATH, json.dumps(asdict(self)).encode())

    @classmethod
    def forget(cls, storage: Storage) -> None:
        """Make a table one that is no target any more.

        :param storage: the table's storage.
        """
        storage.delete(STATE_PATH)
