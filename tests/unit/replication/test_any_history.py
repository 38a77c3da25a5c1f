"""Any history of the source, with replicators that are killed, or run twice, anywhere in it.

At each position of the target, a reader with a snapshot sees the same rows as a reader of the source right
after that event. `make soak` tries many more histories; a seed that fails becomes one of ``SEEDS``.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.exceptions import CommitError, TableServiceError, WriteConflictError
from airflow_provider.indexing import drop_index, run_index, schedule_index
from airflow_provider.metastore import PartitionSpec
from airflow_provider.replication import ReplicationSettings, Replicator, failover
from airflow_provider.services.archival import archive
from airflow_provider.services.cleaning import Retention, clean
from airflow_provider.services.compaction import CompactionSettings, compact
from airflow_provider.services.restore import restore
from airflow_provider.services.savepoint import create_savepoint, delete_savepoint
from airflow_provider.services.table_compaction import TableCompactionSettings, compact_table
from airflow_provider.table import HudiTable
from tests.unit.replication.pair import KINDS, Pair, rows
from tests.unit.replication.tables.test_table_services import cluster
from tests.unit.replication.test_failover import write_to_new_source
from tests.unit.replication.test_killed import KilledError
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild

# 49: a restore undoes what came with the bootstrap. 64: nothing was committed yet, an id was aborted.
SEEDS = [("copy-on-write", 49), ("copy-on-write", 64)]
FIRST = int(os.environ.get("FIRST", "0"))
HISTORIES = range(FIRST, FIRST + int(os.environ.get("HISTORIES", "1")))
ACTIONS = 30

Snapshot = dict[str, list[dict[str, Any]]]


class History:
    """A random history; each action is one of ``_DO``, drawn by its weight."""

    def __init__(self, root: Path, kind: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.for_settings = random.Random(seed)
        self.pair = Pair(root, **KINDS[kind])
        self.lake, self.source = self.pair.lake, self.pair.source
        self.open: list[int] = []
        self.made = 0
        self.savepoints: dict[str, str] = {}
        # The rows that a reader of the source saw right after an event.
        self.seen: dict[int, Snapshot] = {}
        self.told: list[str] = []

    def run(self) -> None:
        actions = _DO | (_DO_BESIDES if self.lake.tables["trips"].is_merge_on_read else {})
        for _ in range(ACTIONS):
            [do] = self.random.choices(list(actions), list(actions.values()))
            self.told.append(do.__name__)
            if do in _REFUSED:
                # An open transaction refuses like this; nothing has changed.
                with suppress(TableServiceError):
                    do(self)
            else:
                do(self)
            self._remember()
        for txn in list(self.open):
            self._end(txn, commits=self.random.random() < 0.5)
        self.pair.replicate()
        self.pair.check_equal()
        assert self.pair.mapped() == {}
        for name in self.source.list_tables("lake"):
            assert_indexes_equal_a_rebuild(self.pair.copy_of(name))
        assert self.pair.replicate().bytes_copied == 0
        self._hand_over_and_back()

    def _hand_over_and_back(self) -> None:
        """A failover, killed at a step of it; writes on the other side; and the way back."""
        pair, policy = self.pair, self.pair.policy
        self.write()
        opened = self.lake.begin()
        with suppress(TableServiceError):
            self.lake.write(self._table(), self._rows(), opened)
        # After a kill at most one side takes writes; a second run completes the failover.
        with suppress(KilledError):
            Replicator(policy, pair.source, pair.target, step=self._at_a_step(self._be_killed)).run()
        failover(policy, pair.source, pair.target, timeout_seconds=0.0, abort_open=True)
        pair.check_equal()
        for _ in range(3):
            with suppress(WriteConflictError):
                write_to_new_source(pair, self._table(), self._rows())
        back = policy.reversed("dr-back")
        with suppress(KilledError):
            Replicator(back, pair.target, pair.source, step=self._at_a_step(self._be_killed)).run()
        Replicator(back, pair.target, pair.source).run()
        pair.check_equal()
        failover(back, pair.target, pair.source)
        self.write()
        pair.replicate()
        pair.check_equal()

    # --- what is compared -----------------------------------------------------------------------

    def _remember(self) -> None:
        self.seen[self.source.current_event_id()] = {
            name: rows(
                HudiTable.open(self.source.get_table("lake", name).location),
                self.source.valid_write_id_list("lake", name),
            )
            for name in self.source.list_tables("lake")
        }

    def _compare(self, position: int) -> None:
        wanted = self.seen.get(position)
        if wanted is None:
            return
        target = self.pair.target
        assert target.list_tables("lake_copy") == sorted(wanted)
        for name, there in wanted.items():
            table = HudiTable.open(target.get_table("lake_copy", name).location)
            here = rows(table, target.valid_write_id_list("lake_copy", name))
            assert without_files(here) == without_files(there), (position, name)

    # --- replicators --------------------------------------------------------------------------------

    def replicate(self) -> None:
        self._replicator(self._watch).run()

    def replicate_and_be_killed(self) -> None:
        with suppress(KilledError):
            self._replicator(self._at_a_step(self._be_killed)).run()

    def replicate_doubled(self) -> None:
        first, second = self._replicator(), self._replicator()
        second.owner = first.owner
        first.step = first._copier.step = self._at_a_step(lambda: self._run(second))
        first.run()

    def replicate_a_part(self) -> None:
        upto = self.random.randint(0, self.source.current_event_id())
        self._replicator(self._watch).run(upto=upto)

    def bootstrap_again(self) -> None:
        self._replicator(self._watch).run(bootstrap=True)

    def _replicator(self, step: Callable[[str], None] = lambda _: None) -> Replicator:
        together = self.for_settings.choice([1, 1, 100])
        return self.pair.replicator(step, ReplicationSettings(events_in_one_transaction=together))

    def _run(self, replicator: Replicator) -> None:
        replicator.run()

    def _be_killed(self) -> None:
        raise KilledError

    def _at_a_step(self, do: Callable[[], None]) -> Callable[[str], None]:
        left = self.random.choice([1, 3, 10, 30, 100])

        def step(name: str) -> None:
            nonlocal left
            left -= 1
            self._watch(name)
            if left == 0:
                do()

        return step

    def _watch(self, step: str) -> None:
        if step.startswith("applied "):
            position = int(step.removeprefix("applied "))
            if self.pair.replicator().status().event_id == position:
                self._compare(position)

    # --- the source -----------------------------------------------------------------------------------

    def write(self) -> None:
        self.lake.write(self._table(), self._rows(), operation=self._operation())

    def begin(self) -> None:
        if len(self.open) < 2:
            self.open.append(self.lake.begin())

    def write_in_transaction(self) -> None:
        if self.open:
            self.lake.write(self._table(), self._rows(), self.random.choice(self.open))

    def commit(self) -> None:
        if self.open:
            self._end(self.open.pop(self.random.randrange(len(self.open))), commits=True)

    def abort(self) -> None:
        if self.open:
            self._end(self.open.pop(self.random.randrange(len(self.open))), commits=False)

    def _end(self, txn: int, *, commits: bool) -> None:
        if commits:
            with suppress(CommitError):  # a write that it began was refused
                self.lake.commit(txn)
                return
        self.lake.abort(txn)

    def cluster(self) -> None:
        cluster(self._hudi())

    def compact(self) -> None:
        compact_table(self._hudi(), TableCompactionSettings(delta_commits=self.random.choice([1, 3])))

    def clean(self) -> None:
        clean(self._hudi(), Retention(retained=self.random.choice([1, 3])))

    def archive(self) -> None:
        archive(self._hudi(), keep_min=2, keep_max=3, dead_writer_seconds=0.0)

    def index(self) -> None:
        table = self._hudi()
        if table.config.metadata_partitions and self.random.random() < 0.4:
            drop_index(table, [self.random.choice(table.config.metadata_partitions)])
        else:
            schedule_index(table, self.random.sample(["files", "column_stats", self._of_keys(table)], 2))
            run_index(table)

    def keep(self) -> None:
        name = self._table()
        self.savepoints[name] = create_savepoint(self.lake.tables[name]).instant

    def restore(self) -> None:
        """Restore the source. A replicator cannot copy an undone commit, so it copies everything before."""
        name = self._table()
        kept = self.savepoints.pop(name, None)
        if kept is not None and not self.open:
            self.replicate()
            with suppress(TableServiceError):
                restore(self.lake.tables[name], kept)
            delete_savepoint(self.lake.tables[name], kept)
            self.replicate()

    def alter(self) -> None:
        self.source.alter_table("lake", self._table(), parameters={"p": str(self.random.random())})

    def partition(self) -> None:
        name = self._table()
        spec = PartitionSpec(("sf",), f"{self.lake.tables[name].location}/city=sf")
        if self.source.add_partitions("lake", name, [spec]) == []:
            self.source.drop_partitions("lake", name, [("sf",)])

    def create(self) -> None:
        self.made += 1
        name = f"table{self.made}"
        self.lake.create(name)

    def rename(self) -> None:
        name = self._table()
        self.made += 1
        self.source.rename_table("lake", name, "lake", f"renamed{self.made}")
        self.lake.tables[f"renamed{self.made}"] = self.lake.tables.pop(name)
        self.savepoints.pop(name, None)

    def drop(self) -> None:
        if len(self.lake.tables) > 2:
            name = self._table()
            self.source.drop_table("lake", name)
            del self.lake.tables[name]

    # --- the target's own services ----------------------------------------------------------------------

    def serve_target(self) -> None:
        if "lake_copy" not in self.pair.target.list_databases():
            return
        tables = self.pair.target.list_tables("lake_copy")
        table = self.pair.copy_of(self.random.choice(tables))
        clean(table, Retention(retained=1))
        archive(table, keep_min=2, keep_max=3, dead_writer_seconds=0.0)
        compact(table, CompactionSettings(max_delta_commits=1))

    # --- drawing ------------------------------------------------------------------------------------------

    def _table(self) -> str:
        return self.random.choice(sorted(self.lake.tables))

    def _hudi(self) -> HudiTable:
        return self.lake.tables[self._table()]

    def _rows(self) -> dict[int, int]:
        # Either city, so that a transaction leaves room for others.
        first = self.random.choice([0, 100])
        keys = self.random.sample(range(first, first + 6), self.random.randint(1, 3))
        return {key: self.random.randint(0, 99) for key in keys}

    def _of_keys(self, table: HudiTable) -> str:
        return "record_index" if table.bucket_index is None else "bloom_filters"

    def _operation(self) -> str:
        return self.random.choice(["upsert", "upsert", "upsert", "delete", "insert_overwrite"])


def without_files(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without their file names, because services without an event rewrite files at different times."""
    return [{name: each[name] for name in each if name != "_hoodie_file_name"} for each in found]


_DO: dict[Callable[[History], None], int] = {
    History.write: 10,
    History.begin: 4,
    History.write_in_transaction: 8,
    History.commit: 4,
    History.abort: 3,
    History.cluster: 3,
    History.clean: 2,
    History.archive: 2,
    History.index: 2,
    History.keep: 1,
    History.restore: 1,
    History.alter: 1,
    History.partition: 1,
    History.create: 1,
    History.rename: 1,
    History.drop: 1,
    History.serve_target: 4,
    History.replicate: 3,
    History.replicate_and_be_killed: 5,
    History.replicate_doubled: 3,
    History.replicate_a_part: 3,
    History.bootstrap_again: 1,
}


_DO_BESIDES: dict[Callable[[History], None], int] = {History.compact: 5}
"""Further actions on merge-on-read tables."""


_REFUSED = {
    History.write,
    History.write_in_transaction,
    History.cluster,
    History.compact,
    History.index,
    History.keep,
}
"""Actions that another open transaction, or a missing commit, may block."""


@pytest.mark.parametrize(("kind", "seed"), [*SEEDS, *product(KINDS, HISTORIES)])
def test_any_history(tmp_path: Path, kind: str, seed: int) -> None:
    history = History(tmp_path, kind, seed)
    try:
        history.run()
    except BaseException:
        print(f"{kind}, seed {seed}: {history.told}")
        raise
