"""Partition statistics that a commit recomputes from all base files of the partition.

In general a commit logs bounds that only widen the known ones, so that it need not read the files that it
does not write. This fails for a column whose type was widened or that was added later: values of two types do
not compare, Hudi's readers fail at them, and no statistics count the nulls that older files have in the
column. So a commit with the new type recomputes the column's statistics in its partitions from all base
files, and logs them as tight bounds, which replace the earlier ones. Each commit does so until the metadata
table is compacted, because Hudi merges the log files among themselves before it merges them with the base
file.

Sources: ``HoodieTableMetadataUtil.mergeColumnStatsRecords``, and ``isTightBound`` in Hudi's
``HoodieMetadataColumnStats``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from airflow_provider.table.file_groups import BaseFile, FileSystemView
from airflow_provider.table.files import BaseFileReader
from airflow_provider.table.metadata_table.index_records.changes import Records
from airflow_provider.table.metadata_table.index_records.logged import logged_column_stats
from airflow_provider.table.metadata_table.index_records.statistics import (
    column_stats_as,
    kind_of,
    partition_stats,
)
from airflow_provider.table.metadata_table.keys import partition_stats_key
from airflow_provider.table.metadata_table.partitions import MetadataPartition
from airflow_provider.table.metadata_table.reader import MetadataTable, metadata_storage
from airflow_provider.table.metadata_table.records import ColumnStats, Payload
from airflow_provider.table.schema import META_COLUMNS, TableSchema
from airflow_provider.table.storage import Storage


def keys_to_recompute(records: Mapping[str, Payload | None], created: TableSchema | None) -> list[str]:
    """The keys of partition statistics that a commit may have to recompute.

    :param records: partition statistics that are about to be logged.
    :param created: the schema that the table was created with; None when it is unknown.
    :return: empty when every column has the type that it was created with. This reads no file.
    """
    columns = created.columns if created else ()
    before = {each.name: kind_of(each.type) for each in columns}
    before |= dict.fromkeys(META_COLUMNS, kind_of(pa.string()))
    return [
        key
        for key, stats in records.items()
        if isinstance(stats, ColumnStats) and before.get(stats.column_name) != stats.kind
    ]


def recomputed_partition_stats(
    storage: Storage,
    records: Mapping[str, Payload | None],
    keys: Iterable[str],
    added: Sequence[BaseFile],
    view: FileSystemView,
    schema: TableSchema,
) -> Records:
    """The partition statistics that have to be logged as recomputed ones.

    :param storage: the table's storage.
    :param records: partition statistics that are about to be logged.
    :param keys: from :func:`keys_to_recompute`.
    :param added: the base files that the commit adds; the given statistics are of these files.
    :param view: the snapshot before the commit.
    :param schema: the table's schema after the commit.
    :return: records by key, to be logged instead of the given ones; empty when the known statistics have the
        same types.
    """
    said = MetadataTable(metadata_storage(storage)).versions_of(MetadataPartition.PARTITION_STATS, keys)
    columns: dict[str, list[str]] = {}
    for key in keys:
        stats, before = records[key], [each for each in said.get(key, ()) if isinstance(each, ColumnStats)]
        if isinstance(stats, ColumnStats) and (not before or any(each.kind != stats.kind for each in before)):
            columns.setdefault(stats.file_name, []).append(stats.column_name)
    found: Records = {}
    for partition, names in columns.items():
        new = [each for each in added if each.partition_path == partition]
        written_anew = {each.file_group for each in new if not each.is_log}
        seen = (*view.base_files(partition), *view.log_files(partition))
        there = [each for each in seen if each.file_group not in written_anew]
        is_known = any(partition_stats_key(each, partition) in said for each in names)
        if not there and not is_known:
            continue  # the statistics to be logged cover all files already
        told = (each for file in (*there, *new) for each in _stats(storage, file, names, schema))
        for stats in partition_stats(partition, told):
            found[partition_stats_key(stats.column_name, partition)] = stats
    return found


def _stats(
    storage: Storage, base_file: BaseFile, columns: Sequence[str], schema: TableSchema
) -> list[ColumnStats]:
    if base_file.is_log:
        return logged_column_stats(storage, base_file, columns, schema)
    with BaseFileReader(storage, base_file.path, schema) as reader:
        return column_stats_as(reader, base_file.path.rpartition("/")[2], columns)
