"""What must hold after any run (design section 4, C1-C5 and C7)."""

from __future__ import annotations

from airflow_provider.concurrency import CommitLog, rollback_dead_writers
from airflow_provider.concurrency.commit_log import LogEntry
from airflow_provider.concurrency.held import held_instants
from airflow_provider.concurrency.plans import reserved_file_groups
from airflow_provider.concurrency.publish import publish_head
from airflow_provider.concurrency.readers import READERS_FOLDER
from airflow_provider.concurrency.transactions import undo_writes
from airflow_provider.services.cleaning import clean
from airflow_provider.table.archived_timeline import archived_instants
from airflow_provider.table.base_file import parse_base_file_name
from airflow_provider.table.file_groups import FileSystemView
from airflow_provider.table.instant import Action
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import Timeline

from .actors import EVERYTHING
from .rows import PARTITION, read_snapshot
from .simulation import NoLock, Simulation


def recover(simulation: Simulation) -> list[LogEntry]:
    """What the next writer does: finish the newest entry, roll dead writers back, undo what was aborted."""
    simulation.expire_heartbeats()
    table = simulation.table()
    log = CommitLog(table.storage)
    publish_head(table.storage, log)
    rollback_dead_writers(table)
    for txn_id in set(held_instants(table.storage).values()):
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
    reverted = {entry.rolls_back for entry in entries if entry.reverts is not None}
    dead = {entry.rolls_back for entry in entries if entry.rolls_back is not None}
    ended = [entry for entry in entries if not entry.plans]
    commits = [entry for entry in entries if entry.commits]
    lasting = [entry for entry in commits if entry.instant not in reverted]

    # C4: requested times are unique, completion times strictly increase in log order.
    requested = [entry.instant for entry in ended]
    assert len(set(requested)) == len(requested)
    planned = [entry.instant for entry in entries if entry.plans]
    assert len(set(planned)) == len(planned)
    completion = [entry.completion_time for entry in entries]
    assert completion == sorted(set(completion))
    assert all(entry.instant < entry.completion_time for entry in entries)

    # C2: what was reported is there; the timeline says exactly what the log says.
    committed = {entry.instant for entry in lasting}
    assert simulation.acknowledged <= committed
    assert not dead & committed
    archived = {(i.requested_time, i.completion_time) for i in archived_instants(storage)}
    assert archived | {(i.requested_time, i.completion_time) for i in timeline.completed()} == {
        (entry.instant, entry.completion_time) for entry in ended if entry.instant not in reverted
    }
    left_pending = {entry.instant for entry in entries if entry.leaves_pending}
    open_plans = left_pending - {entry.instant for entry in ended} - dead - _dropped(entries)
    assert {instant.requested_time for instant in timeline.pending()} == open_plans

    # C1 and C5: every key lives once, and its history is that of the commits in log order, each
    # built on the one before: a writer that had not seen its predecessor would have dropped it.
    final = read_snapshot(storage, FileSystemView(storage, timeline))
    expected: dict[str, list[str]] = {}
    writers = [entry.instant for entry in lasting if entry.instant in simulation.writes]
    for write in map(simulation.writes.__getitem__, writers):
        for key in write.keys:
            expected.setdefault(key, []).append(write.writer)
    assert final == expected

    # C3: snapshots are prefixes of the history, whole commits only, and move only forward; what had been
    # acknowledged when a reader began is in them.
    prefixes: list[dict[str, list[str]]] = [{}]
    for write in map(simulation.writes.__getitem__, writers):
        before = prefixes[-1]
        prefixes.append({**before, **{key: [*before.get(key, []), write.writer] for key in write.keys}})
    for reads in simulation.observed.values():
        position = 0
        for read in reads:
            position = max([position, *(writers.index(instant) + 1 for instant in read.after)])
            assert read.rows in prefixes[position:], f"no moment of the history since {position}: {read.rows}"
            position = prefixes.index(read.rows, position)

    # C7: of what was rolled back nothing is left, unless its writer was killed as a zombie, after its
    # rollback: then its files are of no visible instant. A revert's files go later.
    if not any(actor.killed for actor in simulation.actors):
        assert not _instants_with_files(storage) - committed - reverted, "files of a dead instant are left"

    # A clean goes through whatever was left, changes nothing that is seen, and leaves nothing that is not.
    cleaned = Simulation(dict(simulation.files))
    cleaned.expire_heartbeats(READERS_FOLDER)
    table = cleaned.table()
    clean(table, EVERYTHING, lock=NoLock())
    view = table.view()
    assert read_snapshot(table.storage, view) == expected
    reserved = reserved_file_groups(table.storage, CommitLog(table.storage), table.timeline())
    of_plans = {group.file_id for group in reserved}  # that nobody carried out
    left = set(_data_files(table.storage)) - {base_file.path for base_file in view.base_files(PARTITION)}
    assert not {path for path in left if path.rpartition("/")[2].partition("_")[0] not in of_plans}


def _dropped(entries: list[LogEntry]) -> set[str]:
    """Indexing plans whose indexes were dropped before they were built."""
    there = {index.instant for index in (entries[-1].indexes or ())} if entries else set()
    return {entry.instant for entry in entries if entry.plans and entry.action is Action.INDEXING} - there


def _data_files(storage: Storage) -> list[str]:
    return [status.path for status in storage.list(PARTITION) if parse_base_file_name(status.name)]


def _instants_with_files(storage: Storage) -> set[str]:
    parsed = (parse_base_file_name(name) for name in storage.names(PARTITION))
    return {each[2] for each in parsed if each is not None}
