"""Writing the archived timeline of layout 2: Parquet files, merged level by level, and manifests.

Each change is a new manifest, which put-if-absent creates with all its content. If two archivers try at once,
one puts its manifest; the other reads that manifest and tries again. An archiver that dies leaves at most a
file that no manifest names. Source: Hudi's ``LSMTimelineWriter``.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources

import pyarrow as pa

from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline.archived_timeline import (
    HISTORY_FOLDER,
    VERSION_PATH,
    WRITE_IDS_KEY,
    ArchivedInstant,
    HistoryFile,
    Manifest,
    archived_instants,
    manifest_path,
    manifest_versions,
    reading,
    write_ids_of,
)

MERGED_FILES = 10
"""Files of one level that are merged into one of the next (Hudi's
``hoodie.timeline.compaction.batch.size``)."""

KEPT_MANIFESTS = 3
"""Manifests whose files readers can still find (Hudi keeps as many snapshots)."""

_MAX_MERGED_BYTES = 256 * 1024 * 1024


def append_history(storage: Storage, instants: Iterable[ArchivedInstant]) -> None:
    """Add instants to the archived timeline; instants that it has already are left out.

    :param storage: the table's storage.
    :param instants: completed, in the order of their requested times.
    :raises CorruptTableError: when the archived timeline cannot be read.
    """
    wanted = list(instants)
    while wanted:
        manifest = Manifest.newest(storage)
        wanted = _without_archived(storage, manifest, wanted)
        if not wanted or _put_next(storage, manifest, manifest.files, wanted, level=0):
            break
    _publish_version(storage)


def merge_history(storage: Storage) -> None:
    """Merge small files into larger ones, and delete files that no reader needs any more.

    The number of files then grows with the logarithm of the number of instants.

    :param storage: the table's storage.
    :raises CorruptTableError: when the archived timeline cannot be read.
    """
    manifest = Manifest.newest(storage)
    while (due := _due(manifest)) is not None:
        kept = [each for each in manifest.files if each not in due]
        try:
            merged = [instant for each in due for instant in _read(storage, each)]
        except FileNotFoundError:
            break  # another archiver has merged them
        if not _put_next(storage, manifest, kept, merged, level=due[0].level + 1):
            break  # another archiver has put this manifest
        manifest = Manifest.newest(storage)
    _publish_version(storage)
    _delete_unneeded(storage, manifest)


def _put_next(
    storage: Storage,
    manifest: Manifest,
    kept: Sequence[HistoryFile],
    instants: Sequence[ArchivedInstant],
    *,
    level: int,
) -> bool:
    """Put the next manifest, with one more file; False when another archiver has put it."""
    times = [each.instant.requested_time for each in instants]
    name = f"{min(times)}_{max(times)}_{level}.parquet"
    path = f"{HISTORY_FOLDER}/{name}"
    data = _encode(instants)
    # A file of this name has the same instants. Another archiver has put it, and may have died.
    if storage.put_if_absent(path, data) or (status := storage.stat(path)) is None:
        size = len(data)
    else:
        size = status.size
    files = sorted([*kept, HistoryFile(name, size)])
    storage.sync_later(folders=[HISTORY_FOLDER])  # before the manifest names it
    following = Manifest(manifest.version + 1, tuple(files))
    return storage.put_if_absent(manifest_path(following.version), following.to_json())


def _without_archived(
    storage: Storage, manifest: Manifest, instants: Sequence[ArchivedInstant]
) -> list[ArchivedInstant]:
    first = instants[0].instant.requested_time
    if not any(each.last >= first for each in manifest.files):
        return list(instants)
    before = str(int(first) - 1)
    known = {each.requested_time for each in archived_instants(storage, requested_after=before)}
    return [each for each in instants if each.instant.requested_time not in known]


def _due(manifest: Manifest) -> list[HistoryFile] | None:
    """The oldest files of the lowest level that has enough of them."""
    for level in sorted({each.level for each in manifest.files}):
        files = sorted(each for each in manifest.files if each.level == level)[:MERGED_FILES]
        if len(files) == MERGED_FILES and sum(each.size for each in files) <= _MAX_MERGED_BYTES:
            return files
    return None


def _publish_version(storage: Storage) -> None:
    """Write the number of the newest manifest, for readers that look it up."""
    while version := Manifest.newest(storage).version:
        text = str(version).encode()
        if not storage.put_if_absent(VERSION_PATH, text) and storage.read(VERSION_PATH) != text:
            storage.put(VERSION_PATH, text)
        if Manifest.newest(storage).version == version:
            break


def _delete_unneeded(storage: Storage, manifest: Manifest) -> None:
    oldest = manifest.version - KEPT_MANIFESTS + 1
    versions = manifest_versions(storage)
    needed = {each.name for v in versions if v >= oldest for each in _files_of(storage, v)}
    for version in sorted(v for v in versions if v < oldest):
        # Delete only files that a manifest named; another archiver may be about to name a new file.
        for each in _files_of(storage, version):
            if each.name not in needed:
                storage.delete(f"{HISTORY_FOLDER}/{each.name}")
        storage.delete(manifest_path(version))


def _files_of(storage: Storage, version: int) -> tuple[HistoryFile, ...]:
    try:
        return Manifest.read(storage, version).files
    except FileNotFoundError:
        return ()  # just deleted


def _read(storage: Storage, file: HistoryFile) -> list[ArchivedInstant]:
    import pyarrow.parquet as pq  # see archived_timeline

    with reading(storage, file):
        content = io.BytesIO(storage.read(f"{HISTORY_FOLDER}/{file.name}"))
        return [ArchivedInstant.from_row(row) for row in pq.read_table(content).to_pylist()]


def _encode(instants: Iterable[ArchivedInstant]) -> bytes:
    import pyarrow.parquet as pq

    instants = sorted(instants, key=lambda each: each.instant.requested_time)
    rows = [
        {
            "instantTime": each.instant.requested_time,
            "completionTime": each.instant.completion_time,
            "action": str(each.instant.action),
            "metadata": each.metadata,
            "plan": each.plan,
            "version": 1,
        }
        for each in instants
    ]
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, _SCHEMA, compression="gzip", version="1.0", store_schema=False) as writer:
        writer.write_table(pa.Table.from_pylist(rows, _SCHEMA))
        footer = {
            "parquet.avro.schema": _avro_schema(),  # parquet-avro reads the file by this schema
            "writer.model.name": "avro",
            WRITE_IDS_KEY.decode(): json.dumps(write_ids_of(instants)),
        }
        writer.add_key_value_metadata(footer)
    return sink.getvalue()


_SCHEMA = pa.schema(
    [
        ("instantTime", pa.string()),
        ("completionTime", pa.string()),
        ("action", pa.string()),
        ("metadata", pa.binary()),
        ("plan", pa.binary()),
        pa.field("version", pa.int32(), nullable=False),
    ]
)
"""The Parquet schema that parquet-avro derives from ``HoodieLSMTimelineInstant``."""


@cache
def _avro_schema() -> str:
    name = "org.apache.hudi.avro.model.HoodieLSMTimelineInstant.avsc"
    text = resources.files("airflow_provider.table.avro").joinpath(name).read_text(encoding="utf-8")
    return json.dumps(json.loads(text))
