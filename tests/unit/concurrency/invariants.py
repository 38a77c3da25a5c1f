"""What must hold after any run (design section 4, C1-C4 and C7)."""

from __future__ import annotations

from airflow_provider.concurrency import CommitLog, rollback_dead_writers
from airflow_provider.concurrency.commit_log import LogEntry
from airflow_provider.concurrency.publish import publish_head
from airflow_provider.table.base_file import parse_base_file_name
from airflow_provider.table.file_groups import FileGroupId, FileSystemView
from airflow_provider.table.timeline import Timeline

from .simulation import Simulation, content


def recover(simulation: Simulation) -> list[LogEntry]:
    """What the next writer does: finish the newest entry, roll dead writers back."""
    simulation.expire_heartbeats()
    table = simulation.table()
    log = CommitLog(table.storage)
    publish_head(table.storage, log)
    rollback_dead_writers(table)
    return list(log.after(0))


def check(simulation: Simulation) -> None:
    """Recover, then check every invariant of the run."""
    failures = [actor.failure for actor in simulation.actors if actor.failure is not None]
    if failures:
        raise failures[0]
    entries = recover(simulation)
    commits = [entry for entry in entries if entry.rolls_back is None]
    storage = simulation.table().storage
    timeline = Timeline.load(storage)

    # C4: requested times are unique, completion times strictly increase in log order.
    requested = [entry.instant for entry in entries]
    assert len(set(requested)) == len(requested)
    completion = [entry.completion_time for entry in entries]
    assert completion == sorted(set(completion))
    assert all(entry.instant < entry.completion_time for entry in entries)

    # C2: what was reported is there; the timeline says exactly what the log says.
    committed = {entry.instant for entry in commits}
    assert {acknowledged.instant for acknowledged in simulation.acknowledged} <= committed
    assert {(i.requested_time, i.completion_time) for i in timeline.completed()} == {
        (entry.instant, entry.completion_time) for entry in entries
    }
    assert timeline.pending() == ()
    dead = {entry.rolls_back for entry in entries}
    assert not dead & committed

    # C1: no lost update. Each group's content is its commits in log order, each built on the
    # one before; a writer that had not seen its predecessor would have dropped it.
    view = FileSystemView(storage, timeline)
    groups = {group for entry in commits for group in entry.touched}
    final = {group: content(storage, view, group) for group in groups}
    for group, names in final.items():
        assert len(set(names)) == len(names)
        assert len(names) == sum(group in entry.touched for entry in commits), (group, names)
    for acknowledged in simulation.acknowledged:
        for group in acknowledged.file_groups:
            assert acknowledged.writer in final[group]

    # C3: snapshots are prefixes of the history, whole commits only, and move only forward.
    members: dict[str, set[FileGroupId]] = {}
    for group, names in final.items():
        for name in names:
            members.setdefault(name, set()).add(group)
    for snapshots in simulation.observed.values():
        before: dict[FileGroupId, list[str]] = {}
        for snapshot in snapshots:
            for group, names in snapshot.items():
                assert names == final.get(group, [])[: len(names)], "a snapshot showed what never committed"
                assert before.get(group, []) == names[: len(before.get(group, []))]
            for name, its_groups in members.items():
                seen = {name in snapshot[group] for group in its_groups if group in snapshot}
                assert len(seen) <= 1, f"a snapshot showed a part of {name}"
            before = snapshot

    # C7: of what was rolled back nothing is left, unless its writer was killed as a zombie,
    # after its rollback: then its files are of no visible instant.
    alive = {actor.name for actor in simulation.actors if not actor.killed}
    if len(alive) == len(simulation.actors):
        for path in simulation.files:
            parsed = parse_base_file_name(path.rpartition("/")[2])
            assert parsed is None or parsed[2] in committed, f"{path} is left of a dead instant"
