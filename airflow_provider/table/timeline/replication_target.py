"""The state of a replication's target: its source, and the commits that may come late.

A replication brings a commit when its transaction is committed. So a commit that completed early at the
source may come late, and then takes its place on the timeline before commits that came earlier. An
incremental reader of a target has to wait for it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from airflow_provider.table.storage import Storage

STATE_PATH = ".hoodie/.replication"


@dataclass(frozen=True)
class TargetState:
    """How far a target is.

    :param source: location of the source table.
    :param floor: a time up to which the target is complete: every commit that still comes was requested, and
        completed, later.
    :param archived: requested time up to which the source had archived its instants.
    :param late: the lowest completion time of a commit that the target lacks although it may have later ones;
        empty when there is none.
    :param open: the lowest requested time of a write that had not ended at the source, or whose transaction
        had not ended; empty when there is none.
    """

    source: str
    floor: str = ""
    archived: str = ""
    late: str = ""
    open: str = ""

    @classmethod
    def read(cls, storage: Storage) -> TargetState | None:
        """The state of a table; None when the table is no target.

        :param storage: the table's storage.
        """
        try:
            content = json.loads(storage.read(STATE_PATH))
        except FileNotFoundError:
            return None
        return cls(**{name: content[name] for name in cls.__dataclass_fields__ if name in content})

    def write(self, storage: Storage) -> None:
        """Record the state if it has changed.

        :param storage: the target's storage.
        """
        if self.read(storage) != self:
            storage.put(STATE_PATH, json.dumps(asdict(self)).encode())

    @classmethod
    def forget(cls, storage: Storage) -> None:
        """Delete the state, so that the table is no target any more.

        :param storage: the table's storage.
        """
        storage.delete(STATE_PATH)
