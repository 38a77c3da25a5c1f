"""A metadata table of this package: read by hudi-rs, and compared with the JVM's and with a dictionary."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hudi import HudiReadOptions, HudiTableBuilder
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.exceptions import NotATableError
from airflow_provider.table.files.log_file import BlockType, HeaderKey, LogBlock, LogFileName, read_log_blocks
from airflow_provider.table.files.log_records import block_hfile, deleted_records
from airflow_provider.table.hfile import Compression, HFileReader, HFileWriter
from airflow_provider.table.metadata_table.keys import (
    ALL_PARTITIONS,
    bloom_filter_key,
    by_file_group,
    files_key,
)
from airflow_provider.table.metadata_table.partitions import (
    MetadataPartition,
    estimated_file_groups,
    file_group_id,
)
from airflow_provider.table.metadata_table.reader import MetadataTable, metadata_storage
from airflow_provider.table.metadata_table.records import (
    FileInfo,
    FileList,
    Payload,
    RecordDecoder,
    RecordLocation,
    RecordType,
    StoredBloomFilter,
)
from airflow_provider.table.metadata_table.writer import (
    BULK_INSERT,
    COMPACT,
    UPSERT,
    compacted,
    create_metadata_table,
    initialise_file_groups,
    log_changes,
    metadata_table_properties,
    write_base_file,
    write_instant,
    write_log_file,
)
from airflow_provider.table.properties import TableConfig, dump_properties, parse_properties
from airflow_provider.table.storage.byte_range import ByteRange
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.active import Timeline, instant_path
from airflow_provider.table.timeline.instant import Action, Instant, State
from airflow_provider.table.timeline.metadata import WriteStat, decode
from tests.unit.table.conftest import JvmTables
from tests.unit.table.histories import History, Key, Row, Write, at, rows_of

_PROPERTIES = ".hoodie/hoodie.properties"
_FIRST = "00000000000000000"
_FILES = MetadataPartition.FILES


class Index:
    """The ``files`` partition of a history's table, maintained by the test."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.storage = metadata_storage(history.storage)
        assert create_metadata_table(self.storage, history.table.config)
        assert not create_metadata_table(self.storage, history.table.config)
        initialise_file_groups(self.storage, _FILES, 1, _FIRST)
        nothing = [(ALL_PARTITIONS, FileList({}, RecordType.ALL_PARTITIONS))]
        stat = write_base_file(self.storage, _FILES, file_group_id(_FILES, 0), _FIRST, nothing)
        write_instant(self.storage, Action.DELTA_COMMIT, _FIRST, history.tick(), BULK_INSERT, [stat])
        trusting = history.table.config.with_metadata_partitions([_FILES])
        history.storage.put(".hoodie/hoodie.properties", dump_properties(trusting.to_properties()).encode())

    @property
    def table(self) -> MetadataTable:
        return MetadataTable(self.storage)

    def log(self, write: Write, *, deleted: Iterable[str] = ()) -> None:
        """Log the files of a commit."""
        added: dict[str, dict[str, FileInfo]] = {}
        timeline = Timeline.load(self.history.storage)
        instant = timeline.find(write.instant)
        assert instant is not None
        for stat in timeline.commit_metadata(instant).write_stats:
            status = self.history.storage.stat(stat.path)
            assert status is not None
            added.setdefault(stat.partition_path, {})[status.name] = FileInfo(status.size)
        for path in deleted:
            partition, _, name = path.rpartition("/")
            added.setdefault(partition, {})[name] = FileInfo(0, is_deleted=True)
        changes: dict[str, Payload | None] = {
            files_key(each): FileList(files) for each, files in added.items()
        }
        partitions = dict.fromkeys(added, FileInfo(0))
        changes[ALL_PARTITIONS] = FileList(partitions, RecordType.ALL_PARTITIONS)
        stats = log_changes(self.storage, self.table, write.instant, {_FILES: changes})
        write_instant(self.storage, Action.DELTA_COMMIT, write.instant, write.completion_time, UPSERT, stats)

    def compact(self) -> None:
        instant = self.history.tick()
        (file_slice,) = self.table.file_slices(_FILES)
        stat = compacted(self.storage, self.table, file_slice, instant)
        write_instant(self.storage, Action.COMPACTION, instant, self.history.tick(), COMPACT, [stat])

    def listed(self) -> dict[str, dict[str, int]]:
        return {
            key: record.sizes()
            for key, record in self.table.records(_FILES)
            if isinstance(record, FileList) and key != ALL_PARTITIONS
        }


def _read(history: History) -> list[tuple[Key, Row]]:
    batches = HudiTableBuilder.from_base_uri(history.table.location).build().read(HudiReadOptions())
    return rows_of(pa.Table.from_batches(batches)) if batches else []


def _expected(history: History) -> list[tuple[Key, Row]]:
    return sorted(history.state(history.commits).items(), key=repr)


def _on_disk(history: History) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for path in sorted(Path(history.table.location).glob("p=*/*.parquet")):
        found.setdefault(path.parent.name, {})[path.name] = path.stat().st_size
    return found


def test_hudi_rs_reads_a_table_through_our_files(history: History) -> None:
    index = Index(history)
    for number in range(3):
        rows = {("eu", number): f"v{number}", ("us", 1): f"u{number}"}
        write = history.commit(rows)
        assert _read(history) != _expected(history), "hudi-rs lists the folders, not our files"
        index.log(write)
        assert _read(history) == _expected(history)
        assert index.listed() == _on_disk(history)
    index.compact()
    assert _read(history) == _expected(history)
    (file_slice,) = index.table.file_slices(_FILES)
    assert file_slice.log_files == ()

    write = history.commit({("eu", 0): None, ("asia", 9): "new"})
    cleaned = sorted(each for each in index.listed()["p=us"])[0]
    history.storage.delete(f"p=us/{cleaned}")
    index.log(write, deleted=[f"p=us/{cleaned}"])
    assert _read(history) == _expected(history)
    assert index.listed() == _on_disk(history)
    index.compact()
    assert _read(history) == _expected(history)
    assert index.listed() == _on_disk(history)


@pytest.mark.parametrize("compression", Compression)
def test_hudi_rs_reads_an_index_of_several_levels(history: History, compression: Compression) -> None:
    """Hudi's own writer never makes such an index."""
    index = Index(history)
    write = history.commit({(f"p{number:03}", number): "v" for number in range(60)})
    index.log(write)
    index.compact()
    (file_slice,) = index.table.file_slices(_FILES)
    assert file_slice.base_file is not None
    reader = HFileReader.open(index.storage, file_slice.base_file.path)
    pairs = list(reader.scan())
    with Path(index.storage.url(file_slice.base_file.path)).open("wb") as sink:
        writer = HFileWriter(sink, compression=compression, block_size=300, index_block_size=100)
        for key, value in pairs:
            writer.append(key, value)
        for name, value in reader.file_info.items():
            writer.add_file_info(name, value)
        writer.finish()
    assert HFileReader.open(index.storage, file_slice.base_file.path).trailer.index_levels > 2
    assert _read(history) == _expected(history)
    assert index.listed() == _on_disk(history)


def test_what_is_written_twice_is_written_once(history: History) -> None:
    """Two processes write that both find a commit half published."""
    index = Index(history)
    write = history.commit({("eu", 1): "v"})
    index.log(write)
    before = {each.path: index.storage.read(each.path) for each in index.storage.list("", recursive=True)}
    index.log(write)
    initialise_file_groups(index.storage, _FILES, 1, _FIRST)
    after = {each.path: index.storage.read(each.path) for each in index.storage.list("", recursive=True)}
    assert after == before


def test_a_log_file_of_an_instant_that_did_not_complete_does_not_count(history: History) -> None:
    index = Index(history)
    index.log(history.commit({("eu", 1): "v"}))
    listed = index.listed()
    changes: dict[str, Payload | None] = {files_key("p=eu"): FileList({"another": FileInfo(5)})}
    instant = history.tick()
    stats = log_changes(index.storage, index.table, instant, {_FILES: changes})
    assert index.listed() == listed
    index.storage.put(instant_path(Instant(instant, Action.DELTA_COMMIT, State.INFLIGHT)), b"")
    assert index.listed() == listed
    write_instant(index.storage, Action.DELTA_COMMIT, instant, history.tick(), UPSERT, stats)
    assert index.listed()["p=eu"] == listed["p=eu"] | {"another": 5}
    pending = MetadataTable(index.storage, pending=[instant])
    eu = dict(pending.records(_FILES))["p=eu"]
    assert isinstance(eu, FileList)
    assert eu.sizes() == listed["p=eu"]


def test_base_files_are_the_jvms(jvm_tables: JvmTables, tmp_path: Path) -> None:
    folder = jvm_tables.table("rs_cow_v9_txns_simple_meta")
    theirs = metadata_storage(Storage(str(folder)))
    ours = Storage(str(tmp_path))
    table = MetadataTable(theirs)
    compared = 0
    for partition in (*MetadataPartition, "secondary_index_merchant_idx"):
        for each in table.file_slices(partition):
            if each.base_file is None:
                continue
            found = HFileReader.open(theirs, each.base_file.path)
            records = table.look_up(partition, [key.decode() for key, _ in found.scan()])
            keys = [key.decode() for key, _ in found.scan()]
            payload = next(iter(records.values()), RecordLocation("", "", 0))
            stat = write_base_file(
                ours, partition, each.file_id, each.base_file.instant, ((key, payload) for key in keys)
            )
            written = HFileReader.open(ours, stat.path)
            assert written.meta_block("bloomFilter") == found.meta_block("bloomFilter")
            assert set(written.file_info) == set(found.file_info)
            for name in ("minRecordKey", "maxRecordKey", "bloomFilterTypeCode", "hfile.LASTKEY"):
                assert written.file_info[name] == found.file_info[name], name
            assert [key for key, _ in written.scan()] == [key for key, _ in found.scan()]
            compared += 1
    assert compared > 15


def test_log_files_are_the_jvms(jvm_tables: JvmTables, tmp_path: Path) -> None:
    theirs = jvm_tables.table("rs_cow_v9_txns_simple_meta") / ".hoodie/metadata"
    ours = Storage(str(tmp_path))
    compared = 0
    for path in sorted(theirs.rglob(".*.log.*")):
        name = LogFileName.parse(path.name)
        assert name is not None
        blocks = list(read_log_blocks(ByteRange.of_bytes(path.read_bytes(), path.name)))
        if HeaderKey.SCHEMA not in blocks[0].header:
            continue  # the empty first log file of each file group
        changes: dict[str, Payload | None] = {}
        for block in blocks:
            changes |= dict.fromkeys(_deleted(block)) | dict(_written(block))
        stat = write_log_file(ours, path.parent.name, name.file_id, name.instant, changes)
        written = LogFileName.parse(stat.path.rpartition("/")[2])
        assert written is not None
        assert str(replace(written, write_token=name.write_token)) == path.name
        again = list(read_log_blocks(ByteRange.of_file(ours, stat.path)))
        assert [each.block_type for each in again] == [each.block_type for each in blocks]
        assert [each.instant for each in again] == [each.instant for each in blocks]
        assert [_deleted(each) for each in again] == [_deleted(each) for each in blocks]
        assert [_written(each) for each in again] == [_written(each) for each in blocks]
        assert stat.num_deletes == sum(len(_deleted(each)) for each in blocks)
        compared += 1
    assert compared > 50


def _deleted(block: LogBlock) -> list[str]:
    return [e.record_key for e in deleted_records(block)] if block.block_type is BlockType.DELETE else []


def _written(block: LogBlock) -> list[tuple[str, Payload]]:
    if block.block_type is not BlockType.HFILE_DATA:
        return []
    decode = RecordDecoder(block.header[HeaderKey.SCHEMA])
    return [(key.decode(), decode(value)) for key, value in block_hfile(block).scan()]


def test_the_configuration_is_the_jvms(jvm_tables: JvmTables) -> None:
    folder = jvm_tables.table("rs_cow_v9_txns_simple_meta")
    config = TableConfig.from_properties(
        parse_properties((folder / ".hoodie/hoodie.properties").read_text(encoding="utf-8"))
    )
    theirs = parse_properties(
        (folder / ".hoodie/metadata/.hoodie/hoodie.properties").read_text(encoding="utf-8")
    )
    assert metadata_table_properties(config) == theirs | {"hoodie.table.timeline.timezone": "LOCAL"}
    assert set(config.metadata_partitions) > set(MetadataPartition) - {MetadataPartition.BLOOM_FILTERS}

    building = config.with_metadata_partitions(["files"], ["record_index", "column_stats"])
    again = TableConfig.from_properties(building.to_properties())
    assert again.metadata_partitions == ("files",)
    assert again.inflight_metadata_partitions == ("column_stats", "record_index")
    assert again.with_metadata_partitions([]).metadata_partitions == ()


def test_the_instants_are_the_jvms(jvm_tables: JvmTables, tmp_path: Path) -> None:
    theirs = Timeline.load(Storage(str(jvm_tables.table("rs_cow_v9_txns_simple_meta") / ".hoodie/metadata")))
    ours = Storage(str(tmp_path))
    for instant in theirs.completed():
        meta = theirs.commit_metadata(instant)
        action = Action.COMPACTION if instant.action is Action.COMMIT else instant.action
        write_instant(
            ours,
            action,
            instant.requested_time,
            instant.completion_time or "",
            meta.operation_type,
            meta.write_stats,
            plan=_requested(theirs, instant),
        )
    again = Timeline.load(ours)
    assert [each.file_name for each in again.completed()] == [each.file_name for each in theirs.completed()]
    for instant in theirs.completed():
        assert _requested(again, instant) == _requested(theirs, instant)
        mine, other = again.commit_metadata(instant), theirs.commit_metadata(instant)
        assert (mine.operation_type, mine.write_stats) == (other.operation_type, other.write_stats)
    inflight = [
        decode(ours.read(each.path)) for each in ours.list(".hoodie/timeline") if _is_logged(each.path)
    ]
    assert all(each["partitionToWriteStats"] == {} for each in inflight)
    assert len(inflight) == 12


def _requested(timeline: Timeline, instant: Instant) -> bytes:
    action = Action.COMPACTION if instant.action is Action.COMMIT else instant.action
    return timeline.read(Instant(instant.requested_time, action, State.REQUESTED))


def _is_logged(path: str) -> bool:
    return path.endswith(".deltacommit.inflight") and "/2026" in path and "162457540" not in path


def test_a_partition_that_is_not_there_is_named(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    with pytest.raises(NotATableError, match="is no metadata table"):
        initialise_file_groups(storage, "files", 1, _FIRST)
    create_metadata_table(storage, TableConfig("t"))
    with pytest.raises(NotATableError, match="has no partition record_index; initialise its file groups"):
        log_changes(storage, MetadataTable(storage), at(1), {"record_index": {"k": None}})


def test_what_is_marked_as_deleted_is_gone(tmp_path: Path) -> None:
    """Hudi marks a deleted bloom filter; it deletes other records by delete blocks."""
    storage, partition = Storage(str(tmp_path)), MetadataPartition.BLOOM_FILTERS
    create_metadata_table(storage, TableConfig("t"))
    initialise_file_groups(storage, partition, partition.default_file_groups, at(0))
    write_instant(storage, Action.DELTA_COMMIT, at(0), at(1), BULK_INSERT, [])
    bloom = StoredBloomFilter("DYNAMIC_V0", at(2), "abc=")
    kept = {bloom_filter_key("p", f"file {number}"): bloom for number in range(9)}
    gone = bloom_filter_key("p", "file 0")
    for tick, changes in ((2, kept), (4, {gone: replace(bloom, footer="", is_deleted=True)})):
        stats = log_changes(storage, MetadataTable(storage), at(tick), {partition: changes})
        write_instant(storage, Action.DELTA_COMMIT, at(tick), at(tick + 1), UPSERT, stats)
    expected = {key: value for key, value in kept.items() if key != gone}
    assert dict(MetadataTable(storage).records(partition)) == expected
    table = MetadataTable(storage)
    stats = [compacted(storage, table, each, at(6)) for each in table.file_slices(partition)]
    assert sum(each.num_writes for each in stats) == 8
    write_instant(storage, Action.COMPACTION, at(6), at(7), COMPACT, stats)
    assert dict(MetadataTable(storage).records(partition)) == expected
    assert MetadataTable(storage).look_up(partition, kept) == expected


def test_file_groups_are_sized_by_their_records() -> None:
    assert estimated_file_groups(0, least=10, most=10_000) == 10
    assert estimated_file_groups(2_000_000, least=1, most=10_000) == 1
    assert estimated_file_groups(10**10, least=10, most=10_000) == 894
    assert estimated_file_groups(10**12, least=10, most=10_000) == 10_000
    assert estimated_file_groups(100, least=0, most=5, record_size=2**40) == 5


def test_keys_are_sorted_in_their_file_groups() -> None:
    keys = ["b", "a", "\U0001f600", "\uffff", "c"]
    groups = by_file_group(keys, 2)
    assert sorted(key for group in groups.values() for key in group) == sorted(keys)
    assert all(group == sorted(group, key=str.encode) for group in groups.values())


_keys = st.sampled_from([f"k{number}" for number in range(12)])
_location = st.builds(
    RecordLocation, st.sampled_from(["p", "q"]), st.just("f-0"), st.integers(0, 9), position=st.none()
)
_steps = st.lists(
    st.one_of(
        st.dictionaries(_keys, st.one_of(st.none(), _location), min_size=1, max_size=6),  # begins
        st.integers(0, 3),  # of those in flight, which one completes
        st.sampled_from(["plan a compaction", "run it"]),
    ),
    max_size=25,
)


@given(_steps)
def test_any_order_of_commits_and_compactions_says_what_a_dictionary_says(steps: list[object]) -> None:
    partition, groups = MetadataPartition.RECORD_INDEX, 3
    with tempfile.TemporaryDirectory() as folder:
        storage, clock = Storage(folder), iter(range(1_000))
        create_metadata_table(storage, TableConfig("t"))
        first = at(next(clock))
        initialise_file_groups(storage, partition, groups, first)
        write_instant(storage, Action.DELTA_COMMIT, first, at(next(clock)), BULK_INSERT, [])
        model: dict[str, Payload] = {}
        in_flight: list[tuple[str, dict[str, Payload | None], list[WriteStat]]] = []
        compaction: str | None = None
        for step in steps:
            if isinstance(step, dict):
                instant = at(next(clock))
                stats = log_changes(storage, MetadataTable(storage), instant, {partition: step})
                in_flight.append((instant, step, stats))
            elif isinstance(step, int) and in_flight:
                instant, changes, stats = in_flight.pop(step % len(in_flight))
                write_instant(storage, Action.DELTA_COMMIT, instant, at(next(clock)), UPSERT, stats)
                model |= {key: value for key, value in changes.items() if value is not None}
                model = {key: value for key, value in model.items() if changes.get(key, value) is not None}
            elif step == "plan a compaction" and compaction is None:
                compaction = at(next(clock))
            elif step == "run it" and compaction is not None:
                table = MetadataTable(storage)
                stats = [compacted(storage, table, each, compaction) for each in table.file_slices(partition)]
                write_instant(storage, Action.COMPACTION, compaction, at(next(clock)), COMPACT, stats)
                compaction = None
            table = MetadataTable(storage)
            assert dict(table.records(partition)) == model
            assert table.look_up(partition, [f"k{number}" for number in range(12)]) == model
            assert len(table.file_slices(partition)) == groups
