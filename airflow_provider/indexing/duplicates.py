"""Record keys that got into two places while the record index was built.

No writer could use the index yet, so a writer may have added a key to one partition although it exists in
another. The index has one place for each key, and would miss the other one.
"""

from __future__ import annotations

from airflow_provider.concurrency.indexes import LivingKeys, SnapshotSlices
from airflow_provider.exceptions import DuplicateRecordKeyError
from airflow_provider.table.file_groups import FileGroupId, FileSystemView
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata_table import (
    MetadataPartition,
    MetadataTable,
    RecordLocation,
    metadata_storage,
    record_keys,
)
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import Timeline


def check_one_place(storage: Storage, timeline: Timeline, *, since: str = "") -> None:
    """Make sure that every key that was logged to the record index exists only at its place in the index.

    This reads only file groups that such a key has left, or should have left.

    :param storage: the table's storage.
    :param timeline: the timeline at the moment to check; records that are logged later are ignored.
    :param since: only keys that were logged after this completion time.
    :raises DuplicateRecordKeyError: when a key exists in another place too.
    """
    left: dict[FileGroupId, dict[str, RecordLocation | None]] = {}
    table = HudiTable.at(storage)
    snapshot = SnapshotSlices(table, lambda: FileSystemView(storage, timeline))
    living = LivingKeys(storage, lambda: table.schema_on(timeline))
    # A clustering that completes meanwhile has moved keys in the index, but not in the view.
    metadata_table = MetadataTable(metadata_storage(storage), as_of=timeline.newest_completion)
    for file_slice in metadata_table.file_slices(MetadataPartition.RECORD_INDEX):
        for key, versions in metadata_table.changed_versions(file_slice, since):
            places = [each if isinstance(each, RecordLocation) else None for each in versions]
            for place in places[:-1]:
                if place is not None and _file_group(place) != _file_group(places[-1]):
                    left.setdefault(place.file_group, {})[key] = places[-1]
    for group, keys in sorted(left.items()):
        still = snapshot.of(group)
        if still is None:
            continue
        there = record_keys(storage, still, living)
        if both := sorted(keys.keys() & set(there.to_pylist())):
            known = keys[both[0]]
            this = "/".join(group).lstrip("/")
            other = "/".join(_file_group(known) or ("no other place",)).lstrip("/")
            raise DuplicateRecordKeyError(
                f"table {storage.root}: record key {both[0]!r} lives in {this} and, by what was written "
                f"while record_index was built, in {other}: it has one place for a key of the table; drop "
                "record_index, and delete one of the two before it is built again",
                key=both[0],
            )


def _file_group(location: RecordLocation | None) -> FileGroupId | None:
    return None if location is None else location.file_group
