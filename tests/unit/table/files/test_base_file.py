from __future__ import annotations

import errno
import json
import uuid
from math import nan
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_provider.exceptions import CorruptTableError, IncompatibleSchemaError, StorageFullError
from airflow_provider.table.file_names import base_file_name, new_file_id, parse_base_file_name
from airflow_provider.table.files.base_file_reader import read_base_file, read_footer
from airflow_provider.table.files.base_file_writer import BaseFileWriter, WrittenFile
from airflow_provider.table.files.partition_metadata import write_partition_metadata
from airflow_provider.table.properties import parse_properties
from airflow_provider.table.schema.arrow_avro import META_COLUMNS, avro_to_arrow, conform, with_meta_columns
from airflow_provider.table.storage.storage import Storage
from tests.unit.table.arrow_data import tables
from tests.unit.table.conftest import JvmTables

FIRST, SECOND = "20240101000000000", "20240102000000000"
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.float64())])


def rows(count: int, start: int = 0) -> pa.Table:
    numbers = np.arange(start, start + count)
    names = pa.array(["red", None, "blue"]).take(pa.array(numbers % 3))
    return pa.table({"id": numbers, "name": names, "price": numbers / 7}, schema=SCHEMA)


def keys(table: pa.Table) -> pa.ChunkedArray:
    return table["id"].cast(pa.string())


def writer(
    storage: Storage, instant: str = FIRST, partition: str = "c=a", **options: object
) -> BaseFileWriter:
    arguments = {
        "file_id": new_file_id(),
        "write_token": "3-1-0",
        "schema": SCHEMA,
        "table_name": "t",
    } | options
    return BaseFileWriter(storage, partition_path=partition, instant=instant, **arguments)  # type: ignore[arg-type]


def write(
    storage: Storage, *parts: pa.Table, instant: str = FIRST, partition: str = "c=a", **options: object
) -> WrittenFile:
    with writer(storage, instant, partition, **options) as opened:
        for part in parts:
            opened.write(part, keys(part))
        return opened.close()


@pytest.fixture(params=["local", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return Storage(str(tmp_path / "table") if request.param == "local" else f"memory://{uuid.uuid4()}/table")


def test_names_of_base_files() -> None:
    file_id = new_file_id()
    name = base_file_name(file_id, "3-1-0", FIRST)
    assert name == f"{file_id}_3-1-0_{FIRST}.parquet"
    assert parse_base_file_name(name) == (file_id, "3-1-0", FIRST)
    assert new_file_id() != file_id
    assert uuid.UUID(file_id.removesuffix("-0")).version == 4


@pytest.mark.parametrize(
    "name",
    [
        "a.parquet",
        "a_1-0-1_2024.parquet",
        f"a_{FIRST}.parquet",
        f".a_1-0-1_{FIRST}.parquet",
        f"a_1-0-1_{FIRST}.orc",
    ],
)
def test_other_files_are_no_base_files(name: str) -> None:
    assert parse_base_file_name(name) is None


def test_names_of_jvm_base_files(jvm_tables: JvmTables) -> None:
    for path in jvm_tables.base_files():
        parsed = parse_base_file_name(path.name)
        assert parsed is not None
        assert base_file_name(*parsed) == path.name


def test_new_rows_get_hudis_columns(storage: Storage) -> None:
    written = write(storage, rows(12))
    folder, _, name = written.path.partition("/")
    stored = read_base_file(storage, written.path)
    assert folder == "c=a"
    assert stored.select(SCHEMA.names).equals(rows(12))
    meta = {column: stored[column].to_pylist() for column in META_COLUMNS}
    assert meta == {
        "_hoodie_commit_time": [FIRST] * 12,
        "_hoodie_commit_seqno": [f"{FIRST}_3_{row}" for row in range(12)],
        "_hoodie_record_key": [str(row) for row in range(12)],
        "_hoodie_partition_path": ["c=a"] * 12,
        "_hoodie_file_name": [name] * 12,
    }
    status = storage.stat(written.path)
    assert status is not None
    assert written == WrittenFile(written.path, status.size, 12, "0", "9")


def test_the_file_is_plain_parquet(storage: Storage) -> None:
    written = write(storage, rows(3))
    with storage.open(written.path) as source:
        stored = pq.ParquetFile(source)
        # The file has nothing specific to Arrow: neither dictionaries nor Arrow's schema.
        assert stored.schema_arrow.equals(with_meta_columns(SCHEMA))
        assert b"ARROW:schema" not in stored.metadata.metadata
        assert stored.metadata.row_group(0).column(0).compression == "SNAPPY"


def test_the_footer_says_what_is_in_the_file(storage: Storage) -> None:
    written = write(storage, rows(250), rows(250, start=250))
    footer = read_footer(storage, written.path)
    assert footer.num_rows == 500
    assert (footer.min_key, footer.max_key) == (written.min_key, written.max_key) == ("0", "99")
    assert footer.avro_schema is not None
    assert avro_to_arrow(footer.avro_schema).equals(with_meta_columns(SCHEMA))
    assert json.loads(footer.avro_schema)["namespace"] == "hoodie.t"
    assert footer.bloom is not None
    assert footer.bloom.might_contain(keys(rows(500))).all()
    assert not footer.bloom.might_contain(keys(rows(500, start=500))).any()


def test_small_files_have_small_footers(storage: Storage) -> None:
    assert write(storage, rows(10)).size < 6_000


def test_footers_of_jvm_files_are_read(jvm_tables: JvmTables) -> None:
    storage = Storage(str(jvm_tables.root))
    for path in jvm_tables.base_files():
        relative = path.relative_to(jvm_tables.root).as_posix()
        stored = read_base_file(storage, relative, columns=["_hoodie_record_key"])["_hoodie_record_key"]
        footer = read_footer(storage, relative)
        assert footer.num_rows == len(stored)
        extremes = pc.min_max(stored).as_py()
        assert (footer.min_key, footer.max_key) == (extremes["min"], extremes["max"])
        assert footer.bloom is not None
        assert footer.bloom.might_contain(stored).all()


def test_rewritten_rows_stay_as_they_were(storage: Storage) -> None:
    old = write(storage, rows(10))
    with writer(storage, SECOND) as opened:
        opened.write_preserved(read_base_file(storage, old.path).slice(2, 8))
        opened.write(rows(3, start=100), pa.array(["100", "101", "102"]))
        new = opened.close()
    stored = read_base_file(storage, new.path)
    assert stored.drop_columns(["_hoodie_file_name"]).slice(0, 8).to_pylist() == (
        read_base_file(storage, old.path).drop_columns(["_hoodie_file_name"]).slice(2, 8).to_pylist()
    )
    assert stored["_hoodie_commit_time"].to_pylist() == [FIRST] * 8 + [SECOND] * 3
    assert stored["_hoodie_commit_seqno"].to_pylist()[8:] == [f"{SECOND}_3_{row}" for row in range(3)]
    assert set(stored["_hoodie_file_name"].to_pylist()) == {new.path.rpartition("/")[2]}
    assert (new.rows, new.min_key, new.max_key) == (11, "100", "9")
    footer = read_footer(storage, new.path)
    assert footer.bloom is not None
    assert footer.bloom.might_contain(stored["_hoodie_record_key"]).all()


def test_a_bloom_filter_is_taken_over_until_it_is_too_full(storage: Storage) -> None:
    old = write(storage, rows(1000))
    sizes = set()
    for count, start in [(50, 1000), (500, 1000)]:
        bloom = read_footer(storage, old.path).bloom
        assert bloom is not None
        with writer(storage, SECOND, preserved_bloom=bloom) as opened:
            opened.write_preserved(read_base_file(storage, old.path))
            opened.write(rows(count, start=start), keys(rows(count, start=start)))
            new = opened.close()
        extended = read_footer(storage, new.path).bloom
        assert extended is not None
        assert extended.might_contain(keys(rows(1000 + count))).all()
        assert not extended.might_contain(keys(rows(20_000, start=5000))).any()
        sizes.add(extended.bits == bloom.bits)
    assert sizes == {True, False}


def test_of_keys_that_a_filter_holds_nothing_is_added_to_it(storage: Storage) -> None:
    old = write(storage, rows(1000))
    bloom = read_footer(storage, old.path).bloom
    assert bloom is not None
    brought = rows(100, start=950)  # 50 of them new
    with writer(storage, SECOND, preserved_bloom=bloom) as opened:
        opened.write_preserved(read_base_file(storage, old.path).slice(0, 950))
        opened.write(brought, keys(brought), np.arange(100) < 50)
        new = opened.close()
    extended = read_footer(storage, new.path).bloom
    assert extended is not None
    assert extended.might_contain(keys(rows(1050))).all()
    assert extended.last_row_entries == bloom.last_row_entries + 50


def test_rows_of_several_commits_share_one_dictionary(storage: Storage) -> None:
    old = write(storage, rows(20_000))
    with writer(storage, SECOND) as opened:
        opened.write_preserved(read_base_file(storage, old.path))
        opened.write(rows(20_000), keys(rows(20_000)))
        new = opened.close()
    with storage.open(new.path) as source:
        group = pq.read_metadata(source).row_group(0)
    assert (group.num_rows, group.column(0).path_in_schema) == (40_000, "_hoodie_commit_time")
    assert group.column(0).total_uncompressed_size < 10_000


def test_rows_of_a_jvm_file_are_rewritten(jvm_tables: JvmTables, storage: Storage) -> None:
    for path in jvm_tables.base_files():
        stored = read_base_file(Storage(str(path.parent)), path.name)
        schema = pa.schema([field for field in stored.schema if field.name not in META_COLUMNS])
        with writer(storage, SECOND, schema=schema) as opened:
            opened.write_preserved(stored)
            new = opened.close()
        rewritten = read_base_file(storage, new.path)
        assert rewritten.drop_columns(["_hoodie_file_name"]).to_pylist() == (
            stored.drop_columns(["_hoodie_file_name"]).to_pylist()
        )


def test_rewriting_into_a_grown_schema(storage: Storage) -> None:
    old = write(storage, rows(2))
    wider = pa.schema([("note", pa.string()), *SCHEMA])
    with writer(storage, SECOND, schema=wider) as opened:
        opened.write_preserved(read_base_file(storage, old.path))
        new = opened.close()
    stored = read_base_file(storage, new.path)
    assert stored.column_names == [*META_COLUMNS, "note", "id", "name", "price"]
    assert stored["note"].to_pylist() == [None, None]


def test_numbers_go_on_where_the_task_stopped(storage: Storage) -> None:
    with writer(storage, first_row=8) as opened:
        opened.write(rows(3), keys(rows(3)))
        opened.write(rows(91), keys(rows(91)))
        written = opened.close()
    stored = read_base_file(storage, written.path)["_hoodie_commit_seqno"].to_pylist()
    assert stored == [f"{FIRST}_3_{row}" for row in range(8, 102)]
    assert opened.next_row == 102


def test_many_small_writes_make_few_row_groups(storage: Storage) -> None:
    parts = [rows(7, start) for start in range(0, 350, 7)]
    written = write(storage, *parts, row_group_rows=100)
    with storage.open(written.path) as source:
        metadata = pq.read_metadata(source)
    sizes = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    assert sum(sizes) == 350
    assert len(sizes) <= 7
    assert read_base_file(storage, written.path).select(SCHEMA.names).equals(rows(350))


def test_one_large_write_is_cut_into_row_groups(storage: Storage) -> None:
    written = write(storage, rows(1050), row_group_rows=100)
    stored = read_base_file(storage, written.path)
    assert stored.select(SCHEMA.names).equals(rows(1050))
    assert stored["_hoodie_commit_seqno"][1049].as_py() == f"{FIRST}_3_1049"
    with storage.open(written.path) as source:
        assert pq.read_metadata(source).num_row_groups == 11


def test_only_columns_that_repeat_get_a_dictionary(storage: Storage) -> None:
    written = write(storage, rows(5_000))
    with storage.open(written.path) as source:
        group = pq.read_metadata(source).row_group(0)
    coded = {
        group.column(number).path_in_schema
        for number in range(group.num_columns)
        if group.column(number).has_dictionary_page
    }
    assert coded == {"_hoodie_commit_time", "_hoodie_partition_path", "_hoodie_file_name", "name"}


def test_a_table_without_partitions(storage: Storage) -> None:
    written = write(storage, rows(1), partition="")
    assert "/" not in written.path
    assert read_base_file(storage, written.path)["_hoodie_partition_path"].to_pylist() == [""]


def test_a_file_without_rows(storage: Storage) -> None:
    with writer(storage) as opened:
        opened.write(rows(0), pa.array([], pa.string()))
        written = opened.close()
    assert (written.rows, written.min_key, written.max_key) == (0, None, None)
    footer = read_footer(storage, written.path)
    assert (footer.num_rows, footer.min_key, footer.max_key) == (0, None, None)
    assert read_base_file(storage, written.path).select(SCHEMA.names).schema.equals(SCHEMA)


def test_a_failed_write_leaves_no_file(storage: Storage) -> None:
    opened = writer(storage, row_group_rows=10)

    def fail_half_way() -> None:
        with opened:
            opened.write(rows(20), keys(rows(20)))
            assert storage.stat(opened.path) is not None
            opened.write(pa.table({"id": ["not a number"]}), pa.array(["x"]))

    with pytest.raises(IncompatibleSchemaError):
        fail_half_way()
    assert storage.stat(opened.path) is None


@pytest.fixture(params=["local", "fsspec"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """A folder of a disk, also through another file system class than the local one."""
    if request.param == "local":
        return Storage(str(tmp_path / "table"))
    return Storage("dir://table", {"path": str(tmp_path), "target_protocol": "file"})


@pytest.mark.parametrize("count", [10, 200_000], ids=["at its end", "in the middle"])
def test_a_disk_that_is_full_is_named(disk: Storage, tmp_path: Path, count: int) -> None:
    sink = writer(disk, partition="c=a")
    file = tmp_path / "table" / sink.path
    file.parent.mkdir(parents=True)
    file.symlink_to("/dev/full")  # where nothing can be written
    batch = rows(count)

    def written() -> None:
        with sink:
            sink.write(batch, keys(batch))
            sink.close()

    with pytest.raises(StorageFullError, match=r"no room for .*/c=a/.*No space left.*free space") as raised:
        written()
    assert isinstance(raised.value.__cause__, OSError)
    assert raised.value.__cause__.errno == raised.value.details["errno"] == errno.ENOSPC
    assert disk.url(sink.path) in str(raised.value)
    assert not file.is_symlink(), "the file is deleted"


def test_another_error_of_the_storage_is_not_hidden(storage: Storage) -> None:
    sink = writer(storage, partition="c=a")
    storage.put("c=a", b"in the way")
    batch = rows(10)

    def written() -> None:
        with sink:
            sink.write(batch, keys(batch))
            sink.close()

    with pytest.raises((NotADirectoryError, FileExistsError)):  # of a local disk, of memory
        written()


def test_keys_and_rows_must_agree(storage: Storage) -> None:
    with writer(storage) as opened:
        with pytest.raises(ValueError, match="3 rows, but 2 record keys"):
            opened.write(rows(3), pa.array(["a", "b"]))
        with pytest.raises(ValueError, match=r"1 record keys of .* are null"):
            opened.write(rows(2), pa.array(["a", None]))
        assert opened.close().rows == 0


def test_what_is_no_parquet_file_is_named(storage: Storage) -> None:
    storage.put("c=a/x.parquet", b"not parquet at all")
    with pytest.raises(CorruptTableError, match=r"c=a/x\.parquet is not a Parquet file"):
        read_footer(storage, "c=a/x.parquet")
    with pytest.raises(FileNotFoundError):
        read_footer(storage, "c=a/y.parquet")


@pytest.mark.parametrize(("partition", "depth"), [("", "0"), ("c=a", "1"), ("c=a/d=b", "2")])
def test_partitions_are_marked_once(storage: Storage, partition: str, depth: str) -> None:
    assert write_partition_metadata(storage, partition, FIRST)
    assert not write_partition_metadata(storage, partition, SECOND)
    text = storage.read(f"{partition}/.hoodie_partition_metadata".lstrip("/")).decode()
    assert parse_properties(text) == {"commitTime": FIRST, "partitionDepth": depth}


def test_partition_marks_of_the_jvm(jvm_tables: JvmTables) -> None:
    root = jvm_tables.table("rs_cow_v9_txns_simple_nometa")
    theirs = parse_properties((root / "region=eu/.hoodie_partition_metadata").read_text())
    assert set(theirs) == {"commitTime", "partitionDepth"}
    assert theirs["partitionDepth"] == "1"


@settings(max_examples=60)
@given(table=tables(), cut=st.integers(0, 6))
def test_any_rows_survive_a_file(table: pa.Table, cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    storage = Storage(str(tmp_path_factory.mktemp("any")))
    record_keys = pa.array([f"k{row}" for row in range(table.num_rows)], pa.string())
    with writer(storage, schema=table.schema) as opened:
        for part, part_keys in [(table[:cut], record_keys[:cut]), (table[cut:], record_keys[cut:])]:
            opened.write(part, part_keys)
        written = opened.close()
    stored = read_base_file(storage, written.path)
    assert conform(stored, table.schema).to_pylist() == table.to_pylist()
    with writer(storage, SECOND, schema=table.schema) as opened:
        opened.write_preserved(stored)
        again = opened.close()
    rewritten = read_base_file(storage, again.path).select(table.column_names)
    assert rewritten.to_pylist() == table.to_pylist()


@pytest.mark.parametrize("prices", [[1.0, nan, 1.0, 1.0], [1.0, 1.0, 1.0, nan]], ids=["at once", "later"])
def test_no_reader_loses_what_is_not_a_number(storage: Storage, prices: list[float]) -> None:
    data = rows(4).set_column(2, "price", [prices])
    one = data.slice(0, 1)
    written = write(storage, *[data.slice(begin, 2) for begin in (0, 2)], row_group_rows=2)
    numbers = write(storage, one, one)
    filesystem, base = storage.arrow()
    dataset = ds.dataset(f"{base}/{written.path}", filesystem=filesystem)
    for where in (pc.is_nan(pc.field("price")), pc.field("price") != 1.0, ~(pc.field("price") < 2.0)):
        assert dataset.to_table(filter=where)["id"].to_pylist() == [prices.index(nan)]
    assert read_base_file(storage, written.path)["id"].to_pylist() == [0, 1, 2, 3]
    assert statistics_of(storage, written.path) == {*META_COLUMNS, "id", "name"}
    assert statistics_of(storage, numbers.path) == {*META_COLUMNS, "id", "name", "price"}


def test_a_file_that_begins_anew_is_the_same(storage: Storage) -> None:
    flags = pa.list_(pa.field("element", pa.bool_(), nullable=False))
    named = pa.map_(pa.string(), pa.field("value", pa.bool_(), nullable=False))
    never_null = [("flags", flags), ("named", named)]
    inner = pa.struct([pa.field(name, kind, nullable=False) for name, kind in never_null])
    nothing = pa.schema([("nothing", pa.struct([pa.field("inner", inner, nullable=False)]))])

    @example(data=pa.Table.from_pylist([{"nothing": None}], schema=nothing))
    @given(data=tables().filter(len))
    @settings(max_examples=15)
    def is_the_same(data: pa.Table) -> None:
        told = data.append_column("price", pa.array([1.0] * data.num_rows))
        late = data.append_column("price", pa.array([nan] * data.num_rows))
        numbered = pa.array(map(str, range(data.num_rows)))
        with writer(storage, schema=told.schema, row_group_rows=data.num_rows) as opened:
            opened.write(told, numbered)
            opened.write(late, numbered)
            path = opened.close().path
        again = read_base_file(storage, path).drop_columns([*META_COLUMNS, "price"])
        assert repr(again.to_pylist()) == repr([*data.to_pylist(), *data.to_pylist()])  # nan is not nan

    is_the_same()


def statistics_of(storage: Storage, path: str) -> set[str]:
    """The columns for which some row group has smallest and largest values."""
    filesystem, base = storage.arrow()
    metadata = pq.read_metadata(f"{base}/{path}", filesystem=filesystem)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    chunks = [group.column(number) for group in groups for number in range(group.num_columns)]
    return {chunk.path_in_schema for chunk in chunks if chunk.is_stats_set and chunk.statistics.has_min_max}
