"""The actors of a simulation that only read: with a lease, and without one."""

from __future__ import annotations

from airflow_provider.concurrency import CommitLog, HeartbeatSettings
from airflow_provider.concurrency.log.log_entry import Restore, Revert
from airflow_provider.concurrency.readers import reader_lease
from airflow_provider.exceptions import CommitUndoneError
from airflow_provider.metastore import ValidWriteIdList
from airflow_provider.table.file_groups.view import FileSystemView
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.active import Timeline
from airflow_provider.table.timeline.archived_timeline import archived_instants
from airflow_provider.table.timeline.instant import Action
from airflow_provider.table.timeline.time_travel import without_undone
from tests.unit.concurrency.simulation.rows import read_snapshot
from tests.unit.concurrency.simulation.scheduler import Actor, Read, Simulation

OUTSIDE_OF_TRANSACTIONS = ValidWriteIdList(None, 0)
"""Shows only rows that were written without a write id."""


def add_reader(simulation: Simulation, name: str = "reader", times: int = 3) -> None:
    """Takes snapshots one after the other, through the index ``files`` if the table has it.

    The reader has no lease, so a cleaner or a rollback may delete files that it is about to read; then it
    runs the query again. In all other cases no file may be missing. A listing does not tell what a clean has
    deleted before it.
    """

    def work(table: HudiTable, actor: Actor) -> None:
        taken = 0
        while taken < times:
            after = frozenset(simulation.acknowledged - simulation.unpublished)
            earlier = frozenset(archived_instants(simulation.table().storage))
            view = HudiTable.at(table.storage).view(valid_write_ids=OUTSIDE_OF_TRANSACTIONS)
            missing: Exception | None = None
            try:
                snapshot = read_snapshot(table.storage, view)
            except (FileNotFoundError, CommitUndoneError) as error:
                missing = error
            now = Timeline.load(table.storage)
            # The archive may have the clean by now.
            new = {*now.instants, *archived_instants(simulation.table().storage)}
            new -= earlier.union(view.timeline.instants)
            rolled_back = missing is not None and any(each.action is Action.ROLLBACK for each in new)
            is_cleaned = any(each.action is Action.CLEAN for each in new)
            if is_cleaned or rolled_back or _taken_back(simulation, view.timeline, now):
                continue
            assert missing is None, f"{missing} is gone, and nobody has deleted it"
            simulation.observed.setdefault(name, []).append(Read(after, snapshot))
            taken += 1

    simulation.add(name, work)


def add_leased_reader(simulation: Simulation, name: str, times: int = 2) -> None:
    """Takes snapshots under a lease: none of their files may be missing, and no query runs again."""

    def work(table: HudiTable, actor: Actor) -> None:
        for _ in range(times):
            with reader_lease(table, heartbeat=HeartbeatSettings(3600.0)):
                after = frozenset(simulation.acknowledged - simulation.unpublished)
                view = HudiTable.at(table.storage).view(valid_write_ids=OUTSIDE_OF_TRANSACTIONS)
                undone = _undone(table.storage)

                def is_undone(view: FileSystemView = view, before: set[str] = undone) -> bool:
                    now = Timeline.load(table.storage)
                    restored = _taken_back(simulation, view.timeline, now)
                    return bool(restored or _undone(table.storage) - before)

                try:
                    snapshot = read_snapshot(table.storage, view)
                except (FileNotFoundError, CommitUndoneError) as error:
                    # Only two kinds of commits disappear at once: those of an aborted transaction, and those
                    # that a restore undoes.
                    if not is_undone():
                        raise AssertionError("a file is gone that a lease keeps") from error
                    continue
            if not is_undone():
                simulation.observed.setdefault(name, []).append(Read(after, snapshot))

    simulation.add(name, work)


def _undone(storage: Storage) -> set[str]:
    return {entry.instant for entry in CommitLog(storage).backwards() if isinstance(entry, Revert)}


def _taken_back(simulation: Simulation, seen: Timeline, now: Timeline) -> set[str]:
    """Commits that a restore removes from the timeline, or has removed; then it deletes their files."""
    restored = frozenset[str]().union(
        *(entry.undoes for entry in simulation.entries() if isinstance(entry, Restore))
    )
    completed = (
        {instant.requested_time for instant in each.completed()} for each in (seen, without_undone(now))
    )
    return (next(completed) & restored) - next(completed)
