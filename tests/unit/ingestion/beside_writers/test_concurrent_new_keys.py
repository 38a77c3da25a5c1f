"""Writers that add the same keys at the same time, most of them to a table with a record index (C5)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.exceptions import InvalidRecordKeyError, WriteConflictError
from airflow_provider.ingestion import ingest_arrow
from tests.ingestion_contract.interleaving import Clustering, MeetingLock
from tests.ingestion_contract.lake import Lake, LakeTable
from tests.ingestion_contract.record_index import SCHEMA, SMALL, base_files_gone, build, check_index, rows


@pytest.fixture(params=["copy_on_write", "merge_on_read"])
def table(lake: Lake, request: pytest.FixtureRequest) -> LakeTable:
    made = lake.create(SCHEMA, partition_by=["p"], table_type=request.param)
    for ids in (range(5), range(5, 10)):
        made.ingest("bulk_insert", rows(ids), **SMALL)
    build(made, "files", "record_index")
    return made


def overtaken(
    table: LakeTable, operation: str, batch: list[dict[str, Any]], other: Callable[[], object], **job: Any
) -> dict[str, Any]:
    """Run a write; when it has written its data files, another write commits."""
    settings = {"on_conflict": "rebase", **SMALL, **job}
    return ingest_arrow(table.location, table.arrow(batch), operation, lock=MeetingLock(other), **settings)


def test_the_same_new_key_is_merged(table: LakeTable) -> None:
    theirs, mine = rows([50, 51], "c", "theirs"), rows([51, 52], "c", "mine")
    result = overtaken(table, "upsert", mine, lambda: table.ingest("upsert", theirs, **SMALL))
    assert result["rebases"] == 1
    table.check_now([*rows(range(10)), theirs[0], *mine])
    check_index(table)


def test_the_same_new_key_in_another_partition_is_refused(table: LakeTable) -> None:
    with pytest.raises(InvalidRecordKeyError, match=r"'50' lives in partition 'p=c' and comes for .*'p=d'"):
        overtaken(table, "upsert", rows([50], "d"), lambda: table.ingest("upsert", rows([50], "c"), **SMALL))
    table.check_now([*rows(range(10)), *rows([50], "c")])
    check_index(table)


def test_other_new_keys_are_no_conflict(table: LakeTable) -> None:
    theirs, mine = rows([50, 51], "c"), rows([52, 1], "c")[:1]
    result = overtaken(table, "upsert", mine, lambda: table.ingest("upsert", theirs, **SMALL))
    assert result["rebases"] == 0
    check_index(table)


def test_a_key_that_came_and_went_again_is_no_conflict(table: LakeTable) -> None:
    def others() -> None:
        table.ingest("upsert", rows([50], "c"), **SMALL)
        table.ingest("delete", rows([50], "c"), **SMALL)

    assert overtaken(table, "upsert", rows([50], "c", "mine"), others)["rebases"] == 0
    table.check_now([*rows(range(10)), *rows([50], "c", "mine")])
    check_index(table)


def test_keys_that_were_only_moved_are_not_new(table: LakeTable) -> None:
    clustering = Clustering(table.table, "p=a", outputs=1)
    result = overtaken(table, "upsert", rows([50], "a"), clustering.commit)
    assert result["rebases"] == 0
    check_index(table)


def test_what_others_delete_and_move_beside_new_keys_is_in_nobodys_way(table: LakeTable) -> None:
    clustering = Clustering(table.table, "p=a", outputs=1)

    def others() -> None:
        table.ingest("upsert", rows([60], "c"), **SMALL)
        clustering.commit()
        table.ingest("delete", rows([3]), **SMALL)

    assert overtaken(table, "upsert", rows([50], "c", "mine"), others)["rebases"] == 0
    table.check_now([*rows([0, 1, 2, *range(4, 10)]), *rows([60], "c"), *rows([50], "c", "mine")])
    check_index(table)


@pytest.mark.parametrize("operation", ["insert", "bulk_insert"])
def test_an_insert_does_not_add_what_another_has_added(table: LakeTable, operation: str) -> None:
    def other() -> None:
        table.ingest("upsert", rows([50], "c"), **SMALL)

    with pytest.raises(InvalidRecordKeyError, match="'50' is in the table already"):
        overtaken(table, operation, rows([50, 51], "c"), other)
    with pytest.raises(WriteConflictError, match="70"):
        overtaken(
            table,
            operation,
            rows([70, 71], "d"),
            lambda: table.ingest("upsert", rows([70], "d"), **SMALL),
            on_conflict="raise",
        )
    assert sorted(row["id"] for row in table.rows()) == [*range(10), 50, 70]
    check_index(table)


def test_data_files_of_the_others_are_not_read(table: LakeTable) -> None:
    def other() -> None:
        table.ingest("upsert", rows([50, 51], "c"), **SMALL)
        for each in table.table.view().base_files("p=c"):
            path = Path(table.location, each.path)
            path.rename(f"{path}.away")

    overtaken(table, "upsert", rows([52], "c"), other)
    for path in Path(table.location, "p=c").glob("*.away"):
        path.rename(path.with_suffix(""))
    assert sorted(row["id"] for row in table.rows() if row["p"] == "c") == [50, 51, 52]
    check_index(table)


def test_without_an_index_nothing_is_read_but_the_new_files_of_both(lake: Lake) -> None:
    table = lake.create(SCHEMA, partition_by=["p"])
    for ids in (range(5), range(5, 10)):
        table.ingest("bulk_insert", rows(ids, "c"), **SMALL)
    with ExitStack() as gone:

        def other(*ids: int) -> None:
            before = {base_file.path for base_file in table.table.base_files()}
            table.ingest("upsert", rows(ids, "c"), **SMALL)
            added = {base_file.path for base_file in table.table.base_files()} - before
            gone.enter_context(base_files_gone(table, keep=added))

        assert overtaken(table, "upsert", rows([52], "c"), lambda: other(50, 51))["rebases"] == 0
        gone.close()
        with pytest.raises(WriteConflictError, match="added the same new record key 61"):
            overtaken(table, "upsert", rows([61, 62], "c"), lambda: other(60, 61), on_conflict="raise")
        gone.close()
        several = range(70, 75)
        with pytest.raises(WriteConflictError, match="added the same new record key 70, 71, 72; run"):
            overtaken(table, "upsert", rows(several, "c"), lambda: other(*several), on_conflict="raise")

    def in_another_partition() -> None:
        table.ingest("upsert", rows([80], "d"), **SMALL)

    assert overtaken(table, "upsert", rows([80], "c"), in_another_partition)["rebases"] == 0
    clustering = Clustering(table.table, "p=c", outputs=1)

    def others() -> None:
        clustering.commit()
        table.ingest("upsert", rows([90], "c"), **SMALL)

    with pytest.raises(WriteConflictError, match="added the same new record key 90"):
        overtaken(table, "upsert", rows([90], "c"), others, on_conflict="raise")
    assert sorted(row["id"] for row in table.rows()) == [*range(10), 50, 51, 52, 60, 61, *several, 80, 80, 90]
