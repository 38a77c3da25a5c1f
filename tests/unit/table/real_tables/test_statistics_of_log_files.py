"""The statistics that the JVM keeps of its log files, on which skipping a file slice relies."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from airflow_provider.table import HudiTable
from airflow_provider.table.files import DATA_BLOCKS, LogFileName, block_rows, read_log_blocks
from airflow_provider.table.metadata_table import ColumnStats
from airflow_provider.table.metadata_table.keys import column_stats_key
from airflow_provider.table.metadata_table.reader import MetadataTable, metadata_storage
from airflow_provider.table.storage import ByteRange

FIXTURES = Path(__file__).parents[3] / "fixtures" / "real_hudi"


@pytest.mark.parametrize("name", ["mor_indexed", "mor_merged_into", "mor_schema_on_read"])
def test_they_are_of_the_rows_and_without_a_value_where_a_file_only_deletes(
    name: str, tmp_path: Path
) -> None:
    with zipfile.ZipFile(FIXTURES / f"{name}.zip") as archive:
        archive.extractall(tmp_path)
    index = MetadataTable(metadata_storage(HudiTable.open(str(tmp_path)).storage))
    files = [path for path in tmp_path.glob("part=*/.*.log.*") if LogFileName.parse(path.name)]
    assert files
    for path in files:
        blocks = read_log_blocks(ByteRange.of_bytes(path.read_bytes(), path.name))
        rows = [
            row for each in blocks if each.block_type in DATA_BLOCKS for row in block_rows(each).to_pylist()
        ]
        for column in ("id", "v", "ts"):
            key = column_stats_key(column, path.parent.name, path.name)
            stats = index.look_up("column_stats", [key])[key]
            assert isinstance(stats, ColumnStats)
            values = [row[column] for row in rows]
            assert (stats.value_count, stats.null_count) == (len(values), values.count(None))
            found = (stats.min_value and stats.min_value.value, stats.max_value and stats.max_value.value)
            assert found == (min(values, default=None), max(values, default=None))
