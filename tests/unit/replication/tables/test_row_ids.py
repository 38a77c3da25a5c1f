"""Row ids: unique, the same wherever services move a row, and equal at the target."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.concurrency.transactions.transactions import abort_transaction, commit_transaction
from airflow_provider.metastore import Column
from airflow_provider.services.archival import archive
from airflow_provider.services.cleaning import Retention, clean
from airflow_provider.services.restore import restore
from airflow_provider.services.savepoint import create_savepoint, delete_savepoint
from airflow_provider.services.table_compaction import TableCompactionSettings, compact_table
from airflow_provider.table import HudiTable, snapshot
from tests.unit.concurrency.transactions.transactional_lake import SCHEMA
from tests.unit.replication.pair import Pair
from tests.unit.replication.tables.test_table_services import cluster

RowId = tuple[int, int, int]
Ids = dict[RowId, tuple[int, int, int]]
"""The id, fare and current write id of each row, by its row id."""

STEPS = 25


def ids_of(table: HudiTable) -> Ids:
    """All rows of a table; every row id exists once."""
    rows = snapshot(table, row_ids=True).to_table().to_pylist()
    found = {
        tuple(each["row_id"].values()): (each["id"], each["fare"], each["current_write_id"]) for each in rows
    }
    assert len(found) == len(rows), "a row id is there twice"
    return found


class History:
    """The steps on one table, and its expected row ids after each step."""

    def __init__(self, pair: Pair, name: str, seed: int) -> None:
        self.pair, self.name, self.random = pair, name, random.Random(seed)
        self.table = pair.lake.tables[name]
        self.ids: Ids = {}
        self.made = 0
        self.write()

    # --- writes ---------------------------------------------------------------------------------

    def write(self) -> None:
        self._written(None)

    def write_several_in_a_transaction(self) -> None:
        before, txn = dict(self.ids), self.pair.lake.begin()
        for _ in range(3):
            self._written(txn)
        if self.random.random() < 0.7:
            commit_transaction(self.pair.source, txn)
            return
        abort_transaction(self.pair.source, txn)
        self.ids = before
        assert ids_of(self.table) == before

    def _written(self, txn: int | None) -> None:
        is_keyed = not self.table.config.generates_keys
        operations = [
            "insert",
            "bulk_insert",
            "insert_overwrite_table",
            *(["upsert", "delete"] if is_keyed else []),
        ]
        operation = self.random.choice(operations)
        if is_keyed and operation in ("upsert", "delete"):
            chosen = [self.random.randrange(1, 200) for _ in range(4)]
        else:
            self.made += 1
            chosen = [200 * self.made + number for number in (1, 2, 150)]
        rows = {number: self.random.randrange(1000) for number in chosen}
        before = self.ids
        self.pair.lake.write(self.name, rows, txn, operation)
        self.ids = ids_of(self.table)
        overwritten = operation == "insert_overwrite_table"
        is_replaced = {
            row_id for row_id, row in before.items() if overwritten or (is_keyed and row[0] in rows)
        }
        kept = {row_id: row for row_id, row in before.items() if row_id not in is_replaced}
        assert {row_id: row for row_id, row in self.ids.items() if row_id in before} == kept
        new = {row_id: row for row_id, row in self.ids.items() if row_id not in before}
        assert {row[0]: row[1] for row in new.values()} == ({} if operation == "delete" else rows)
        last = self.pair.source.valid_write_id_list("lake", self.name).high_watermark
        assert {(row_id[0], row[2]) for row_id, row in new.items()} <= {(last, last)}

    # --- services -------------------------------------------------------------------------------

    def cluster(self) -> None:
        cluster(self.table)

    def clean(self) -> None:
        clean(self.table, Retention("KEEP_LATEST_FILE_VERSIONS", 1))

    def archive(self) -> None:
        archive(self.table, keep_min=2, keep_max=3)

    def restore(self) -> None:
        kept = create_savepoint(self.table)
        before = dict(self.ids)
        self.write()
        self.write_several_in_a_transaction()
        restore(self.table, kept.instant)
        delete_savepoint(self.table, kept.instant)
        self.ids = before

    def replicate(self) -> None:
        self.pair.replicate()

    def compact(self) -> None:
        compact_table(self.table, TableCompactionSettings(delta_commits=1))

    def step(self, choices: Sequence[Callable[[History], None]]) -> None:
        do = self.random.choice(choices)
        do(self)
        assert ids_of(self.table) == self.ids, do.__name__


DO: list[Callable[[History], None]] = [
    *[History.write] * 4,
    *[History.write_several_in_a_transaction] * 2,
    History.cluster,
    History.cluster,
    History.clean,
    History.archive,
    History.restore,
    History.replicate,
]


def with_table(root: Path, **options: Any) -> tuple[Pair, str]:
    """Two metastores, and the name of an empty table in the first one."""
    pair = Pair(root)
    made = HudiTable.create(
        f"{root}/source/events", name="events", schema=SCHEMA, partition_by=["city"], **options
    )
    pair.source.create_table(
        "lake",
        "events",
        location=made.location,
        schema=[Column("id", "bigint"), Column("fare", "bigint")],
        partition_keys=[Column("city", "string")],
    )
    pair.lake.tables["events"] = made
    return pair, "events"


@pytest.mark.parametrize("record_key", [["id"], None])
@pytest.mark.parametrize("seed", range(2))
def test_row_ids_stay_whatever_happens_and_are_equal_at_the_target(
    tmp_path: Path, record_key: list[str] | None, seed: int
) -> None:
    pair, name = with_table(tmp_path, record_key=record_key)
    history = History(pair, name, seed)
    for _ in range(STEPS):
        history.step(DO)
    history.replicate()
    pair.check_equal()
    assert ids_of(pair.copy_of(name)) == history.ids


@pytest.mark.parametrize("seed", range(2))
def test_row_ids_stay_in_a_merge_on_read_table(tmp_path: Path, seed: int) -> None:
    history = History(*with_table(tmp_path, record_key=["id"], table_type="merge_on_read"), seed)
    for _ in range(STEPS):
        history.step([*[History.write] * 4, History.write_several_in_a_transaction, History.compact])
    history.compact()
    assert ids_of(history.table) == history.ids


def test_a_bootstrap_brings_the_row_ids_of_archived_commits(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    for number in range(1, 8):
        pair.lake.write("trips", {number: number})
    source = pair.lake.tables["trips"]
    assert archive(source, keep_min=2, keep_max=3).instants
    pair.replicate()
    assert ids_of(pair.copy_of("trips")) == ids_of(source)
