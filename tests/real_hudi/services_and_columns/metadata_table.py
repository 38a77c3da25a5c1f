"""The records of a metadata table, as the JVM reads them, beside the files that they are about."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from airflow_provider.table import HudiTable
from airflow_provider.table.file_groups.view import BaseFile
from airflow_provider.table.files.data_file_name import parse_data_file_name
from airflow_provider.table.reading import select_slices
from tests.real_hudi.jvm import Session

# HoodieMetadataPayload's types.
FILES, COLUMN_STATISTICS, RECORD_INDEX, PARTITION_STATISTICS = 2, 3, 5, 6

Records = list[dict[str, Any]]


def check_metadata_table(hudi: Session, table: HudiTable) -> None:
    """Check that each partition of the metadata table agrees with the content of the files.

    :raises AssertionError: names the mistake, or says that there is no metadata table.
    """
    records: dict[int, Records] = defaultdict(list)
    for record in hudi.read(f"{table.location}/.hoodie/metadata"):
        records[record["type"]].append(record)
    live = table.view().all_base_files()
    assert records[FILES], "there is no metadata table"
    pending = {instant.requested_time for instant in table.timeline().pending()}
    wrong = [*_wrong_files(Path(table.location), records[FILES], pending)]
    if records[RECORD_INDEX]:
        wrong += _wrong_keys(table, records[RECORD_INDEX])
    by_file = {Path(file.path).name: [file] for file in live}
    by_partition: dict[str, list[BaseFile]] = defaultdict(list)
    for file in live:
        by_partition[file.partition_path].append(file)
    wrong += _wrong_statistics(table, by_file, records[COLUMN_STATISTICS])
    wrong += _wrong_statistics(table, by_partition, records[PARTITION_STATISTICS])
    assert not wrong, f"{len(wrong)} records of the metadata table are wrong, such as {wrong[:3]}"


def _wrong_files(location: Path, records: Records, pending: Collection[str]) -> Iterable[str]:
    """The differences in ``files``; files of a pending write must not be listed, even before its rollback."""
    for record in records:
        partition = record["key"]
        files = ((each.name, parse_data_file_name(each.name)) for each in (location / partition).glob("*"))
        there = {name for name, parsed in files if parsed and parsed.instant not in pending}
        if partition == "__all_partitions__":
            there = {str(file.parent.relative_to(location)) for file in location.rglob("[!.]*.parquet")}
            there = {each for each in there if not each.startswith(".hoodie")}
        listed = {
            name for name, file in (record["filesystemMetadata"] or {}).items() if not file["isDeleted"]
        }
        if listed != there:
            yield f"{partition}: only listed {listed - there}, only there {there - listed}"


def _wrong_keys(table: HudiTable, records: Records) -> Iterable[str]:
    indexed = defaultdict(list)
    for record in records:
        if (place := record["recordIndexMetadata"]) is not None:
            indexed[record["key"]].append((place["partitionName"], _file_id(place)))
    there = {}
    reader, slices = select_slices(table)
    for each in slices:
        there |= {key: [(each.partition_path, each.file_id)] for key in reader.keys(each).to_pylist()}
    for key in there.keys() | indexed.keys():
        if there.get(key) != indexed.get(key):
            yield f"record index of {key}: {indexed.get(key)} instead of {there.get(key)}"


def _file_id(place: Mapping[str, Any]) -> str:
    if place["fileIdEncoding"] == 1:
        return str(place["fileId"])
    high, low = (place[half] & (2**64 - 1) for half in ("fileIdHighBits", "fileIdLowBits"))
    suffix = f"-{place['fileIndex']}" if place["fileIndex"] >= 0 else ""
    return f"{uuid.UUID(int=high << 64 | low)}{suffix}"


def _wrong_statistics(
    table: HudiTable, files: Mapping[str, list[BaseFile]], records: Records
) -> Iterable[str]:
    """The wrong statistics; bounds may be wider than the values, but not narrower."""
    for record in records:
        said = record["ColumnStatsMetadata"]
        name, column = said["fileName"], said["columnName"]
        if said["isDeleted"] or name not in files:
            continue
        values = [
            value
            for file in files[name]
            for value in pq.ParquetFile(f"{table.location}/{file.path}").read([column])[column].to_pylist()
            if value is not None
        ]
        if not values:
            continue  # a file whose rows are all deleted has no bounds
        low, high = _bound(said["minValue"]), _bound(said["maxValue"])
        if not (low <= min(values) and max(values) <= high):
            yield f"{column} of {name}: {low} to {high} instead of {min(values)} to {max(values)}"


def _bound(wrapped: Mapping[str, Any]) -> Any:
    """The value of a bound: the member of a union of wrappers that is not null."""
    [value] = [each for each in wrapped.values() if each is not None]
    return value["value"]
