"""The whole metadata table of the JVM, compared with its data files record by record, field by field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider.table import HudiTable
from airflow_provider.table.file_names import parse_base_file_name
from airflow_provider.table.files.base_file_reader import read_base_file
from airflow_provider.table.files.log_file import LogFileName
from airflow_provider.table.metadata_table.index_records.statistics import (
    INDEXED_META_COLUMNS,
    column_stats,
    indexed_columns,
    partition_stats,
)
from airflow_provider.table.metadata_table.keys import (
    ALL_PARTITIONS,
    column_stats_key,
    column_stats_prefix,
    file_group_index,
    partition_of_files_key,
    partition_stats_key,
)
from airflow_provider.table.metadata_table.partitions import MetadataPartition, file_group_id
from airflow_provider.table.metadata_table.reader import MetadataTable, metadata_storage
from airflow_provider.table.metadata_table.records import (
    ColumnStats,
    FileInfo,
    FileList,
    Payload,
    RecordLocation,
    SecondaryKey,
)
from airflow_provider.table.metadata_table.writer import (
    BULK_INSERT,
    COMPACT,
    UPSERT,
    compacted,
    create_metadata_table,
    initialise_file_groups,
    log_changes,
    write_instant,
)
from airflow_provider.table.properties import TableConfig
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.instant import Action, parse_time
from tests.unit.table.conftest import JvmTables
from tests.unit.table.histories import at


@pytest.fixture(scope="module")
def folder(jvm_tables: JvmTables) -> Path:
    return jvm_tables.table("rs_cow_v9_txns_simple_meta")


@pytest.fixture(scope="module")
def table(folder: Path) -> HudiTable:
    return HudiTable.open(str(folder))


@pytest.fixture(scope="module")
def metadata(folder: Path) -> MetadataTable:
    return MetadataTable(metadata_storage(Storage(str(folder))))


def _base_files(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.glob("region=*/*.parquet")):
        yield path.parent.name, path


def _records(metadata: MetadataTable, partition: str) -> dict[str, Payload]:
    found = list(metadata.records(partition))
    assert len(dict(found)) == len(found)
    return dict(found)


def test_files_are_those_in_the_folders(folder: Path, metadata: MetadataTable) -> None:
    expected: dict[str, dict[str, int]] = {}
    for partition, path in _base_files(folder):
        expected.setdefault(partition, {})[path.name] = path.stat().st_size
    records = _records(metadata, MetadataPartition.FILES)
    partitions = records.pop(ALL_PARTITIONS)
    assert isinstance(partitions, FileList)
    assert partitions.sizes() == dict.fromkeys(expected, 0)
    found = {partition_of_files_key(key): record for key, record in records.items()}
    assert {key: record.sizes() for key, record in found.items() if isinstance(record, FileList)} == expected


def test_column_statistics_are_those_of_the_files(folder: Path, metadata: MetadataTable) -> None:
    records = _records(metadata, MetadataPartition.COLUMN_STATS)
    expected = {}
    for partition, path in _base_files(folder):
        file = pq.ParquetFile(path)
        for stats in column_stats(file, path.name, indexed_columns(file.schema_arrow)):
            expected[column_stats_key(stats.column_name, partition, path.name)] = stats
    assert len(expected) == 17 * 16
    assert records == expected


def test_partition_statistics_are_those_of_the_newest_files(
    folder: Path, table: HudiTable, metadata: MetadataTable
) -> None:
    records = _records(metadata, MetadataPartition.PARTITION_STATS)
    newest = {partition: set[str]() for partition in ("region=apac", "region=eu", "region=us")}
    for each in table.base_files():
        newest[each.partition_path].add(Path(each.path).name)
    # The JVM adds a clustering's inputs to its outputs, until the partition is written again.
    newest["region=apac"] |= {
        "07838327-b037-4532-a9df-3c5b05dd823d-0_0-157-346_20260307162447985.parquet",
        "7dcb7583-60a5-4c3e-b173-87f1d23ee9e0-0_0-223-548_20260307162453568.parquet",
    }
    expected = {}
    for partition, names in newest.items():
        of_files = []
        for name in names:
            file = pq.ParquetFile(folder / partition / name)
            of_files += column_stats(file, name, indexed_columns(file.schema_arrow))
        for stats in partition_stats(partition, of_files):
            expected[partition_stats_key(stats.column_name, partition)] = stats
    assert records == expected


def test_the_record_index_says_where_every_key_is(
    folder: Path, table: HudiTable, metadata: MetadataTable
) -> None:
    records = _records(metadata, MetadataPartition.RECORD_INDEX)
    expected = {}
    for each in table.base_files():
        data = read_base_file(Storage(str(folder)), each.path, ["_hoodie_record_key"])
        for key in data.column("_hoodie_record_key").to_pylist():
            expected[key] = (each.partition_path, each.file_id)
    locations = {key: record for key, record in records.items() if isinstance(record, RecordLocation)}
    assert {key: (each.partition_path, each.file_id) for key, each in locations.items()} == expected
    # The table's timeline is in local time, six hours behind UTC, the index's moments are not.
    for location in locations.values():
        written = [parse_base_file_name(path.name) for _, path in _base_files(folder)]
        instants = {parsed[2] for parsed in written if parsed and parsed[0] == location.file_id}
        local = parse_time(location.instant) - timedelta(hours=6)
        assert local in {parse_time(instant) for instant in instants}


def test_a_secondary_index_names_a_key_for_each_row(
    folder: Path, table: HudiTable, metadata: MetadataTable
) -> None:
    records = _records(metadata, "secondary_index_merchant_idx")
    rows = set()
    for each in table.base_files():
        data = read_base_file(Storage(str(folder)), each.path, ["_hoodie_record_key", "merchant_name"])
        rows |= {(row["merchant_name"], row["_hoodie_record_key"]) for row in data.to_pylist()}
    assert all(record == SecondaryKey() for record in records.values())
    named = {tuple(key.split("$")) for key in records}
    assert {row for row in rows if row[0] is not None} <= named
    assert len(named) == len(rows)


def test_file_groups_and_their_slices(metadata: MetadataTable) -> None:
    for partition, count in {
        MetadataPartition.FILES: 1,
        MetadataPartition.COLUMN_STATS: 2,
        MetadataPartition.PARTITION_STATS: 1,
        MetadataPartition.RECORD_INDEX: 10,
        "secondary_index_txn_date_idx": 10,
    }.items():
        if isinstance(partition, MetadataPartition):
            assert partition.default_file_groups == count
        slices = metadata.file_slices(partition)
        assert [each.file_id for each in slices] == [
            file_group_id(partition, index) for index in range(count)
        ]
    (files,) = metadata.file_slices(MetadataPartition.FILES)
    assert files.base_file is not None
    assert files.base_file.instant == "20260307162449278"
    # The first of these began before the compaction was planned, and completed after it.
    assert [each.instant for each in files.log_files] == [
        "20260307162449244",
        "20260307162450901",
        "20260307162452329",
        "20260307162453568",
        "20260307162454799",
        "20260307162456179",
    ]
    assert metadata.file_slices("no_such_index") == []
    assert dict(metadata.records("no_such_index")) == {}
    assert metadata.look_up("no_such_index", ["a"]) == {}


def test_keys_are_in_the_file_groups_that_the_hash_says(metadata: MetadataTable) -> None:
    for partition in (MetadataPartition.RECORD_INDEX, MetadataPartition.COLUMN_STATS):
        slices = metadata.file_slices(partition)
        for index, each in enumerate(slices):
            for key, _ in metadata.slice_records(each):
                assert file_group_index(key, len(slices)) == index


def test_look_ups_find_what_a_scan_finds(metadata: MetadataTable) -> None:
    for partition in MetadataPartition:
        records = _records(metadata, partition)
        assert metadata.look_up(partition, [*records, "no such key"]) == records
        for key in list(records)[:5]:
            assert metadata.look_up(partition, [key]) == {key: records[key]}


def test_statistics_of_a_column_are_found_together(metadata: MetadataTable) -> None:
    of_column = dict(metadata.with_prefix(MetadataPartition.COLUMN_STATS, column_stats_prefix("amount")))
    assert {each.column_name for each in of_column.values() if isinstance(each, ColumnStats)} == {"amount"}
    assert len(of_column) == 17
    of_partition = dict(
        metadata.with_prefix(MetadataPartition.COLUMN_STATS, column_stats_prefix("amount", "region=us"))
    )
    assert len(of_partition) == 6
    assert of_partition.items() <= of_column.items()


def test_deleted_keys_are_not_found(metadata: MetadataTable, table: HudiTable) -> None:
    deleted = {"TXN-002", "TXN-005"}  # by a delete of the JVM
    records = _records(metadata, MetadataPartition.RECORD_INDEX)
    assert deleted.isdisjoint(records)
    assert metadata.look_up(MetadataPartition.RECORD_INDEX, deleted) == {}


def test_an_instant_that_is_pending_on_the_table_does_not_count(folder: Path) -> None:
    newest = "20260307162456179"
    metadata = MetadataTable(metadata_storage(Storage(str(folder))), pending=[newest])
    records = _records(metadata, MetadataPartition.FILES)
    names = {name for record in records.values() if isinstance(record, FileList) for name in record.files}
    assert names
    assert not any(newest in name for name in names)
    all_files = {path.name for _, path in _base_files(folder) if newest not in path.name}
    assert all_files <= names


def test_the_index_definitions_name_the_indexed_columns(folder: Path) -> None:
    definitions = json.loads((folder / ".hoodie/.index_defs/index.json").read_text())["indexDefinitions"]
    file = pq.ParquetFile(next(path for _, path in _base_files(folder)))
    assert indexed_columns(file.schema_arrow) == definitions["column_stats"]["sourceFields"]
    assert set(INDEXED_META_COLUMNS) < set(definitions["column_stats"]["sourceFields"])


def test_a_merge_on_read_tables_files_are_listed_too(jvm_tables: JvmTables) -> None:
    """A snapshot version of Hudi wrote this table with log files and deletes; hudi-rs cannot read it."""
    folder = jvm_tables.table("jvm_mor_v9_mdt_legacy_hfile")
    metadata = MetadataTable(metadata_storage(Storage(str(folder))))
    records = _records(metadata, MetadataPartition.FILES)
    found = {
        key: record.sizes()
        for key, record in records.items()
        if isinstance(record, FileList) and key != ALL_PARTITIONS
    }
    expected: dict[str, dict[str, int]] = {}
    for path in sorted(folder.glob("2023-*/*")) + sorted(folder.glob("2023-*/.*.log.*")):
        if path.suffix == ".parquet" or LogFileName.parse(path.name) is not None:
            expected.setdefault(path.parent.name, {})[path.name] = path.stat().st_size
    assert found == expected


def test_a_log_file_whose_instant_was_archived_is_in_the_right_slice(tmp_path: Path) -> None:
    """The instant was requested before a compaction's plan, completed after it, and archived before it."""
    storage = Storage(str(tmp_path))
    create_metadata_table(storage, TableConfig("t"))
    initialise_file_groups(storage, "files", 1, at(0))
    write_instant(storage, Action.DELTA_COMMIT, at(0), at(1), BULK_INSERT, [])
    files = MetadataPartition.FILES
    late = log_changes(
        storage, MetadataTable(storage), at(2), {files: {"p": FileList({"late": FileInfo(1)})}}
    )
    (file_slice,) = MetadataTable(storage).file_slices(files)
    base = compacted(storage, MetadataTable(storage), file_slice, at(3))
    write_instant(storage, Action.DELTA_COMMIT, at(2), at(4), UPSERT, late)
    write_instant(storage, Action.COMPACTION, at(3), at(5), COMPACT, [base])
    expected = {"p": FileList({"late": FileInfo(1)})}
    assert dict(MetadataTable(storage).records(files)) == expected

    history = pa.table(
        {
            "instantTime": [at(0), at(2)],
            "completionTime": [at(1), at(4)],
            "action": ["deltacommit", "deltacommit"],
        }
    )
    folder = tmp_path / ".hoodie/timeline/history"
    folder.mkdir()
    pq.write_table(history, folder / f"{at(0)}_{at(2)}_0.parquet")
    (folder / "manifest_1").write_text(
        json.dumps({"files": [{"fileName": f"{at(0)}_{at(2)}_0.parquet", "fileLen": 1}]})
    )
    (folder / "_version_").write_text("1")
    for name in storage.names(".hoodie/timeline"):
        if name.startswith((at(0), at(2))):
            storage.delete(f".hoodie/timeline/{name}")
    assert dict(MetadataTable(storage).records(files)) == expected
