"""The check of a table's indexes (C6): they equal a rebuild from its data files, record by record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from airflow_provider.concurrency import CommitLog
from airflow_provider.concurrency.commit.publish import publish_head
from airflow_provider.concurrency.indexes.log_to_indexes import current_indexes
from airflow_provider.table.file_groups.view import BaseFile, FileSystemView
from airflow_provider.table.files.data_file_name import parse_data_file_name
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata_table.index_definitions import read_index_definitions
from airflow_provider.table.metadata_table.index_records.changes import FileChanges, LivingKeys, records_of
from airflow_provider.table.metadata_table.index_records.statistics import indexed_columns
from airflow_provider.table.metadata_table.keys import ALL_PARTITIONS, by_file_group
from airflow_provider.table.metadata_table.partitions import MetadataPartition, file_group_id
from airflow_provider.table.metadata_table.reader import MetadataTable, metadata_storage
from airflow_provider.table.metadata_table.records import ColumnStats, FileList, Payload, RecordLocation
from airflow_provider.table.reading.log_merge import SliceReader
from airflow_provider.table.reading.slices import slices_of


def assert_indexes_equal_a_rebuild(table: HudiTable, partitions: Iterable[str] | None = None) -> None:
    """Compare every complete index with a rebuild from the present data files.

    :param table: the table; the function first publishes an unpublished entry.
    :param partitions: the indexes that must exist and be complete; when None, all existing ones.
    """
    storage, commit_log = table.storage, CommitLog(table.storage)
    newest = publish_head(storage, commit_log)
    table = HudiTable.at(storage)
    indexes = {each.partition: each for each in current_indexes(storage, commit_log, newest)}
    complete = sorted(partition for partition, index in indexes.items() if index.is_complete)
    assert sorted(table.config.metadata_partitions) == complete, "the table config names other indexes"
    if partitions is not None:
        assert complete == sorted(partitions)
    assert set(table.view().all_base_files()) == set(_listed(table).all_base_files())
    pending = [instant.requested_time for instant in table.timeline().pending()]
    metadata_table = MetadataTable(metadata_storage(storage), pending)
    wanted = records_of(storage, _all_files(table), complete, _columns(table), living=_living(table))
    for partition in complete:
        found = _comparable(dict(metadata_table.records(partition)))
        expected = _comparable(wanted.get(partition, {}))
        if partition == MetadataPartition.PARTITION_STATS:
            _assert_covers(found, expected)
            continue
        different = {key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key)}
        said = {key: (found.get(key), expected.get(key)) for key in sorted(different)[:5]}
        assert not different, f"{partition}: {len(different)} records differ, (found, expected): {said}"
        _assert_found_by_key(metadata_table, partition, indexes[partition].file_groups, expected)


def _all_files(table: HudiTable) -> FileChanges:
    """All committed data files, as if one commit had written them; the live ones with their record keys."""
    view, added = _listed(table), []
    for partition in view.all_partitions():
        for status in table.storage.list(partition):
            parsed = parse_data_file_name(status.name)
            if parsed is not None and view.shows(parsed.instant):
                added.append(BaseFile(partition, *parsed[:3], status.path, status.size))
    slices = slices_of(table, view, view.all_partitions())
    return FileChanges(tuple(added), (), tuple((None, each) for each in slices))


def _living(table: HudiTable) -> LivingKeys:
    """The keys of a file slice with log files, as readers see them."""
    reader = SliceReader.of(table, _listed(table))
    return reader.keys


def _listed(table: HudiTable) -> FileSystemView:
    """The table's files by a listing of its folders, without an index."""
    return FileSystemView(table.storage, table.timeline())


def _columns(table: HudiTable) -> tuple[str, ...]:
    definition = read_index_definitions(table.storage).get(MetadataPartition.COLUMN_STATS)
    return definition.source_fields if definition else tuple(indexed_columns(table.schema))


def _comparable(records: Mapping[str, Payload | None]) -> dict[str, Any]:
    """Records without the parts that may differ: the instant of a location, and partitions without files."""
    found: dict[str, Any] = {}
    for key, payload in records.items():
        if isinstance(payload, RecordLocation):
            found[key] = (payload.partition_path, payload.file_id)
        elif isinstance(payload, FileList):
            if key != ALL_PARTITIONS and (sizes := payload.sizes()):
                found[key] = sizes
        else:
            found[key] = payload
    return found


def _assert_covers(found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Statistics of partitions only widen, so the present values must be within them."""
    for key, needed in expected.items():
        said = found[key]
        assert isinstance(said, ColumnStats)
        assert isinstance(needed, ColumnStats)
        if needed.min_value is not None and needed.max_value is not None:
            assert said.min_value is not None
            assert said.max_value is not None
            assert said.min_value.value <= needed.min_value.value
            assert said.max_value.value >= needed.max_value.value


def _assert_found_by_key(
    metadata_table: MetadataTable, partition: str, file_groups: int, expected: Mapping[str, Any]
) -> None:
    """Check that every record is in the file group that a look-up reads."""
    slices = metadata_table.file_slices(partition)
    assert [each.file_id for each in slices] == [
        file_group_id(partition, number) for number in range(file_groups)
    ]
    for number, keys in by_file_group(expected, file_groups).items():
        held = {key for key, _ in metadata_table.slice_records(slices[number])}
        assert held.issuperset(keys), f"{partition}: a record is in another file group than its key's"
