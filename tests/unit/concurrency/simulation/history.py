"""The content of a table after each entry of its commit log."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_provider.concurrency.log.log_entry import Commit, LogEntry, Restore, Revert
from airflow_provider.table.timeline.instant import WRITE_ACTIONS
from tests.unit.concurrency.simulation.scheduler import Simulation

Snapshot = dict[str, list[str]]


class History:
    """The snapshots that readers may see, in the order in which they may see them.

    :param simulation: the run, which knows the keys of each writer.
    :param entries: the whole log.
    :ivar snapshots: the snapshots from the empty table on; a restore goes back through earlier ones.
    :ivar after: by instant, the position of the snapshot after it.
    """

    def __init__(self, simulation: Simulation, entries: Iterable[LogEntry]) -> None:
        entries = list(entries)
        reverted = {entry.rolls_back for entry in entries if isinstance(entry, Revert)}
        self.snapshots: list[Snapshot] = [{}]
        self.after: dict[str, int] = {}
        self._standing: list[tuple[str, Snapshot]] = []
        for entry in entries:
            if not isinstance(entry, Commit | Restore) or entry.instant in reverted:
                continue
            if isinstance(entry, Restore):
                self._undo(entry)
                undone_to = self._standing[-1][0]
                # Or to a commit of a transaction that was aborted later.
                assert simulation.restored.get(entry.instant, undone_to) in (undone_to, *reverted)
            elif entry.action in WRITE_ACTIONS:
                self._commit(simulation, entry.instant)
            self.after[entry.instant] = len(self.snapshots) - 1

    def _commit(self, simulation: Simulation, instant: str) -> None:
        found = self.snapshots[-1]
        if (write := simulation.writes.get(instant)) is not None:
            found = {**found, **{key: [*found.get(key, []), write.writer] for key in write.keys}}
            self.snapshots.append(found)
        self._standing.append((instant, found))

    def _undo(self, restore: LogEntry) -> None:
        for _ in restore.undoes:
            instant, _ = self._standing.pop()
            assert instant in restore.undoes, f"{restore.instant} undoes others than the last commits"
            self.snapshots.append(self._standing[-1][1])
