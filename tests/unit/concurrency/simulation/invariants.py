"""The invariants that hold after any run (C1-C5 and C7 of ARCHITECTURE.md)."""

from __future__ import annotations

from airflow_provider.concurrency import CommitLog, rollback_dead_writers
from airflow_provider.concurrency.commit.publish import publish_head
from airflow_provider.concurrency.conflicts.open_transactions import instants_of_open_transactions
from airflow_provider.concurrency.log.log_entry import Commit, LogEntry, Plan, Restore, Revert, Rollback
from airflow_provider.concurrency.plans.scheduling import reserved_file_groups
from airflow_provider.concurrency.readers import READERS_FOLDER
from airflow_provider.concurrency.transactions.transactions import undo_writes
from airflow_provider.services.cleaning.cleaning import clean
from airflow_provider.table.file_groups.view import FileSystemView
from airflow_provider.table.files.data_file_name import parse_data_file_name
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.active import Timeline
from airflow_provider.table.timeline.archived_timeline import archived_instants
from airflow_provider.table.timeline.instant import Action
from tests.unit.concurrency.simulation.actors import EVERYTHING
from tests.unit.concurrency.simulation.history import History
from tests.unit.concurrency.simulation.rows import PARTITION, read_snapshot
from tests.unit.concurrency.simulation.scheduler import NoLock, Simulation


def recover(simulation: Simulation) -> list[LogEntry]:
    """Do the next writer's work: finish the newest entry, roll dead writers back, undo aborted writes."""
    simulation.expire_heartbeats()
    table = simulation.table()
    log = CommitLog(table.storage)
    publish_head(table.storage, log)
    rollback_dead_writers(table)
    for txn_id in set(instants_of_open_transactions(table.storage).values()):
        undo_writes(table, txn_id)
    return simulation.entries()


def check(simulation: Simulation) -> None:
    """Recover, then check every invariant of the run."""
    failures = [actor.failure for actor in simulation.actors if actor.failure is not None]
    if failures:
        raise failures[0]
    entries = recover(simulation)
    storage = simulation.table().storage
    timeline = Timeline.load(storage)
    history = History(simulation, entries)
    reverted = {entry.rolls_back for entry in entries if isinstance(entry, Revert)}
    restored = frozenset[str]().union(*(entry.undoes for entry in entries if isinstance(entry, Restore)))
    dead = {entry.rolls_back for entry in entries if isinstance(entry, Rollback | Revert)}
    saved = {entry.instant for entry in entries if entry.action is Action.SAVEPOINT}
    ended = [entry for entry in entries if not isinstance(entry, Plan) and entry.action not in _OF_NO_INSTANT]
    undone = reverted | restored
    completing = [entry for entry in entries if isinstance(entry, Commit | Restore)]
    committed = {entry.instant for entry in completing} - undone

    # C4: requested times are unique, completion times strictly increase in log order.
    requested = [entry.instant for entry in ended]
    assert len(set(requested)) == len(requested)
    planned = [entry.instant for entry in entries if isinstance(entry, Plan)]
    assert len(set(planned)) == len(planned)
    completion = [entry.completion_time for entry in entries]
    assert completion == sorted(set(completion))
    assert all(entry.instant < entry.completion_time for entry in entries)

    # C2: every reported commit exists; the timeline agrees exactly with the log.
    assert simulation.acknowledged <= committed | restored
    assert not dead & committed
    found = (each for each in (*archived_instants(storage), *timeline.completed()))
    assert {(i.requested_time, i.completion_time) for i in found if i.action is not Action.SAVEPOINT} == {
        (entry.instant, entry.completion_time)
        for entry in ended
        if entry.instant not in undone and entry.action is not Action.INDEXING  # none stays there
    }
    left_pending = {entry.instant for entry in entries if entry.leaves_pending}
    open_plans = left_pending - {entry.instant for entry in ended} - dead - _dropped(entries)
    assert {instant.requested_time for instant in timeline.pending()} == open_plans
    savepoints = {instant.requested_time for instant in timeline.savepoints()}
    assert simulation.kept <= saved
    assert savepoints <= saved
    assert saved - savepoints <= simulation.let_go

    # C1 and C5: every key lives once, and its history is that of the commits in log order, each
    # built on the one before: a writer that had not seen its predecessor would have dropped it.
    final = read_snapshot(storage, FileSystemView(storage, timeline))
    assert final == history.snapshots[-1]

    # C3: snapshots have only whole commits, and move only forward through the history. They have every commit
    # that was acknowledged before the reader began.
    for reads in simulation.observed.values():
        position = 0
        for read in reads:
            position = max([position, *(history.after[instant] for instant in read.after)])
            there = history.snapshots[position:]
            assert read.rows in there, f"no moment of the history since {position}: {read.rows}"
            position += there.index(read.rows)

    # C7: of what was rolled back nothing is left, unless its writer was killed as a zombie, after its
    # rollback: then its files are of no visible instant. A revert's files go later.
    if not any(actor.killed for actor in simulation.actors):
        assert not _instants_with_files(storage) - committed - reverted, "files of a dead instant are left"

    # A clean goes through whatever was left, changes nothing that is seen or kept, and leaves nothing else.
    cleaned = Simulation(
        dict(simulation.files),
        moves_atomically=simulation.moves_atomically,
        merge_on_read=simulation.merge_on_read,
        non_blocking=simulation.non_blocking,
    )
    cleaned.expire_heartbeats(READERS_FOLDER)
    table = cleaned.table()
    clean(table, EVERYTHING, lock=NoLock())
    views = {instant: table.view(instant) for instant in savepoints}
    for instant, view in views.items():
        assert read_snapshot(table.storage, view) == history.snapshots[history.after[instant]]
    view = table.view()
    assert read_snapshot(table.storage, view) == final
    reserved = reserved_file_groups(table.storage, CommitLog(table.storage), table.timeline())
    of_plans = {group.file_id for group in reserved}  # that nobody carried out
    seen = {
        file.path
        for each in (view, *views.values())
        for file in (*each.base_files(PARTITION), *each.log_files(PARTITION))
    }
    left = set(_data_files(table.storage)) - seen
    names = ((path, parse_data_file_name(path.rpartition("/")[2])) for path in left)
    assert not {path for path, parsed in names if parsed and parsed.file_id not in of_plans}


_OF_NO_INSTANT = (Action.SAVEPOINT, Action.ARCHIVE)


def _dropped(entries: list[LogEntry]) -> set[str]:
    """Indexing plans whose indexes were dropped before they were built."""
    there = {index.instant for index in (entries[-1].indexes or ())} if entries else set()
    plans = (entry for entry in entries if isinstance(entry, Plan))
    return {plan.instant for plan in plans if plan.action is Action.INDEXING} - there


def _data_files(storage: Storage) -> list[str]:
    return [status.path for status in storage.list(PARTITION) if parse_data_file_name(status.name)]


def _instants_with_files(storage: Storage) -> set[str]:
    parsed = (parse_data_file_name(name) for name in storage.names(PARTITION))
    return {each.instant for each in parsed if each is not None}
