"""The division of a source's files among Spark's tasks."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.ingestion.files import SourceFile
from airflow_provider.spark.ingestion.scan.source_scan import FileRange, ranges_of_tasks

MIB = 1024 * 1024


@given(
    sizes=st.lists(st.integers(0, 500 * MIB), min_size=1, max_size=20),
    parallelism=st.integers(1, 64),
)
def test_each_byte_has_one_task_in_the_order_of_the_files(sizes: list[int], parallelism: int) -> None:
    files = [SourceFile(f"/{number:03}.parquet", size) for number, size in enumerate(sizes)]
    tasks = list(ranges_of_tasks(files, parallelism))
    ranges = [each for task in tasks for each in task]
    assert ranges == sorted(ranges, key=lambda each: (each.file.path, each.begin))
    for file in files:
        mine = [(each.begin, each.end) for each in ranges if each.file == file]
        borders = [0, *(end for _, end in mine)]
        assert [begin for begin, _ in mine] == borders[:-1]
        assert borders[-1] >= file.size
    for task in tasks:
        assert task
        assert sum(each.end - each.begin for each in task) <= 128 * MIB


def test_many_small_files_share_a_task() -> None:
    files = [SourceFile(f"/{number}.parquet", 1000) for number in range(64)]
    assert [len(task) for task in ranges_of_tasks(files, 2)] == [32, 32]


def test_a_large_file_has_many_tasks() -> None:
    assert len(list(ranges_of_tasks([SourceFile("/a.parquet", 1024 * MIB)], 2))) == 8


@given(borders=st.lists(st.integers(0, 5000), max_size=6))
def test_each_row_group_belongs_to_one_range(borders: list[int]) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": range(100), "b": ["x"] * 100}), sink, row_group_size=10)
    size = len(sink.getvalue())
    ends = sorted({border % size for border in borders} | {size} - {0})
    file = SourceFile("/a.parquet", size)
    metadata = pq.read_metadata(io.BytesIO(sink.getvalue()))
    ranges = [FileRange(file, begin, end) for begin, end in zip([0, *ends], ends, strict=False)]
    found = [number for each in ranges for number in each.row_groups(metadata)]
    assert sorted(found) == list(range(10))
