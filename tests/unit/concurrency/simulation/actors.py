"""The actors of a simulated run: writers, table services and readers, on the engine's own API.

Clustering and cleaning are the real ones, except for the content of data files.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from airflow_provider.concurrency import (
    PRIORITIES,
    ConflictPolicy,
    HeartbeatSettings,
    Rebase,
    Rebased,
    Writer,
    WriteSettings,
    WriteTransaction,
    begin_write,
    rollback_dead_writers,
)
from airflow_provider.concurrency.log.log_entry import Restore
from airflow_provider.concurrency.transactions.transactions import undo_writes
from airflow_provider.exceptions import (
    NoSuchInstantError,
    SnapshotUnavailableError,
    TableError,
    UnsupportedTableError,
    WriteConflictError,
)
from airflow_provider.services.archival import DEAD_WRITER_SECONDS, archive
from airflow_provider.services.cleaning.clean_plan import Retention
from airflow_provider.services.cleaning.cleaning import clean
from airflow_provider.services.clustering.clustering import (
    pending_clusterings,
    run_clustering,
    schedule_clustering,
)
from airflow_provider.services.clustering.clustering_job import ClusteringJob
from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
from airflow_provider.services.clustering.clustering_task import ClusteringTask
from airflow_provider.services.compaction import compact
from airflow_provider.services.compaction_plan import CompactionSettings
from airflow_provider.services.restore import restore
from airflow_provider.services.savepoint import create_savepoint, delete_savepoint, savepoints
from airflow_provider.services.table_compaction.compaction_task import CompactionTask
from airflow_provider.services.table_compaction.log_compaction import (
    LogCompactionSettings,
    pending_log_compactions,
    run_log_compaction,
    schedule_log_compaction,
)
from airflow_provider.services.table_compaction.table_compaction import (
    pending_table_compactions,
    run_table_compaction,
    schedule_table_compaction,
)
from airflow_provider.services.table_compaction.table_compaction_plan import (
    TableCompactionSettings,
    slice_of,
)
from airflow_provider.table.file_groups.view import BaseFile, FileGroupId, FileSystemView
from airflow_provider.table.files.data_file_name import parse_data_file_name
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.metadata import WriteStat
from tests.unit.concurrency.simulation.rows import (
    ADDS,
    PARTITION,
    Row,
    append_rows,
    group_of,
    locate,
    log_paths,
    merged,
    read_rows,
    write_rows,
)
from tests.unit.concurrency.simulation.scheduler import Actor, NoLock, Simulation, Write

FAIL = ConflictPolicy(on_higher_priority="fail")
REBASE = ConflictPolicy(on_conflict="rebase", on_higher_priority="fail")
REVERT = ConflictPolicy(on_conflict="rebase", on_rewrite="revert", on_higher_priority="fail")

PACK_IN_PAIRS = ClusteringSettings(max_group_size=2200)
"""A data file of a simulation has about 900 bytes."""

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
    fills: bool = False,
    lock: NoLock | None = None,
) -> None:
    """A writer that upserts keys: it adds its name to the history of each.

    With ``aborted_txn`` the writer is in a transaction, which aborts when the write has completed. With
    ``fills`` new keys go into the only file group, if there is one.
    """
    wanted = frozenset(keys)

    def work(table: HudiTable, actor: Actor) -> None:
        with begin_write(
            table,
            operation="UPSERT",
            action=table.write_action,
            lock=lock or NoLock(),
            settings=WriteSettings(
                policy=policy or ConflictPolicy(), priority=priority, heartbeat=HeartbeatSettings(3600.0)
            ),
            operation_key=operation_key,
            transaction=WriteTransaction(aborted_txn, aborted_txn, txn_goes_on=True),
        ) as writer:
            simulation.writes[writer.instant] = Write(name, wanted)
            upsert = _Upsert(table.storage, writer, name, wanted, fills, table.is_merge_on_read)
            stats, replaced = upsert.merge(writer.view, wanted, plan=True)
            result = writer.commit(
                stats,
                replaced=replaced,
                unique_keys=True,
                rebase=upsert.merge_again,
            )
        assert result.instant == writer.instant
        if aborted_txn is None:
            _acknowledge(simulation, actor, result.instant)
        else:
            undo_writes(table, aborted_txn)

    simulation.add(name, work)


def _acknowledge(simulation: Simulation, actor: Actor, instant: str) -> None:
    simulation.acknowledged.add(instant)
    if actor.has_lost_answer:
        simulation.unpublished.add(instant)


@dataclass
class _Upsert:
    """An upsert that merges the lost part again after a lost conflict."""

    storage: Storage
    writer: Writer
    name: str
    keys: frozenset[str]
    fills: bool
    appends: bool
    written: dict[FileGroupId, set[str]] = field(default_factory=dict)
    tries: int = 0

    def merge(
        self, view: FileSystemView, keys: Iterable[str], *, plan: bool = False
    ) -> tuple[list[WriteStat], dict[str, list[str]]]:
        self.tries += 1
        found = locate(self.storage, view, keys)
        filled: set[BaseFile | None] = set()
        files = view.base_files(PARTITION)
        if (
            self.fills
            and plan
            and None in found
            and len(files) == 1
            and not log_paths(view, files[0].file_id)
        ):
            # Like ingestion, this looks for no key there. A rebase looks, and opens a file group.
            rows = found.get(files[0]) or read_rows(self.storage, files[0].path)
            found[files[0]] = {**rows, **found.pop(None)}
            filled = {files[0]}
        appended = {base for base in found if base and self.appends and base not in filled}
        if plan:
            groups = [base.file_group for base in found if base]
            self.writer.plan(groups, [PARTITION], appended=[base.file_group for base in appended if base])
        stats, replaced = [], []
        for base, rows in found.items():
            own = set(keys) & rows.keys()
            if base and self.appends:
                self._check_is_last(view, base)
            if base and base in appended:
                stats.append(self._append(base, {key: rows[key] for key in own}))
                continue
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
                    inserts=sum(not rows[key].commit_time for key in own),
                    write_token=f"{self.tries}-0-0",
                )
            )
            self.written[group_of(file_id)] = own
        return stats, {PARTITION: replaced} if replaced else {}

    def _append(self, base: BaseFile, rows: dict[str, Row]) -> WriteStat:
        self.written[base.file_group] = set(rows)
        upserted = {key: Row(self.writer.instant, (*row.history, self.name)) for key, row in rows.items()}
        token = f"{self.tries}-0-0"
        return append_rows(self.storage, base.file_id, self.writer.instant, upserted, write_token=token)

    def _check_is_last(self, view: FileSystemView, base: BaseFile) -> None:
        # Like ingestion, this begins again: readers merge in the order of requested times.
        names = (path.rpartition("/")[2] for path in (base.path, *log_paths(view, base.file_id)))
        instants = (parsed.instant for name in names if (parsed := parse_data_file_name(name)))
        if max(instants) > self.writer.instant:
            raise WriteConflictError("a file of the slice was requested later")

    def merge_again(self, rebase: Rebase) -> Rebased:
        # The rows that were kept in a file group move with it when it is merged again.
        keys: set[str] = set()
        for group in rebase.lost:
            keys |= self.written.pop(group, set())
        stats, replaced = self.merge(rebase.view, keys)
        return Rebased(stats, replaced)

    def _file_id(self, base: BaseFile | None) -> str:
        if base is None:
            return f"{self.name}{next(_names)}-0"
        return f"{self.name}{next(_names)}-0" if self.writer.must_replace(base) else base.file_id


def add_appender(
    simulation: Simulation,
    name: str,
    keys: Iterable[str],
    *,
    priority: int = PRIORITIES["ingestion"],
    aborted_txn: int | None = None,
) -> None:
    """A writer of a non-blocking table: it appends its name to each key's history, which it does not read.

    It loses only against a restore.
    """
    wanted = frozenset(keys)

    def work(table: HudiTable, actor: Actor) -> None:
        settings = WriteSettings(policy=FAIL, priority=priority, heartbeat=HeartbeatSettings(3600.0))
        before = len(simulation.entries())
        try:
            with begin_write(
                table,
                operation="UPSERT",
                action=table.write_action,
                lock=NoLock(),
                settings=settings,
                transaction=WriteTransaction(aborted_txn, aborted_txn, txn_goes_on=True),
            ) as writer:
                simulation.writes[writer.instant] = Write(name, wanted)
                result = writer.commit(_appended(table, writer, name, wanted))
        except WriteConflictError:
            if any(isinstance(entry, Restore) for entry in simulation.entries()[before:]):
                return
            raise AssertionError(f"{name} has lost a conflict") from None
        if aborted_txn is None:
            _acknowledge(simulation, actor, result.instant)
        else:
            undo_writes(table, aborted_txn)

    simulation.add(name, work)


def _appended(table: HudiTable, writer: Writer, name: str, keys: Iterable[str]) -> list[WriteStat]:
    index, view = table.bucket_index, writer.view
    assert index is not None
    files = (*view.base_files(PARTITION), *view.log_files(PARTITION))
    live = index.file_groups(PARTITION, {each.file_id for each in files})
    by_bucket: dict[int, dict[str, Row]] = {}
    for key in sorted(keys):
        by_bucket.setdefault(len(key) % 2, {})[key] = Row(writer.instant, (ADDS, name))
    there = [group_of(live[number]) for number in by_bucket if number in live]
    writer.plan(there, [PARTITION], appended=there)
    return [
        append_rows(
            table.storage,
            live.get(number) or index.first_file_id(PARTITION, number, view.replaced),
            writer.instant,
            rows,
        )
        for number, rows in by_bucket.items()
    ]


def add_clusterer(simulation: Simulation, name: str, *, lock: NoLock | None = None) -> None:
    """Plans to pack file groups, two at a time, and executes the plan."""

    def work(table: HudiTable, actor: Actor) -> None:
        instant = schedule_clustering(table, PACK_IN_PAIRS, lock=lock or NoLock())
        if instant is not None:
            _cluster(table, name, instant, lock or NoLock())

    simulation.add(name, work)


def add_executor(simulation: Simulation, name: str) -> None:
    """Executes any clustering plan that it finds, as a second scheduler would."""

    def work(table: HudiTable, actor: Actor) -> None:
        for instant in pending_clusterings(table):
            _cluster(table, name, instant, NoLock())

    simulation.add(name, work)


def _cluster(table: HudiTable, name: str, instant: str, lock: NoLock) -> None:
    def write_group(tasks: Sequence[ClusteringTask]) -> list[WriteStat]:
        (task,) = tasks
        inputs = (merged(task.storage, each.base_path, each.log_paths) for each in task.group.slices)
        rows = {key: row for found in inputs for key, row in found.items()}
        return [write_rows(task.storage, f"{name}{next(_names)}-0", instant, rows)]

    job = ClusteringJob(table.location, instant, heartbeat=HeartbeatSettings(3600.0))
    with suppress(NoSuchInstantError):  # carried out, or rolled back, by somebody else
        run_clustering(job, table, write_group, lock=lock)


def add_table_compactor(simulation: Simulation, name: str) -> None:
    """Plans the compaction of all file groups with log files, and executes the plan."""

    def work(table: HudiTable, actor: Actor) -> None:
        instant = schedule_table_compaction(table, EVERY_COMMIT, lock=NoLock())
        if instant is not None:
            _compact(table, instant)

    simulation.add(name, work)


def add_table_compaction_executor(simulation: Simulation, name: str) -> None:
    """Executes any compaction plan that it finds, as a second scheduler would."""

    def work(table: HudiTable, actor: Actor) -> None:
        for instant in pending_table_compactions(table):
            _compact(table, instant)

    simulation.add(name, work)


def add_log_compactor(simulation: Simulation, name: str) -> None:
    """Plans to merge two or more log blocks into one, and executes its plan, or another that it finds."""

    def work(table: HudiTable, actor: Actor) -> None:
        planned = schedule_log_compaction(table, LogCompactionSettings(blocks=2), lock=NoLock())
        for instant in [planned] if planned else pending_log_compactions(table):
            with suppress(NoSuchInstantError):  # carried out, or rolled back, by somebody else
                run_log_compaction(table, instant, lock=NoLock(), heartbeat=HeartbeatSettings(3600.0))

    simulation.add(name, work)


EVERY_COMMIT = TableCompactionSettings(delta_commits=1)


def _compact(table: HudiTable, instant: str) -> None:
    def write(tasks: Sequence[CompactionTask]) -> list[WriteStat]:
        return [_compacted(table.storage, task) for task in tasks]

    with suppress(NoSuchInstantError):  # carried out, or rolled back, by somebody else
        run_table_compaction(table, instant, write=write, lock=NoLock(), heartbeat=HeartbeatSettings(3600.0))


def _compacted(storage: Storage, task: CompactionTask) -> WriteStat:
    file_slice = slice_of(task.operation)
    rows, base = merged(storage, file_slice.base_path, file_slice.log_paths), None
    if (path := file_slice.base_path) is not None:
        base = BaseFile(PARTITION, task.operation.file_id, "", file_slice.base_instant, path, 0)
    return write_rows(storage, task.operation.file_id, task.instant, rows, base=base)


def add_compactor(simulation: Simulation, name: str) -> None:
    """Compacts the metadata table after every commit, and finishes pending compactions."""

    def work(table: HudiTable, actor: Actor) -> None:
        compact(table, CompactionSettings(max_delta_commits=1), lock=NoLock())

    simulation.add(name, work)


EVERYTHING = Retention("KEEP_LATEST_FILE_VERSIONS", 1, reverted_after=0.0)
"""Keeps only the files that a reader or writer needs."""


def add_archiver(
    simulation: Simulation, name: str, *, dead_writer_seconds: float = DEAD_WRITER_SECONDS
) -> None:
    """Archives as many commits as it can, except one."""

    def work(table: HudiTable, actor: Actor) -> None:
        archive(table, keep_min=1, keep_max=2, dead_writer_seconds=dead_writer_seconds, lock=NoLock())

    simulation.add(name, work)


def add_cleaner(simulation: Simulation, name: str, *, lock: NoLock | None = None) -> None:
    """Deletes all files that neither a snapshot from now on nor a write or a lease needs."""

    def work(table: HudiTable, actor: Actor) -> None:
        clean(table, EVERYTHING, lock=lock or NoLock())

    simulation.add(name, work)


def add_restorer(simulation: Simulation, name: str, undone: int = 2) -> None:
    """Restores the table to an earlier commit, this many commits back if there are so many."""

    def work(table: HudiTable, actor: Actor) -> None:
        to = table.timeline().commits()[-1 - undone :][0].requested_time
        with _may_be_refused():
            result = restore(table, to, lock=NoLock())
            if result.instant is not None:
                _acknowledge(simulation, actor, result.instant)
                simulation.restored[result.instant] = to

    simulation.add(name, work)


def add_keeper(simulation: Simulation, name: str) -> None:
    """Keeps the last commit but one by a savepoint; if there is a savepoint, deletes it."""

    def work(table: HudiTable, actor: Actor) -> None:
        with _may_be_refused():
            if there := savepoints(table):
                simulation.let_go.add(there[0].instant)
                delete_savepoint(table, there[0].instant)
            else:
                commit = table.timeline().commits()[-2:][0]
                simulation.kept.add(create_savepoint(table, commit.requested_time, lock=NoLock()).instant)

    simulation.add(name, work)


@contextmanager
def _may_be_refused() -> Iterator[None]:
    """A clean, the archive, a savepoint or an open transaction may be in the way, or the storage; damage
    never."""
    try:
        yield
    except TableError as error:
        if type(error) not in (
            TableError,
            NoSuchInstantError,
            SnapshotUnavailableError,
            UnsupportedTableError,
        ):
            raise


def add_sweeper(simulation: Simulation, name: str = "sweeper") -> None:
    """Rolls dead writers back."""

    def work(table: HudiTable, actor: Actor) -> None:
        rollback_dead_writers(table)

    simulation.add(name, work)
