"""A commit is undone while an index is built from its files: the index has the keys of the slices below."""

from __future__ import annotations

import pytest

from airflow_provider.concurrency.undo.reverts import revert
from airflow_provider.indexing.base_files import IndexBuild, build_in_process
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.services.cleaning.clean_plan import Retention
from airflow_provider.services.cleaning.cleaning import clean
from airflow_provider.table.timeline import WriteStat
from tests.ingestion_contract.lake import Lake, LakeTable
from tests.ingestion_contract.record_index import SCHEMA, check_index, rows

INDEXES = ("files", "column_stats", "bloom_filters", "record_index")


@pytest.fixture(params=["copy_on_write", "merge_on_read"])
def table(request: pytest.FixtureRequest, lake: Lake) -> LakeTable:
    """A table with one file group with keys 1 to 5."""
    made = lake.create(SCHEMA, partition_by=["p"], table_type=request.param)
    made.ingest("bulk_insert", rows(range(1, 6)))
    return made


@pytest.mark.parametrize("operation", ["upsert", "delete"])
@pytest.mark.parametrize(
    "goes_on", [False, True], ids=["nothing follows", "another commit and a clean follow"]
)
def test_keys_of_the_slice_below_are_indexed(table: LakeTable, operation: str, goes_on: bool) -> None:
    undone = table.ingest(operation, rows([1, 2, 6], value="undone"))
    instant = schedule_index(table.table, INDEXES)
    expected = rows(range(1, 6))

    def build(planned: IndexBuild) -> list[WriteStat]:
        revert(table.table, undone["instant"], reason="its transaction was aborted")
        if goes_on:
            table.ingest("upsert", rows([3, 7], value="later"))
            expected[:] = [*rows([1, 2, 4, 5]), *rows([3, 7], value="later")]
            clean(table.table, Retention("KEEP_LATEST_FILE_VERSIONS", 1))
        return build_in_process(planned)

    assert run_index(table.table, instant, build=build) is not None
    check_index(table)
    table.check_now(expected)
    table.ingest("upsert", rows([2, 4], value="again"))
    check_index(table)
