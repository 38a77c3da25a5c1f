"""Tables whose commits log to a metadata table, and the check of its indexes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from hudi import HudiTableBuilder

from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.compaction_plan import CompactionSettings
from airflow_provider.table import HudiTable
from airflow_provider.table.file_names import parse_base_file_name
from airflow_provider.table.files.base_file_reader import read_base_file
from airflow_provider.table.hudi_table import PROPERTIES_PATH
from airflow_provider.table.metadata_table.keys import ALL_PARTITIONS
from airflow_provider.table.metadata_table.partitions import MetadataPartition, file_group_id
from airflow_provider.table.metadata_table.reader import MetadataTable, metadata_storage
from airflow_provider.table.metadata_table.records import FileList, Payload, RecordLocation, RecordType
from airflow_provider.table.metadata_table.writer import (
    BULK_INSERT,
    create_metadata_table,
    initialise_file_groups,
    write_base_file,
    write_instant,
)
from airflow_provider.table.properties import dump_properties
from airflow_provider.table.timeline.instant import Action
from tests.unit.concurrency.simulation.scheduler import NoLock

FILES, RECORD_INDEX = MetadataPartition.FILES, MetadataPartition.RECORD_INDEX
GROUPS = {FILES: 1, RECORD_INDEX: 2}
SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string())])
EVERY_COMMIT = CompactionSettings(max_delta_commits=1)
_FIRST = "00000000000000000"
_THEN = "20200101000000000"


def indexed_table(location: Path) -> HudiTable:
    """A table without rows, with the indexes ``files`` and ``record_index``."""
    table = HudiTable.create(
        str(location), name="trips", schema=SCHEMA, record_key=["id"], partition_by=["city"]
    )
    storage = metadata_storage(table.storage)
    create_metadata_table(storage, table.config)
    empty = FileList({}, RecordType.ALL_PARTITIONS)
    stats = []
    for partition, count in GROUPS.items():
        initialise_file_groups(storage, partition, count, _FIRST)
        for number in range(count):
            records: list[tuple[str, Payload]] = [(ALL_PARTITIONS, empty)] if partition == FILES else []
            group = file_group_id(partition, number)
            stats.append(write_base_file(storage, partition, group, _FIRST, records))
    write_instant(storage, Action.DELTA_COMMIT, _FIRST, _THEN, BULK_INSERT, stats)
    trust(table, *GROUPS)
    return HudiTable.open(table.location)


def trust(table: HudiTable, *partitions: str, inflight: tuple[str, ...] = ()) -> None:
    """Let the table's properties name these indexes."""
    config = HudiTable.open(table.location).config.with_metadata_partitions(partitions, inflight)
    table.storage.put(PROPERTIES_PATH, dump_properties(config.to_properties()).encode())


def commit(table: HudiTable, *ids: int, city: str = "sf") -> str:
    """Upsert rows; return the requested time of the commit."""
    rows = pa.table({"id": list(ids), "city": [city] * len(ids)}, SCHEMA)
    return str(ingest_arrow(table, rows, lock=NoLock())["instant"])


def records(table: HudiTable) -> dict[str, dict[str, Payload]]:
    """The records of the indexes."""
    metadata_table = MetadataTable(metadata_storage(table.storage))
    return {partition: dict(metadata_table.records(partition)) for partition in GROUPS}


def rows(table: HudiTable) -> list[int]:
    """Keys of the rows that hudi-rs reads; it lists no folder, but reads the index ``files``."""
    batches = HudiTableBuilder.from_base_uri(table.location).build().read()
    return sorted(pa.Table.from_batches(batches)["id"].to_pylist()) if batches else []


def check_indexes(table: HudiTable) -> None:
    """Check that the indexes equal a rebuild from the data files."""
    said = records(table)
    folder = Path(table.location)
    listed: dict[str, dict[str, int]] = {}
    for path in sorted(folder.glob("city=*/*.parquet")):
        listed.setdefault(path.parent.name, {})[path.name] = path.stat().st_size
    lists = {key: each.sizes() for key, each in said[FILES].items() if isinstance(each, FileList)}
    assert sorted(lists.pop(ALL_PARTITIONS)) == sorted(listed)
    assert lists == listed
    located = {
        str(key): (base.partition_path, base.file_id)
        for base in table.base_files()
        for key in read_base_file(table.storage, base.path)["_hoodie_record_key"].to_pylist()
    }
    found = {
        key: (each.partition_path, each.file_id)
        for key, each in said[RECORD_INDEX].items()
        if isinstance(each, RecordLocation)
    }
    assert found == located
    looked_up = MetadataTable(metadata_storage(table.storage)).look_up(RECORD_INDEX, [*located, "nobody"])
    assert looked_up == said[RECORD_INDEX]
    assert all(parse_base_file_name(name) for names in listed.values() for name in names)
