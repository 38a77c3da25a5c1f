"""A record index that becomes complete during a write: no key exists twice afterwards (C5)."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from airflow_provider.exceptions import (
    DuplicateRecordKeyError,
    InvalidRecordKeyError,
    WriteConflictError,
)
from airflow_provider.indexing.drop import drop_index
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.table.timeline.instant import Action
from tests.ingestion_contract.interleaving import Clustering, crossing
from tests.ingestion_contract.lake import Lake, LakeTable, Rows
from tests.ingestion_contract.record_index import SCHEMA, SMALL, build, check_index, rows
from tests.sweep import share_of
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild

POINTS = (".heartbeat/", ".requested", ".inflight", "commit_log/0")
"""Parts of paths that a write puts, in its order."""


@pytest.fixture
def table(lake: Lake) -> LakeTable:
    made = lake.create(SCHEMA, partition_by=["p"])
    made.ingest("bulk_insert", [*rows([1], "a"), *rows([2], "b")], **SMALL)
    return made


def schedule(table: LakeTable) -> None:
    schedule_index(
        table.table, ["record_index"], options={"hoodie.metadata.record.index.min.filegroup.count": 2}
    )


def check_every_key_is_there_once(table: LakeTable) -> None:
    ids = [row["id"] for row in table.rows()]
    assert sorted(ids) == sorted(set(ids))
    check_index(table)
    assert_indexes_equal_a_rebuild(table.table)


CROSSINGS = list(itertools.combinations_with_replacement(POINTS, 2))
AFTERWARDS = [(at, "afterwards") for at in (*POINTS, "afterwards")]


@pytest.mark.parametrize("on_conflict", ["raise", "rebase"])
@pytest.mark.parametrize(
    ("operation", "batch", "planned_at", "completed_at"),
    # Of each operation a push tries a quarter of the moments.
    share_of(
        (operation, batch, *each)
        for operation, batch, crossings in [
            ("upsert", rows([1], "b", "again"), CROSSINGS + AFTERWARDS),
            ("upsert", rows([3], "b") + rows([3], "c"), CROSSINGS + AFTERWARDS),
            ("upsert", rows([2, 3], "b") + rows([3], "c"), CROSSINGS + AFTERWARDS),
            ("insert", rows([1], "b", "again"), CROSSINGS + AFTERWARDS),
            ("bulk_insert", rows([1], "a", "again"), CROSSINGS + AFTERWARDS),
            ("insert_overwrite", rows([1], "b", "again"), CROSSINGS + AFTERWARDS),
            # Within one file the index has one place for the key.
            ("insert", rows([2], "b", "again"), CROSSINGS),
            ("bulk_insert", rows([3, 3], "b"), CROSSINGS),
        ]
        for each in crossings
    ),
    ids=lambda value: (
        value if isinstance(value, str) else "-".join(f"{row['id']}{row['p']}" for row in value)
    ),
)
def test_a_key_is_not_there_twice_under_a_complete_record_index(
    table: LakeTable, operation: str, batch: Rows, planned_at: str, completed_at: str, on_conflict: str
) -> None:
    refused: list[Exception] = []

    def run() -> None:
        try:
            run_index(table.table)
        except DuplicateRecordKeyError as error:
            refused.append(error)

    def schedule_and_run() -> None:
        schedule(table)
        run()

    steps: list[tuple[str, Callable[[], object]]] = [(planned_at, schedule_and_run)]
    if planned_at != completed_at:
        steps = [(planned_at, lambda: schedule(table)), (completed_at, run)]
    with crossing(*(step for step in steps if step[0] != "afterwards")):
        try:
            table.ingest(operation, batch, on_conflict=on_conflict, small_file_limit=64 * 1024)
        except (WriteConflictError, InvalidRecordKeyError) as error:
            refused.append(error)
    for at, step in steps:
        if at == "afterwards":
            step()
    assert len(refused) == 1, "either the write or the index is refused"
    if isinstance(refused[0], DuplicateRecordKeyError):
        assert "record_index" not in table.table.config.metadata_partitions
    else:
        check_every_key_is_there_once(table)


def test_what_the_index_tells_is_merged_by_a_rebase(table: LakeTable) -> None:
    def others() -> None:
        table.ingest("upsert", rows([3, 4], "b", "theirs"), **SMALL)
        build(table, "record_index")

    with crossing(("commit_log/0", others)):
        result = table.ingest("upsert", rows([4, 5], "b", "mine"), on_conflict="rebase", **SMALL)
    assert result["rebases"] == 1
    table.check_now([*rows([1], "a"), *rows([2], "b"), *rows([3], "b", "theirs"), *rows([4, 5], "b", "mine")])
    check_every_key_is_there_once(table)


def test_a_conflict_says_which_key_the_index_knows(table: LakeTable) -> None:
    with (
        pytest.raises(
            WriteConflictError, match=r"lost .*: INDEX \d+ by .* as 1 would be; run the write again"
        ),
        crossing(("commit_log/0", lambda: build(table, "record_index"))),
    ):
        table.ingest("upsert", rows([1], "b"), **SMALL)
    check_every_key_is_there_once(table)


@pytest.mark.parametrize("ids", [[3, 3], [3, 3, 3], [3, 4, 5]])
def test_a_key_that_a_write_brings_twice_into_one_file(table: LakeTable, ids: list[int]) -> None:
    with crossing(("commit_log/0", lambda: build(table, "record_index"))):
        if len(set(ids)) == len(ids):
            table.ingest("bulk_insert", rows(ids, "b"))
        else:
            with pytest.raises(WriteConflictError, match=r"lost .*: INDEX \d+ by .* as 3 would be"):
                table.ingest("bulk_insert", rows(ids, "b"))
    check_every_key_is_there_once(table)


def test_an_index_that_is_dropped_and_built_anew_is_asked_again(table: LakeTable) -> None:
    build(table, "record_index")

    def others() -> None:
        drop_index(table.table, ["record_index"])
        table.ingest("upsert", rows([3], "a"), **SMALL)
        build(table, "record_index")

    with (
        pytest.raises(InvalidRecordKeyError, match="'3' lives in partition 'p=a'"),
        crossing(("commit_log/0", others)),
    ):
        table.ingest("upsert", rows([3], "b"), on_conflict="rebase", **SMALL)
    check_every_key_is_there_once(table)


@pytest.mark.parametrize("index", ["record_index", "files"])
def test_a_key_that_another_adds_to_a_file_group_that_both_write(table: LakeTable, index: str) -> None:
    build(table, index)

    def other() -> None:  # into the existing file group
        table.ingest("upsert", rows([3], "b", "theirs"))

    with crossing(("commit_log/0", other)):
        table.ingest("upsert", rows([2, 3], "b", "mine"), on_conflict="rebase", **SMALL)
    table.check_now([*rows([1], "a"), *rows([2, 3], "b", "mine")])
    if index == "record_index":
        check_every_key_is_there_once(table)


def test_what_a_write_takes_out_is_in_nobodys_way(table: LakeTable) -> None:
    with crossing(("commit_log/0", lambda: build(table, "record_index"))):
        table.ingest("insert_overwrite", rows([2, 3], "b", "mine"), **SMALL)
    table.check_now([*rows([1], "a"), *rows([2, 3], "b", "mine")])
    check_every_key_is_there_once(table)


def test_the_index_is_asked_also_where_a_rewrite_came_and_was_reverted(table: LakeTable) -> None:
    build(table, "record_index")
    table.ingest("bulk_insert", rows([3], "a"), **SMALL)
    clustering = Clustering(table.table, "p=a", outputs=1)

    def others() -> None:
        with crossing((".requested", clustering.commit)):
            table.ingest("upsert", rows([3], "a", "new"), on_rewrite="revert", **SMALL)

    with (
        pytest.raises(InvalidRecordKeyError, match="'1' lives in partition 'p=a'"),
        crossing((".requested", others)),
    ):
        table.ingest("upsert", rows([1], "b", "mine"), on_conflict="rebase", **SMALL)
    assert any(instant.action is Action.ROLLBACK for instant in table.table.timeline().completed())
    check_every_key_is_there_once(table)
