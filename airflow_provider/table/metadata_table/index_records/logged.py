"""The index records of a log file: statistics of its rows.

Sources: ``HoodieAppendHandle.processAppendResult`` and ``HoodieTableMetadataUtil`` of Apache Hudi.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider.table.file_groups import BaseFile
from airflow_provider.table.files import DATA_BLOCKS, FileColumns, block_rows, read_log_blocks
from airflow_provider.table.metadata_table.index_records.statistics import column_stats
from airflow_provider.table.metadata_table.records import ColumnStats
from airflow_provider.table.schema import TableSchema
from airflow_provider.table.storage import ByteRange, Storage


def logged_column_stats(
    storage: Storage, log_file: BaseFile, columns: Sequence[str], schema: TableSchema | None
) -> list[ColumnStats]:
    """The statistics of the rows in a log file; none where the file only deletes keys.

    :param storage: the table's storage.
    :param log_file: the log file.
    :param columns: names of columns.
    :param schema: the table's schema, whose types the statistics get; None for the file's own.
    :raises FileNotFoundError: when the file does not exist.
    """
    blocks = read_log_blocks(ByteRange.of_file(storage, log_file.path))
    found = [block_rows(block) for block in blocks if block.block_type in DATA_BLOCKS]
    if not found:
        return []
    rows = pa.concat_tables(found, promote_options="permissive")
    if schema is not None:
        origins = schema.origins_at(log_file.partition_path, log_file.instant) or {}
        rows = FileColumns(storage.url(log_file.path), schema.columns, origins).bring(rows, columns)
    sink = io.BytesIO()
    pq.write_table(rows.select([each for each in columns if each in rows.column_names]), sink)
    name = log_file.path.rpartition("/")[2]
    return column_stats(pq.ParquetFile(pa.BufferReader(sink.getvalue())), name, columns)
