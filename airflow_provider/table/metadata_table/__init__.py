"""The metadata table (MDT): Hudi's merge-on-read table of indexes, in ``.hoodie/metadata``.

It has a partition for each index. This room reads and writes its records, file groups and instants. Begin
with ``records`` and ``reader``. ``index_records`` computes the records that a commit logs. ``usable`` decides
whether a reader may trust an index. Outside this room, ``indexing`` plans and builds an index, and
``concurrency`` keeps it up to date with each commit.
"""

from airflow_provider.table.metadata_table.file_groups import (
    BASE_FILE,
    FileGroup,
    MetadataFile,
    MetadataFileSlice,
    made_file_groups,
)
from airflow_provider.table.metadata_table.foreign_partitions import (
    unsupported_indexes,
    unsupported_indexes_error,
)
from airflow_provider.table.metadata_table.index_definitions import (
    DEFINITIONS_PATH,
    IndexDefinition,
    column_stats_definition,
    read_index_definitions,
    record_index_definition,
    write_index_definitions,
)
from airflow_provider.table.metadata_table.index_records import (
    FileChanges,
    Records,
    indexed_columns,
    keys_to_recompute,
    recomputed_partition_stats,
    record_keys,
    records_of,
    value_type,
)
from airflow_provider.table.metadata_table.initial_instants import free_initial_instants, is_initial
from airflow_provider.table.metadata_table.keys import (
    ALL_PARTITIONS,
    by_file_group,
    file_group_indexes,
    files_key,
    partition_of_files_key,
)
from airflow_provider.table.metadata_table.partitions import (
    MetadataPartition,
    estimated_file_groups,
    file_group_id,
)
from airflow_provider.table.metadata_table.reader import METADATA_FOLDER, MetadataTable, metadata_storage
from airflow_provider.table.metadata_table.records import (
    ColumnStats,
    FileList,
    Payload,
    RecordDecoder,
    RecordLocation,
    ValueType,
    encode_payload,
    merge,
    schema_text,
)
from airflow_provider.table.metadata_table.usable import UsableIndexes
from airflow_provider.table.metadata_table.writer import (
    BULK_INSERT,
    COMPACT,
    UPSERT,
    begin_instant,
    compacted,
    completed_metadata,
    create_metadata_table,
    initialise_file_groups,
    write_base_file,
    write_encoded_base_file,
    write_instant,
    write_log_file,
    written_base_file,
)

__all__ = [
    "ALL_PARTITIONS",
    "BASE_FILE",
    "BULK_INSERT",
    "COMPACT",
    "DEFINITIONS_PATH",
    "METADATA_FOLDER",
    "UPSERT",
    "ColumnStats",
    "FileChanges",
    "FileGroup",
    "FileList",
    "IndexDefinition",
    "MetadataFile",
    "MetadataFileSlice",
    "MetadataPartition",
    "MetadataTable",
    "Payload",
    "RecordDecoder",
    "RecordLocation",
    "Records",
    "UsableIndexes",
    "ValueType",
    "begin_instant",
    "by_file_group",
    "column_stats_definition",
    "compacted",
    "completed_metadata",
    "create_metadata_table",
    "encode_payload",
    "estimated_file_groups",
    "file_group_id",
    "file_group_indexes",
    "files_key",
    "free_initial_instants",
    "indexed_columns",
    "initialise_file_groups",
    "is_initial",
    "keys_to_recompute",
    "made_file_groups",
    "merge",
    "metadata_storage",
    "partition_of_files_key",
    "read_index_definitions",
    "recomputed_partition_stats",
    "record_index_definition",
    "record_keys",
    "records_of",
    "schema_text",
    "unsupported_indexes",
    "unsupported_indexes_error",
    "value_type",
    "write_base_file",
    "write_encoded_base_file",
    "write_index_definitions",
    "write_instant",
    "write_log_file",
    "written_base_file",
]
