"""The files of a table: base files, log files, markers, bloom filters and partition metadata.

Begin with ``base_file_reader`` and ``log_file``. The formats are Hudi's: the JVM's Hudi and hudi-rs read the
files that this room writes, and the tests with these readers decide about a change.
"""

from airflow_provider.table.files.base_file_reader import (
    BaseFileFooter,
    BaseFileReader,
    read_base_file,
    read_footer,
)
from airflow_provider.table.files.base_file_writer import ROW_GROUP_ROWS, BaseFileWriter, WrittenFile
from airflow_provider.table.files.bloom_filter import BloomFilter
from airflow_provider.table.files.data_file_name import DataFileName, parse_data_file_name
from airflow_provider.table.files.file_columns import FileColumns
from airflow_provider.table.files.log_file import (
    BlockType,
    HeaderKey,
    LogBlock,
    LogFileName,
    encode_log_block,
    merge_order,
    read_log_blocks,
    valid_log_blocks,
)
from airflow_provider.table.files.log_file_writer import (
    LogFileWriter,
    WrittenLogFile,
    wrapped_ordering_values,
)
from airflow_provider.table.files.log_records import (
    DeletedRecord,
    WrappedValue,
    avro_records,
    block_hfile,
    decode_datum,
    deleted_records,
    encode_datum,
    encode_deletes,
    parsed_schema,
)
from airflow_provider.table.files.log_rows import BLOCKS_OF_FORMATS, DATA_BLOCKS, block_rows
from airflow_provider.table.files.markers import MarkerType, delete_markers, delete_markers_upto, marked_files
from airflow_provider.table.files.partition_metadata import (
    MARKS_OF_A_PARTITION,
    write_metadata_of_partitions,
    write_partition_metadata,
)

__all__ = [
    "BLOCKS_OF_FORMATS",
    "DATA_BLOCKS",
    "MARKS_OF_A_PARTITION",
    "ROW_GROUP_ROWS",
    "BaseFileFooter",
    "BaseFileReader",
    "BaseFileWriter",
    "BlockType",
    "BloomFilter",
    "DataFileName",
    "DeletedRecord",
    "FileColumns",
    "HeaderKey",
    "LogBlock",
    "LogFileName",
    "LogFileWriter",
    "MarkerType",
    "WrappedValue",
    "WrittenFile",
    "WrittenLogFile",
    "avro_records",
    "block_hfile",
    "block_rows",
    "decode_datum",
    "delete_markers",
    "delete_markers_upto",
    "deleted_records",
    "encode_datum",
    "encode_deletes",
    "encode_log_block",
    "marked_files",
    "merge_order",
    "parse_data_file_name",
    "parsed_schema",
    "read_base_file",
    "read_footer",
    "read_log_blocks",
    "valid_log_blocks",
    "wrapped_ordering_values",
    "write_metadata_of_partitions",
    "write_partition_metadata",
]
