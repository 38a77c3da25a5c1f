"""A task that writes new file groups of several partitions, as it does in a worker of Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider.concurrency import begin_write
from airflow_provider.exceptions import from_dict
from airflow_provider.ingestion.file_groups import (
    TARGET,
    NewFileGroupsTask,
    Target,
    WritePlan,
    merged_reports,
)
from airflow_provider.table import HudiTable
from tests.ingestion_contract.lake import Lake

SCHEMA = pa.schema({"id": pa.int64(), "part": pa.string()})


@pytest.fixture
def table(lake: Lake) -> HudiTable:
    return lake.create(SCHEMA, partition_by=["part"]).table


def plan_of(table: HudiTable, instant: str) -> WritePlan:
    return WritePlan(
        storage=table.storage,
        config=table.config,
        schema=table.schema_on(table.timeline()),
        semantics=table.merge_semantics,
        instant=instant,
        looks_up_keys=False,
        deletes=False,
        target_file_size=2**20,
        targets={7: Target.new("part=a"), 8: Target.new("part=b")},
    )


def batch(ids: range) -> pa.RecordBatch:
    """Even ids are of target 7, odd ones of target 8."""
    targets = pa.array([7 + n % 2 for n in ids], pa.int32())
    return pa.record_batch(
        [pa.array(ids), pa.array(["ab"[n % 2] for n in ids]), targets], [*SCHEMA.names, TARGET]
    )


def data_files(table: HudiTable) -> list[Path]:
    return sorted(Path(table.location).glob("part=*/*.parquet"))


def test_each_target_gets_its_rows_in_their_order_from_tasks_that_know_nothing_of_each_other(
    table: HudiTable,
) -> None:
    with begin_write(table, operation="BULK_INSERT") as writer:
        plan = plan_of(table, writer.instant)
        reports = [
            report
            for number, ids in enumerate((range(10), range(10, 15)))
            for report in NewFileGroupsTask(plan, 2 * number, f"0-{number}").run([batch(ids)])
        ]
        merged = merged_reports(reports)
        assert {each.target: each.rows_in for each in merged} == {7: 8, 8: 7}
        stats = [stat for each in merged for stat in each.write_stats]
        assert len({stat.file_id for stat in stats}) == 4
        found = {stat.path: pq.read_table(f"{table.location}/{stat.path}") for stat in stats}
        assert sorted(rows["id"].to_pylist() for rows in found.values()) == [
            [0, 2, 4, 6, 8],
            [1, 3, 5, 7, 9],
            [10, 12, 14],
            [11, 13],
        ]
        sequence = pa.concat_arrays(rows["_hoodie_commit_seqno"].combine_chunks() for rows in found.values())
        assert len(sequence.unique()) == 15
        writer.abort()


def test_a_task_without_rows_writes_nothing(table: HudiTable) -> None:
    with begin_write(table, operation="BULK_INSERT") as writer:
        assert NewFileGroupsTask(plan_of(table, writer.instant), 0, "0-0").run([batch(range(0))]) == []
        writer.abort()
    assert not data_files(table)


def test_a_task_of_a_write_that_was_rolled_back_meanwhile_leaves_no_file(table: HudiTable) -> None:
    with begin_write(table, operation="BULK_INSERT") as writer:
        plan = plan_of(table, writer.instant)

        def batches() -> object:
            yield batch(range(10))
            writer.abort()

        (report,) = NewFileGroupsTask(plan, 0, "0-0").run(batches())
    assert report.error is not None
    assert "was rolled back while it was written" in str(from_dict(report.error))
    assert not data_files(table)


def test_an_error_of_the_source_leaves_no_file(table: HudiTable) -> None:
    with begin_write(table, operation="BULK_INSERT") as writer:

        def batches() -> object:
            yield from [batch(range(n * 70_000, (n + 1) * 70_000)) for n in range(3)]
            raise OSError("the source is gone")

        with pytest.raises(OSError, match="the source is gone"):
            NewFileGroupsTask(plan_of(table, writer.instant), 0, "0-0").run(batches())
        assert not data_files(table)
        writer.abort()
