"""Who takes part in a simulated run: writers, table services and readers, on the engine's own API.

The services of a later day are stood in for by plain rewrites and deletes on the same commit path.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field

from airflow_provider.concurrency import (
    PRIORITIES,
    CommitLog,
    ConflictPolicy,
    Rebase,
    Rebased,
    ServicePlan,
    Writer,
    begin_planned,
    begin_write,
    rollback_dead_writers,
    schedule,
)
from airflow_provider.concurrency.in_flight import oldest_base
from airflow_provider.concurrency.transactions import undo_writes
from airflow_provider.exceptions import NoSuchInstantError
from airflow_provider.metastore import ValidWriteIdList
from airflow_provider.services.archival import archive
from airflow_provider.table.base_file import parse_base_file_name
from airflow_provider.table.file_groups import BaseFile, FileGroupId, FileSystemView
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.instant import Action
from airflow_provider.table.metadata import WriteStat
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import Timeline

from .rows import PARTITION, Row, group_of, locate, read_rows, read_snapshot, write_rows
from .simulation import Actor, NoLock, Simulation, Write

FAIL = ConflictPolicy(on_higher_priority="fail")
REBASE = ConflictPolicy(on_conflict="rebase", on_higher_priority="fail")
REVERT = ConflictPolicy(on_conflict="rebase", on_rewrite="revert", on_higher_priority="fail")

OUTSIDE_OF_TRANSACTIONS = ValidWriteIdList(None, 0)
"""Shows what was written without a write id."""

_names = itertools.count()


def add_writer(
    simulation: Simulation,
    name: str,
    keys: Iterable[str],
    *,
    policy: ConflictPolicy = FAIL,
    priority: int = PRIORITIES["ingestion"],
    operation_key: str | None = None,
    aborted_txn: int | None = None,
) -> None:
    """A writer that upserts keys: it adds its name to the history of each.

    With ``aborted_txn`` it does so in a transaction, which is aborted when the write has completed.
    """
    wanted = frozenset(keys)

    def work(table: HudiTable, actor: Actor) -> None:
        with begin_write(
            table,
            operation="UPSERT",
            lock=NoLock(),
            policy=policy,
            priority=priority,
            heartbeat_interval=3600.0,
            operation_key=operation_key,
            open_txn=aborted_txn,
        ) as writer:
            simulation.writes[writer.instant] = Write(name, wanted)
            upsert = _Upsert(table.storage, writer, name, wanted)
            stats, replaced = upsert.merge(writer.view, wanted, plan=True)
            result = writer.commit(
                stats,
                replaced=replaced,
                unique_keys=True,
                rebase=upsert.merge_again,
                txn_id=aborted_txn,
                write_id=aborted_txn,
            )
        assert result.instant == writer.instant
        if aborted_txn is None:
            simulation.acknowledged.add(result.instant)
        else:
            undo_writes(table, aborted_txn)

    simulation.add(name, work)


@dataclass
class _Upsert:
    """Copy-on-write upserts, with a part that is merged again after a lost conflict."""

    storage: Storage
    writer: Writer
    name: str
    keys: frozenset[str]
    written: dict[FileGroupId, set[str]] = field(default_factory=dict)
    tries: int = 0

    def merge(
        self, view: FileSystemView, keys: Iterable[str], *, plan: bool = False
    ) -> tuple[list[WriteStat], dict[str, list[str]]]:
        self.tries += 1
        found = locate(self.storage, view, keys)
        if plan:
            self.writer.plan([base.file_group for base in found if base], [PARTITION])
        stats, replaced = [], []
        for base, rows in found.items():
            own = set(keys) & rows.keys()
            file_id = self._file_id(base)
            if base and file_id != base.file_id:
                replaced.append(base.file_id)
            upserted = {key: Row(self.writer.instant, (*rows[key].history, self.name)) for key in own}
            stats.append(
                write_rows(
                    self.storage,
                    file_id,
                    self.writer.instant,
                    {**rows, **upserted},
                    base=base,
                    inserts=0 if base else len(own),
                    write_token=f"{self.tries}-0-0",
                )
            )
            self.written[group_of(file_id)] = own
        return stats, {PARTITION: replaced} if replaced else {}

    def merge_again(self, rebase: Rebase) -> Rebased:
        # A file group that is merged again takes the rows with it that were kept there before.
        keys: set[str] = set()
        for group in rebase.lost:
            keys |= self.written.pop(group, set())
        stats, replaced = self.merge(rebase.view, keys)
        return Rebased(stats, replaced)

    def _file_id(self, base: BaseFile | None) -> str:
        if base is None:
            return f"{self.name}{next(_names)}-0"
        return f"{self.name}{next(_names)}-0" if self.writer.must_replace(base) else base.file_id


def add_clusterer(simulation: Simulation, name: str, *, inputs: int = 2) -> None:
    """Plans to pack file groups into one, and carries its plan out."""

    def work(table: HudiTable, actor: Actor) -> None:
        def planner(view: FileSystemView, taken: frozenset[FileGroupId]) -> ServicePlan | None:
            free = [base.file_group for base in view.base_files(PARTITION) if base.file_group not in taken]
            return ServicePlan(frozenset(free[:inputs]), b"plan") if free else None

        instant = schedule(
            table,
            planner,
            action=Action.CLUSTERING,
            operation="CLUSTER",
            priority=PRIORITIES["table_service"],
            lock=NoLock(),
        )
        if instant is not None:
            _cluster(simulation, table, name, instant)

    simulation.add(name, work)


def add_executor(simulation: Simulation, name: str) -> None:
    """Carries out whatever clustering plan it finds, as a second scheduler would."""

    def work(table: HudiTable, actor: Actor) -> None:
        for pending in Timeline.load(table.storage).pending():
            if pending.action is Action.CLUSTERING:
                _cluster(simulation, table, name, pending.requested_time)

    simulation.add(name, work)


def _cluster(simulation: Simulation, table: HudiTable, name: str, instant: str) -> None:
    try:
        begun = begin_planned(table, instant, lock=NoLock(), policy=FAIL, heartbeat_interval=3600.0)
    except NoSuchInstantError:
        return  # carried out, or rolled back, by somebody else
    with begun as writer:
        plan = next(e for e in CommitLog(table.storage).backwards() if e.plans and e.instant == instant)
        inputs = [base for base in writer.view.base_files(PARTITION) if base.file_group in plan.written]
        rows = {key: row for base in inputs for key, row in read_rows(table.storage, base).items()}
        stat = write_rows(table.storage, f"{name}{next(_names)}-0", instant, rows)
        writer.commit([stat], replaced={PARTITION: [base.file_id for base in inputs]})


def add_archiver(simulation: Simulation, name: str) -> None:
    """Archives all that it can but for one commit."""

    def work(table: HudiTable, actor: Actor) -> None:
        archive(table, keep_min=1, keep_max=2, lock=NoLock())

    simulation.add(name, work)


def add_cleaner(simulation: Simulation, name: str) -> None:
    """Deletes file slices that neither a snapshot from now on nor a write in flight needs."""

    def work(table: HudiTable, actor: Actor) -> None:
        storage = table.storage
        doomed: list[str] = []

        def planner(view: FileSystemView, taken: frozenset[FileGroupId]) -> ServicePlan | None:
            doomed[:] = _superseded(storage, view)
            groups = {group_of(path.rpartition("/")[2].partition("_")[0]) for path in doomed}
            return ServicePlan(frozenset(groups), b"plan") if groups and not groups & taken else None

        instant = schedule(
            table,
            planner,
            action=Action.CLEAN,
            operation="CLEAN",
            priority=PRIORITIES["cleaning"],
            lock=NoLock(),
        )
        if instant is None:
            return
        try:
            begun = begin_planned(table, instant, lock=NoLock(), policy=FAIL, heartbeat_interval=3600.0)
        except NoSuchInstantError:
            return  # rolled back: its planner was taken for dead
        with begun as writer:
            for path in doomed:
                storage.delete(path)
            writer.commit([], metadata=b"clean")

    simulation.add(name, work)


def _superseded(storage: Storage, view: FileSystemView) -> list[str]:
    oldest = oldest_base(storage)
    commits = {i.requested_time: i.completion_time or "" for i in view.timeline.commits()}
    bound = "9"
    if oldest is not None:
        entry = CommitLog(storage).read(oldest)
        bound = entry.completion_time if entry else ""
    slices: dict[str, list[tuple[str, str]]] = {}
    for status in storage.list(PARTITION):
        parsed = parse_base_file_name(status.name)
        if parsed and parsed[2] in commits:
            slices.setdefault(parsed[0], []).append((parsed[2], status.path))
    doomed = []
    for file_id, found in slices.items():
        found.sort()
        # Superseded already at the oldest moment that somebody is based on.
        known = [instant for instant, _ in found if commits[instant] <= bound]
        doomed += [path for instant, path in found if known and instant < known[-1]]
        replaced_at = view.replaced.get(group_of(file_id))
        if replaced_at is not None and replaced_at <= bound:
            doomed += [path for _, path in found if path not in doomed]
    return doomed


def add_sweeper(simulation: Simulation, name: str = "sweeper") -> None:
    """Rolls dead writers back."""

    def work(table: HudiTable, actor: Actor) -> None:
        rollback_dead_writers(table)

    simulation.add(name, work)


def add_reader(simulation: Simulation, name: str = "reader", times: int = 3) -> None:
    """Takes snapshots one after the other; a query whose files were deleted is run again.

    Nothing keeps the cleaner here from what a reader is about to list: it has no lease.
    """

    def work(table: HudiTable, actor: Actor) -> None:
        taken = 0
        while taken < times:
            try:
                view = table.view(valid_write_ids=OUTSIDE_OF_TRANSACTIONS)
                snapshot = read_snapshot(table.storage, view)
            except FileNotFoundError:
                continue
            if _deletions(Timeline.load(table.storage)) - _deletions(view.timeline):
                continue
            simulation.observed.setdefault(name, []).append(snapshot)
            taken += 1

    simulation.add(name, work)


def _deletions(timeline: Timeline) -> set[str]:
    """The cleans and rollbacks, from their plans on."""
    return {i.requested_time for i in timeline.instants if i.action in (Action.CLEAN, Action.ROLLBACK)}
