"""Writing the metadata table: its configuration, file groups, log files, compactions and instants.

Sources: ``HoodieBackedTableMetadataWriter`` and ``HoodieTableMetadataUtil`` of Apache Hudi.

Every function is idempotent: the content and the name of each file follow from the arguments. So a writer
that finds a commit half published can write the same files again.
"""

from __future__ import annotations

import hashlib
import io
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import islice

import pyarrow as pa

from airflow_provider.exceptions import NotATableError
from airflow_provider.table.files import (
    BlockType,
    BloomFilter,
    DeletedRecord,
    HeaderKey,
    LogFileName,
    encode_deletes,
    encode_log_block,
    write_partition_metadata,
)
from airflow_provider.table.hfile import BLOCK_SIZE, HFileReader, HFileWriter
from airflow_provider.table.metadata_table.file_groups import FIRST_TOKEN, MetadataFileSlice
from airflow_provider.table.metadata_table.initial_instants import is_initial
from airflow_provider.table.metadata_table.keys import by_file_group
from airflow_provider.table.metadata_table.partitions import MetadataPartition, file_group_id
from airflow_provider.table.metadata_table.reader import MetadataTable
from airflow_provider.table.metadata_table.records import Payload, encode_payload, schema_text
from airflow_provider.table.properties import (
    PROPERTIES_PATH,
    TableConfig,
    dump_properties,
    table_checksum,
)
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import (
    Action,
    CommitMetadata,
    Instant,
    State,
    WriteStat,
    encode_commit_metadata,
    instant_path,
    parse_time,
)

BULK_INSERT = "BULK_INSERT_PREPPED"
"""Operation type of an instant that fills file groups for the first time."""

UPSERT = "UPSERT_PREPPED"
"""Operation type of an instant that logs the changes of an instant of the table."""

COMPACT = "COMPACT"

_TWO_INTS = struct.Struct(">II")

_WRITE_TOKEN = "1-0-0"  # noqa: S105

# The sizes of the bloom filters in Hudi's HFiles.
_BLOOM_ENTRIES = 10_000
_BLOOM_FALSE_POSITIVES = 1e-9
_BLOOM_MAX_ENTRIES = 100_000

_RECORDS_A_BATCH = 20_000

# A look-up in the record index reads a few keys from many blocks; small blocks keep what it unpacks small.
_BLOCK_SIZES: Mapping[str, int] = {MetadataPartition.RECORD_INDEX: 8 * 1024}


def metadata_table_properties(config: TableConfig) -> dict[str, str]:
    """``hoodie.properties`` of the metadata table of a table.

    :param config: the table's configuration.
    """
    name = f"{config.name}_metadata"
    return {
        "hoodie.archivelog.folder": "history",
        "hoodie.compaction.payload.class": "org.apache.hudi.metadata.HoodieMetadataPayload",
        "hoodie.datasource.write.drop.partition.columns": "false",
        "hoodie.populate.meta.fields": "false",
        "hoodie.record.merge.mode": "CUSTOM",
        "hoodie.record.merge.strategy.id": "00000000-0000-0000-0000-000000000000",
        "hoodie.table.base.file.format": "HFILE",
        "hoodie.table.checksum": str(table_checksum("", name)),
        "hoodie.table.initial.version": str(config.version),
        "hoodie.table.keygenerator.type": "HOODIE_TABLE_METADATA",
        "hoodie.table.name": name,
        "hoodie.table.recordkey.fields": "key",
        "hoodie.table.timeline.timezone": config.timezone,
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.table.version": str(config.version),
        "hoodie.timeline.history.path": "history",
        "hoodie.timeline.layout.version": str(config.layout),
        "hoodie.timeline.path": "timeline",
    }


def create_metadata_table(storage: Storage, config: TableConfig) -> bool:
    """Create the metadata table of a table, without any partition.

    :param storage: the metadata table's storage.
    :param config: the table's configuration.
    :return: True when this call created it, False when it existed.
    """
    return storage.put_if_absent(PROPERTIES_PATH, dump_properties(metadata_table_properties(config)).encode())


def initialise_file_groups(storage: Storage, partition: str, count: int, instant: str) -> list[str]:
    """Create a partition with its file groups; from then on writers can log to them.

    Each file group begins with an empty log file, so that every writer sees the number of file groups.

    :param storage: the metadata table's storage.
    :param count: number of file groups; it never changes afterwards.
    :param instant: requested time of the instant that creates them.
    :return: the ids of the file groups.
    :raises NotATableError: when there is no metadata table.
    """
    if storage.stat(PROPERTIES_PATH) is None:
        raise NotATableError(
            f"{storage.root} is no metadata table: it has no {PROPERTIES_PATH}", location=storage.root
        )
    write_partition_metadata(storage, partition, instant)
    nothing = encode_log_block(BlockType.DELETE, encode_deletes([]), instant=instant)
    ids = [file_group_id(partition, index) for index in range(count)]
    for each in ids:
        storage.put(f"{partition}/{LogFileName(each, instant, 1, FIRST_TOKEN)}", nothing)
    return ids


def write_base_file(
    storage: Storage,
    partition: str,
    file_id: str,
    instant: str,
    records: Iterable[tuple[str, Payload]],
    *,
    write_token: str = _WRITE_TOKEN,
) -> WriteStat:
    """Write a base file; it is visible once its instant completes.

    :param storage: the metadata table's storage.
    :param file_id: the file group.
    :param instant: requested time of the instant that writes it.
    :param records: payloads by key, in the order of the keys' bytes.
    :param write_token: the task attempt that writes it.
    :raises ValueError: when the keys are out of order.
    """
    batches = _encoded(records)
    return write_encoded_base_file(storage, partition, file_id, instant, batches, write_token=write_token)


def _encoded(records: Iterable[tuple[str, Payload]]) -> Iterator[tuple[pa.Array, pa.Array]]:
    records = iter(records)
    while batch := list(islice(records, _RECORDS_A_BATCH)):
        payloads = [encode_payload(payload) for _, payload in batch]
        yield pa.array([key for key, _ in batch], pa.string()), pa.array(payloads, pa.binary())


def write_encoded_base_file(
    storage: Storage,
    partition: str,
    file_id: str,
    instant: str,
    batches: Iterable[tuple[pa.Array, pa.Array]],
    *,
    write_token: str = _WRITE_TOKEN,
) -> WriteStat:
    """Write a base file as :func:`write_base_file` does, from records that are encoded already.

    :param batches: keys, as strings in the order of their bytes, and the bytes of each key's payload.
    :raises ValueError: when the keys are out of order.
    """
    path = _base_file_path(partition, file_id, instant, write_token)
    sink = io.BytesIO()
    writer = HFileWriter(sink, block_size=_BLOCK_SIZES.get(partition, BLOCK_SIZE), created=_created(instant))
    keys: list[pa.Array] = []
    for some, payloads in batches:
        writer.append_all(some, payloads)
        keys.append(some)
    written = pa.chunked_array(keys, keys[0].type if keys else pa.string())
    bloom = BloomFilter.build(
        written,
        entries=_BLOOM_ENTRIES,
        false_positives=_BLOOM_FALSE_POSITIVES,
        max_entries=_BLOOM_MAX_ENTRIES,
    )
    footer, type_code = bloom.to_footer()
    writer.add_meta_block("bloomFilter", footer.encode())
    writer.add_file_info("bloomFilterTypeCode", type_code.encode())
    writer.add_file_info("minRecordKey", written[0].as_py().encode() if keys else b"")
    writer.add_file_info("maxRecordKey", written[-1].as_py().encode() if keys else b"")
    writer.add_file_info("schema", schema_text().encode())
    size = writer.finish()
    storage.put(path, sink.getvalue())
    return _of_base_file(partition, file_id, path, len(written), size)


def written_base_file(
    storage: Storage, partition: str, file_id: str, instant: str, *, write_token: str = _WRITE_TOKEN
) -> WriteStat | None:
    """The result of :func:`write_base_file` for a base file that exists; None when it does not exist.

    :param storage: the metadata table's storage.
    :param file_id: the file group.
    :param instant: requested time of the instant that writes it.
    :param write_token: the task attempt that has written it.
    """
    path = _base_file_path(partition, file_id, instant, write_token)
    status = storage.stat(path)
    if status is None:
        return None
    count = len(HFileReader.open(storage, path, size=status.size))
    return _of_base_file(partition, file_id, path, count, status.size)


def _base_file_path(partition: str, file_id: str, instant: str, write_token: str) -> str:
    return f"{partition}/{file_id}_{write_token}_{instant}.hfile"


def _of_base_file(partition: str, file_id: str, path: str, records: int, size: int) -> WriteStat:
    return WriteStat(
        file_id=file_id,
        partition_path=partition,
        path=path,
        num_writes=records,
        num_inserts=records,
        total_write_bytes=size,
        file_size=size,
    )


def write_log_file(
    storage: Storage,
    partition: str,
    file_id: str,
    instant: str,
    changes: Mapping[str, Payload | None],
) -> WriteStat:
    """Write a log file; readers see its records once its instant completes.

    The write token follows from the content, so that a log file never changes under its name: a reader may
    have listed it with its size. A writer that logs the same records again writes the same file.

    :param storage: the metadata table's storage.
    :param file_id: the file group.
    :param instant: requested time of the instant that writes it.
    :param changes: records by key; None deletes a key.
    """
    header: dict[int, str] = {HeaderKey.SCHEMA: schema_text()}
    written = {key: payload for key, payload in changes.items() if payload is not None}
    deleted = sorted(changes.keys() - written.keys())
    blocks = []
    if written:
        content = _encode_records(written, instant)
        blocks.append(encode_log_block(BlockType.HFILE_DATA, content, instant=instant, header=header))
    if deleted or not written:
        content = encode_deletes(DeletedRecord(key, partition) for key in deleted)
        blocks.append(encode_log_block(BlockType.DELETE, content, instant=instant, header=header))
    data = b"".join(blocks)
    name = str(LogFileName(file_id, instant, 1, _token_of(data)))
    storage.put(f"{partition}/{name}", data)
    return WriteStat(
        file_id=file_id,
        partition_path=partition,
        path=f"{partition}/{name}",
        prev_commit=instant,
        num_writes=len(written),
        num_update_writes=len(written),
        num_deletes=len(deleted),
        total_write_bytes=len(data),
        file_size=len(data),
        log_version=1,
        log_files=(name,),
    )


def log_changes(
    storage: Storage, table: MetadataTable, instant: str, changes: Mapping[str, Mapping[str, Payload | None]]
) -> list[WriteStat]:
    """Log the records that an instant changes, in every partition, to the file groups of their keys.

    :param storage: the metadata table's storage.
    :param table: the metadata table, for its file groups.
    :param instant: requested time of the instant.
    :param changes: records by key and by partition; None deletes a key.
    :raises NotATableError: when a partition has no file group.
    """
    stats = []
    for partition, of_partition in changes.items():
        ids = [each.file_id for each in table.file_slices(partition)]
        if not ids:
            raise NotATableError(
                f"the metadata table {storage.root} has no partition {partition}; initialise its file groups",
                location=storage.root,
            )
        for index, keys in by_file_group(of_partition, len(ids)).items():
            of_group = {key: of_partition[key] for key in keys}
            stats.append(write_log_file(storage, partition, ids[index], instant, of_group))
    return stats


def compacted(
    storage: Storage,
    table: MetadataTable,
    file_slice: MetadataFileSlice,
    instant: str,
    *,
    write_token: str = _WRITE_TOKEN,
) -> WriteStat:
    """Write the base file with the records that a file slice had when the compaction was planned.

    Log files of instants that completed later belong to the next slice, even if this slice lists them.

    :param storage: the metadata table's storage.
    :param table: the metadata table. Its timeline must be loaded after the compaction took its instant time.
        Otherwise an instant that completed in between would be missing, and its records would be lost.
    :param file_slice: one of its slices.
    :param instant: requested time of the compaction.
    :param write_token: the task attempt that writes it.
    """
    before = tuple(each for each in file_slice.log_files if each.completion_time <= instant)
    return write_base_file(
        storage,
        file_slice.partition,
        file_slice.file_id,
        instant,
        table.slice_records(replace(file_slice, log_files=before)),
        write_token=write_token,
    )


def write_instant(
    storage: Storage,
    action: Action,
    instant: str,
    completion_time: str,
    operation_type: str,
    write_stats: Collection[WriteStat],
    *,
    plan: bytes = b"",
) -> None:
    """Put a completed instant on the metadata table's timeline.

    :param storage: the metadata table's storage.
    :param action: ``deltacommit``, or ``compaction``.
    :param instant: requested time.
    :param completion_time: when it completed.
    :param operation_type: :data:`BULK_INSERT`, :data:`UPSERT` or :data:`COMPACT`.
    :param write_stats: the files written.
    :param plan: of a compaction: the content of the requested instant.
    """
    begin_instant(storage, action, instant, operation_type, plan=plan)
    completed = Instant(instant, action, State.COMPLETED, completion_time)
    content = completed_metadata(action, operation_type, write_stats)
    storage.put_if_absent(instant_path(completed), content)


def begin_instant(
    storage: Storage, action: Action, instant: str, operation_type: str, *, plan: bytes = b""
) -> None:
    """Put a pending instant on the metadata table's timeline, requested and in flight.

    :param storage: the metadata table's storage.
    :param action: see :func:`write_instant`.
    :param instant: requested time.
    :param operation_type: see :func:`write_instant`.
    :param plan: of a compaction: the content of the requested instant.
    """
    inflight = b""
    if operation_type == UPSERT:
        metadata = CommitMetadata(operation_type, extra_metadata={"schema": schema_text()})
        inflight = encode_commit_metadata(metadata, action)
    storage.put_if_absent(instant_path(Instant(instant, action, State.REQUESTED)), plan)
    storage.put_if_absent(instant_path(Instant(instant, action, State.INFLIGHT)), inflight)


def completed_metadata(action: Action, operation_type: str, write_stats: Collection[WriteStat]) -> bytes:
    """The content of a completed instant of the metadata table.

    :param action: see :func:`write_instant`.
    :param operation_type: see :func:`write_instant`.
    :param write_stats: the files written.
    """
    extra = {"schema": schema_text()}
    return encode_commit_metadata(
        CommitMetadata(operation_type, tuple(write_stats), extra_metadata=extra), action
    )


def _token_of(content: bytes) -> str:
    """A write token for a file's content; Hudi reads each of its numbers as a Java int."""
    stage, attempt = _TWO_INTS.unpack(hashlib.blake2b(content, digest_size=_TWO_INTS.size).digest())
    return f"1-{stage >> 1}-{attempt >> 1}"


def _encode_records(records: Mapping[str, Payload], instant: str) -> bytes:
    sink = io.BytesIO()
    writer = HFileWriter(sink, created=_created(instant))
    for key in sorted(records):
        writer.append(key.encode(), encode_payload(records[key]))
    writer.add_file_info("schema", schema_text().encode())
    writer.finish()
    return sink.getvalue()


@lru_cache(maxsize=16)
def _created(instant: str) -> int:
    """A file's creation time in milliseconds since the epoch, from its instant, so that it is repeatable."""
    return 0 if is_initial(instant) else int(parse_time(instant).timestamp() * 1000)
