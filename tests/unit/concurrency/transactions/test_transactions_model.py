"""Reads with every list of transactions, compared with a serial history."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_provider.exceptions import CommitError, WriteConflictError
from airflow_provider.metastore import ValidTxnList
from airflow_provider.services.table_compaction.table_compaction import compact_table
from airflow_provider.services.table_compaction.table_compaction_plan import TableCompactionSettings
from tests.ingestion_contract.merge_on_read import BUCKETS
from tests.unit.concurrency.transactions.transactional_lake import Lake

TABLES = ("trips", "riders")
# Keys of two partitions, few enough to meet again and again.
KEYS = st.sampled_from([1, 2, 3, 4, 101, 102])
ROWS = st.dictionaries(KEYS, st.integers(0, 99), min_size=1, max_size=3)
OPERATIONS = st.sampled_from(
    ["upsert", "upsert", "upsert", "delete", "insert_overwrite", "insert_overwrite_table"]
)
# Small limits give partitions with several file groups.
LIMITS = st.sampled_from([{}, {"small_file_limit": 0}, {"small_file_limit": 0, "target_file_size": 1}])
WRITE = st.tuples(
    st.just("write"), st.integers(0, 3), st.sampled_from(TABLES), OPERATIONS, ROWS, LIMITS, st.booleans()
)
COMPACTION = st.tuples(st.just("compact"), st.just(0), st.sampled_from(TABLES))
STEP = st.one_of(
    WRITE, WRITE, WRITE, COMPACTION, st.tuples(st.sampled_from(["commit", "abort"]), st.integers(1, 3))
)


class History:
    """The writes, in the order of their completion."""

    def __init__(self) -> None:
        self.writes: list[tuple[int, str, str, dict[int, int]]] = []

    def add(self, txn_id: int, table: str, operation: str, rows: dict[int, int]) -> None:
        self.writes.append((txn_id, table, operation, rows))

    def seen(self, table: str, valid: ValidTxnList) -> dict[int, int]:
        """The rows of a table after the valid transactions, applied one after the other."""
        found: dict[int, int] = {}
        for txn_id, written, operation, rows in self.writes:
            if written != table or not valid.is_valid(txn_id):
                continue
            if operation == "insert_overwrite":
                cities = {key < 100 for key in rows}
                found = {key: fare for key, fare in found.items() if (key < 100) not in cities}
            if operation == "insert_overwrite_table":
                found = {}
            for key, fare in rows.items():
                if operation == "delete":
                    found.pop(key, None)
                else:
                    found[key] = fare
        return found


class Run:
    """One sequence of steps; transactions 1 to 3 have several writes, 0 stands for one write's own."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.lake, self.history = Lake(root, **options), History()
        self.open: dict[int, int] = {}
        self.refused: set[tuple[int | None, str]] = set()
        self.lists: list[ValidTxnList] = []

    def step(self, kind: str, number: int, *write: Any) -> None:
        if kind == "write":
            self._write(number, *write)
        elif kind == "compact":
            table = self.lake.tables[write[0]]
            if table.is_merge_on_read:
                compact_table(table, TableCompactionSettings(delta_commits=1))
        elif number in self.open:
            self._end(self.open.pop(number), kind)
        self.lists.append(self.lake.metastore.valid_txn_list())

    def _end(self, txn_id: int, kind: str) -> None:
        if kind == "commit" and {table for writer, table in self.refused if writer == txn_id}:
            with pytest.raises(CommitError, match="has a write id in it, but was not written"):
                self.lake.commit(txn_id)
            kind = "abort"
        end = self.lake.commit if kind == "commit" else self.lake.abort
        end(txn_id)

    def _write(
        self, number: int, table: str, operation: str, rows: dict[int, int], limits: Any, rebases: bool
    ) -> None:
        if number and number not in self.open:
            self.open[number] = self.lake.begin()
        txn_id = self.open.get(number)
        options = {**limits, "on_conflict": "rebase" if rebases else "raise"}
        try:
            self.lake.write(table, rows, txn_id, operation, **options)
        except WriteConflictError:
            if not any(each[:2] == (txn_id, table) for each in self.history.writes):
                self.refused.add((txn_id, table))
            return
        self.refused.discard((txn_id, table))
        used = self.lake.metastore.valid_txn_list().high_watermark if txn_id is None else txn_id
        self.history.add(used, table, operation, rows)
        if txn_id is not None:
            own = self.lake.metastore.valid_txn_list().with_committed(txn_id)
            assert self.lake.seen(table, valid_txns=own) == self.history.seen(table, own)

    def check(self) -> None:
        for table in TABLES:
            for valid in self.lists:
                assert self.lake.seen(table, valid_txns=valid) == self.history.seen(table, valid), str(valid)

    def end(self) -> None:
        for txn_id in self.open.values():
            self.lake.abort(txn_id)
        now = self.lake.metastore.valid_txn_list()
        for table in TABLES:
            assert self.lake.plain(table) == self.history.seen(table, now)
        self.lake.check_nothing_is_left()


KINDS: dict[str, dict[str, Any]] = {
    "copy-on-write": {},
    "merge-on-read": {"table_type": "merge_on_read"},
    "non-blocking": {"table_type": "merge_on_read", "concurrency": "non_blocking", "hudi_options": BUCKETS},
}
OVERWRITTEN = [
    ("write", 0, "riders", "upsert", {2: 0}, {}, False),
    ("write", 1, "riders", "insert_overwrite_table", {101: 0}, {}, False),
]
DELETED = ("riders", "delete", {2: 0}, {}, False)


@given(kind=st.sampled_from(sorted(KINDS)), steps=st.lists(STEP, min_size=4, max_size=14))
# The write deletes a key that an open transaction has removed, and may bring back.
@example(kind="copy-on-write", steps=[*OVERWRITTEN, ("write", 3, *DELETED)])
@example(kind="copy-on-write", steps=[*OVERWRITTEN, ("write", 0, *DELETED), ("abort", 1)])
@example(kind="non-blocking", steps=[*OVERWRITTEN, ("write", 3, *DELETED)])
@example(kind="non-blocking", steps=[*OVERWRITTEN, ("write", 0, *DELETED), ("abort", 1)])
def test_a_read_shows_what_its_transactions_wrote_one_after_the_other(
    kind: str, steps: list[tuple[Any, ...]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), **KINDS[kind])
        for step in steps:
            run.step(*step)
        run.check()
        run.end()
        run.check()
