"""Overwrites beside other writes, for each pair of operations: the result is that of some serial order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider.exceptions import WriteConflictError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.clustering.clustering import cluster_in_process, schedule_clustering
from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
from tests.ingestion_contract.interleaving import crossing
from tests.ingestion_contract.lake import KIB, Lake, LakeTable, Rows
from tests.ingestion_contract.record_index import SCHEMA, SMALL, build, check_index, rows
from tests.sweep import share_of
from tests.unit.concurrency.simulation.scheduler import NoLock

State = Counter[tuple[int, str, str]]


@dataclass(frozen=True)
class Write:
    """One write, and its expected effect.

    :param operation: the operation of an ingestion, or ``clustering``.
    :param where: the partitions that it writes.
    :param ids: the ids of its rows in each partition.
    """

    operation: str
    where: str
    ids: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.operation}-{self.where}-{''.join(map(str, self.ids))}"

    def rows(self, value: str) -> Rows:
        return [row for partition in self.where for row in rows(self.ids, partition, value)]

    def on(self, table: LakeTable, value: str, **job: Any) -> None:
        """Do the write on a table."""
        if self.operation == "clustering":
            planned = schedule_clustering(
                table.table,
                ClusteringSettings(
                    ("id",), partitions=tuple(f"p={each}" for each in self.where), target_file_size=KIB
                ),
                max_failures=None,
            )
            if planned is not None:
                cluster_in_process(table.table, planned)
            return
        batch = table.arrow(self.rows(value))
        ingest_arrow(table.location, batch, self.operation, **{**SMALL, **job})

    def after(self, state: State, value: str) -> State:
        """The rows of a table after the write, given its rows before."""
        mine = Counter((row["id"], row["p"], row["v"]) for row in self.rows(value))
        keys = {(number, partition) for number, partition, _ in mine}
        stays: Mapping[str, Callable[[tuple[int, str, str]], bool]] = {
            "upsert": lambda row: row[:2] not in keys,
            "delete": lambda row: row[:2] not in keys,
            "insert_overwrite": lambda row: row[1] not in self.where,
            "insert_overwrite_table": lambda _: False,
        }
        left = Counter({row: n for row, n in state.items() if stays.get(self.operation, lambda _: True)(row)})
        return left if self.operation == "delete" else left + mine


OVERWRITES = (
    Write("insert_overwrite", "a", (1, 5)),
    Write("insert_overwrite", "ab", (1, 6)),
    Write("insert_overwrite_table", "a", (1, 5)),
    Write("insert_overwrite_table", "c", (7,)),
)
OTHERS = (
    Write("upsert", "a", (1, 5)),
    Write("upsert", "a", (8,)),
    Write("upsert", "bc", (2, 7)),
    Write("insert", "a", (9,)),
    Write("bulk_insert", "ab", (9,)),
    Write("delete", "a", (1, 5)),
    Write("clustering", "ab"),
)
WRITES = (*OVERWRITES, *OTHERS)
PAIRS = [
    (mine, theirs)
    for mine in WRITES
    for theirs in WRITES
    if mine in OVERWRITES or mine.operation == "delete" or (theirs in OVERWRITES and mine.ids)
]
STARTS: Mapping[str, Rows] = {
    "empty": (),
    "with rows": [*rows([1, 2, 3], "a", "old"), *rows([4], "b", "old")],
}


def table_with(lake: Lake, start: Rows) -> LakeTable:
    made = lake.create(SCHEMA, partition_by=["p"])
    if start:
        made.ingest("bulk_insert", start[:2], **SMALL)
        made.ingest("bulk_insert", start[2:], **SMALL)
    return made


def held(table: LakeTable) -> State:
    return Counter((row["id"], row["p"], row["v"]) for row in table.rows())


# Of each pair a push tries both policies, each on one of the two tables.
MEETINGS = share_of(
    [
        (*pair, *each)
        for pair in PAIRS
        for each in (("raise", "empty"), ("raise", "with rows"), ("rebase", "with rows"), ("rebase", "empty"))
    ],
    shares=2,
)


@pytest.mark.parametrize(("mine", "theirs", "on_conflict", "start"), MEETINGS, ids=str)
def test_two_writes_that_meet(lake: Lake, mine: Write, theirs: Write, on_conflict: str, start: str) -> None:
    table = table_with(lake, STARTS[start])
    before = held(table)
    try:
        with crossing(("commit_log/0", lambda: theirs.on(table, "theirs"))):
            mine.on(table, "mine", on_conflict=on_conflict)
    except WriteConflictError:
        assert on_conflict == "raise"
        assert held(table) == theirs.after(before, "theirs")
        return
    found = held(table)
    in_log_order = mine.after(theirs.after(before, "theirs"), "mine")
    the_other_way = theirs.after(mine.after(before, "mine"), "theirs")
    # A delete that finds no row has written nothing, and may also have come before.
    assert found == in_log_order or (mine.operation == "delete" and found == the_other_way)
    table.check_readers(None, table.rows())


@pytest.mark.parametrize("mine", OVERWRITES[:1] + OVERWRITES[2:3], ids=str)
def test_a_conflict_says_what_was_overwritten(lake: Lake, mine: Write) -> None:
    table = table_with(lake, ())
    with (
        pytest.raises(
            WriteConflictError,
            match=rf"{mine.operation.upper()} .* lost a write conflict: BULK_INSERT \d+ .*'p=a', which",
        ),
        crossing(("commit_log/0", lambda: table.ingest("bulk_insert", rows([3], "a"), **SMALL))),
    ):
        mine.on(table, "mine")


def test_what_is_overwritten_is_not_written_again(lake: Lake) -> None:
    table = table_with(lake, STARTS["with rows"])
    build(table, "record_index")
    with crossing(("commit_log/0", lambda: table.ingest("upsert", rows([1, 5, 8], "a"), **SMALL))):
        result = table.ingest("insert_overwrite", rows([1, 5], "a", "mine"), on_conflict="rebase", **SMALL)
    assert (result["rebases"], result["files_written"]) == (1, 1)
    table.check_now([*rows([4], "b", "old"), *rows([1, 5], "a", "mine")])
    check_index(table)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    mine=st.sampled_from(OVERWRITES),
    others=st.lists(
        st.sampled_from([each for each in WRITES if each.operation != "clustering"]), min_size=1, max_size=4
    ),
    start=st.sampled_from(sorted(STARTS)),
)
def test_an_overwrite_that_is_overtaken_again_and_again(
    lake: Lake, mine: Write, others: list[Write], start: str
) -> None:
    table = table_with(lake, STARTS[start])
    expected = held(table)
    steps: list[tuple[str, Callable[[], object]]] = []
    for number, other in enumerate(others):
        steps.append(("commit_log/0", partial(other.on, table, f"other{number}", lock=NoLock())))
        expected = other.after(expected, f"other{number}")
    with crossing(*steps):
        mine.on(table, "mine", on_conflict="rebase", lock=NoLock())
    assert held(table) == mine.after(expected, "mine")
    table.check_readers(None, table.rows())
