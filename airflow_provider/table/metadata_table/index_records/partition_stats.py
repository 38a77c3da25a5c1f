"""Partition statistics that a commit says of the whole partition, and not only of its own files.

What a commit logs widens what is known, so that it need not look at the files that it does not write. That
does not do for a column that has become wider or came later. Values of two types do not compare, and Hudi's
readers fail at them; nor has anybody told of the nulls that the older files give it. So a commit of the new
kind tells the column's statistics in its partitions anew, from all base files: tight ones, which stand for
themselves. It does so until the metadata table is compacted, because Hudi merges the log files among
themselves before it merges them with the base file.

Sources: ``HoodieTableMetadataUtil.mergeColumnStatsRecords``, and ``isTightBound`` in Hudi's
``HoodieMetadataColumnStats``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from airflow_provider.table.file_groups import BaseFile, FileSystemView
from airflow_provider.table.files import BaseFileReader
from airflow_provider.table.metadata_table.index_records.changes import Records
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
    """The keys of partition statistics that may not only widen what is known.

    :param records: partition statistics that are about to be logged.
    :param created: the schema that the table was created with; None where nobody knows it.
    :return: none where every column is as it was created: that costs no look at the metadata table.
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
    """The partition statistics that have to be told anew.

    :param storage: the table's storage.
    :param records: partition statistics that are about to be logged.
    :param keys: from :func:`keys_to_recompute`.
    :param added: the base files that they were made from.
    :param view: the snapshot beside which these come.
    :param schema: the table's schema with them.
    :return: by key, to be logged instead; empty where what is known has the same types.
    """
    said = MetadataTable(metadata_storage(storage)).versions_of(MetadataPartition.PARTITION_STATS, keys)
    columns: dict[str, list[str]] = {}
    for key in keys:
        stats, before = records[key], [each for each in said.get(key, ()) if isinstance(each, ColumnStats)]
        if isinstance(stats, ColumnStats) and (not before or any(each.kind != stats.kind for each in before)):
            columns.setdefault(stats.file_name, []).append(stats.column_name)
    found: Records = {}
    for partition, names in columns.items():
        there = {each.file_group: each for each in view.base_files(partition)}
        new = {each.file_group: each for each in added if each.partition_path == partition}
        is_known = any(partition_stats_key(each, partition) in said for each in names)
        if there.keys() <= new.keys() and not is_known:
            continue  # what is about to be logged is all that there is
        told = (each for file in (there | new).values() for each in _stats(storage, file, names, schema))
        for stats in partition_stats(partition, told):
            found[partition_stats_key(stats.column_name, partition)] = stats
    return found


def _stats(
    storage: Storage, base_file: BaseFile, columns: Sequence[str], schema: TableSchema
) -> list[ColumnStats]:
    with BaseFileReader(storage, base_file.path, schema) as reader:
        return column_stats_as(reader, base_file.path.rpartition("/")[2], columns)
