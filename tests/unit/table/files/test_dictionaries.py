"""String columns with few values are read as dictionaries, written as such, and stay the same strings."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from airflow_provider.table.file_names import new_file_id
from airflow_provider.table.files import BaseFileWriter, read_base_file
from airflow_provider.table.schema import TableSchema, arrow_to_avro, with_meta_columns
from airflow_provider.table.storage import Storage

COUNT = 4_000
CODES = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema(
    {
        "few": pa.string(),
        "many": pa.string(),
        "nulls": pa.string(),
        "runs": pa.string(),
        "nothing": pa.string(),
        "price": pa.float64(),
        "inner": pa.struct({"few": pa.string()}),
    }
)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path))


def rows(first: int = 0, count: int = COUNT) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "few": [f"value {n % 3}" for n in numbers],
            "many": [f"{n}" for n in numbers],
            "nulls": [None if n % 5 else f"value {n % 2}" for n in numbers],
            "runs": [f"run {n // 1000}" for n in numbers],
            "nothing": [None] * count,
            "price": [float(n) for n in numbers],
            "inner": [{"few": f"{n % 2}"} for n in numbers],
        },
        SCHEMA,
    )


def written(storage: Storage, *parts: pa.Table, row_group_rows: int = COUNT) -> str:
    """A file of these parts; those with Hudi's columns are preserved."""
    with BaseFileWriter(
        storage,
        partition_path="",
        file_id=new_file_id(),
        write_token="0-0-0",
        instant="20240101000000000",
        schema=SCHEMA,
        row_group_rows=row_group_rows,
    ) as writer:
        for part in parts:
            if "_hoodie_record_key" in part.column_names:
                writer.write_preserved(part)
            else:
                writer.write(part, pc.cast(part["price"], pa.int64()).cast(pa.string()))
        return writer.close().path


def read(storage: Storage, path: str, *, dictionaries: bool = True) -> pa.Table:
    return read_base_file(
        storage,
        path,
        schema=TableSchema(arrow_to_avro(with_meta_columns(SCHEMA), "t")),
        dictionaries=dictionaries,
    )


def dictionaries_in(rows: pa.Table) -> list[str]:
    return [field.name for field in rows.schema if field.name in SCHEMA.names and field.type == CODES]


def footers(storage: Storage, *paths: str) -> list[list[object]]:
    """What is in the footers, by row group and column, apart from the sizes."""
    found = []
    for path in paths:
        metadata = pq.read_metadata(f"{storage.root}/{path}")
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        chunks = [group.column(column) for group in groups for column in range(group.num_columns)]
        found.append(
            [
                (each.path_in_schema, each.num_values, each.encodings, each.statistics.to_dict())
                if each.path_in_schema != "_hoodie_file_name"
                else each.num_values
                for each in chunks
                if each.statistics is not None
            ]
        )
    return found


def test_strings_with_few_values_come_as_dictionaries_if_the_caller_wants_it(storage: Storage) -> None:
    path = written(storage, rows())
    assert dictionaries_in(read(storage, path)) == ["few", "nulls", "runs", "nothing"]
    plain = read(storage, path, dictionaries=False)
    assert dictionaries_in(plain) == []
    assert read(storage, path).to_pylist() == plain.to_pylist()


@pytest.mark.parametrize("row_group_rows", [1000, COUNT, 2 * COUNT])
def test_a_file_is_the_same_from_dictionaries_and_from_strings(storage: Storage, row_group_rows: int) -> None:
    sources = [written(storage, rows()), written(storage, rows(COUNT), row_group_rows=1000)]
    paths = [
        written(
            storage,
            *(read(storage, path, dictionaries=dictionaries) for path in sources),
            row_group_rows=row_group_rows,
        )
        for dictionaries in (True, False)
    ]
    one, other = footers(storage, *paths)
    assert one == other
    assert all(
        read(storage, path).select(SCHEMA.names).to_pylist()
        == [*rows().to_pylist(), *rows(COUNT).to_pylist()]
        for path in paths
    )


def test_a_row_group_has_only_its_own_values_in_its_dictionary(storage: Storage) -> None:
    path = written(storage, read(storage, written(storage, rows())), row_group_rows=1000)
    file = pq.ParquetFile(f"{storage.root}/{path}", read_dictionary=["runs", "nulls"])
    groups = [file.read_row_group(number) for number in range(file.num_row_groups)]
    assert [group["runs"].chunk(0).dictionary.to_pylist() for group in groups] == [
        [f"run {number}"] for number in range(4)
    ]
    assert all(
        sorted(group["nulls"].chunk(0).dictionary.to_pylist()) == ["value 0", "value 1"] for group in groups
    )


def unlike(kept: pa.Table, changes: Sequence[str]) -> pa.Table:
    """The rows, with some columns as strings."""
    for name in changes:
        at = kept.schema.get_field_index(name)
        kept = kept.set_column(at, name, kept[name].cast(pa.string()))
    return kept


@pytest.mark.parametrize("first", [(), ("few", "nulls"), ("few", "nulls", "runs")])
@pytest.mark.parametrize("second", [(), ("few",), ("few", "nulls", "runs")])
def test_files_of_which_some_have_dictionaries(
    storage: Storage, first: Sequence[str], second: Sequence[str]
) -> None:
    one, other = (read(storage, written(storage, rows(begin))) for begin in (0, COUNT))
    path = written(
        storage, unlike(one, first), unlike(other, second), rows(2 * COUNT, 100), row_group_rows=3000
    )
    expected = [*rows().to_pylist(), *rows(COUNT).to_pylist(), *rows(2 * COUNT, 100).to_pylist()]
    assert read(storage, path).select(SCHEMA.names).to_pylist() == expected


def test_a_file_that_begins_anew_has_the_same_dictionaries(storage: Storage) -> None:
    """The first row group has statistics of the prices, which a later one with NaN must not have."""
    kept = read(storage, written(storage, rows()))
    price = kept.schema.get_field_index("price")
    late = kept.set_column(price, "price", pa.array([nan] * COUNT))
    path = written(storage, kept, late)
    found = read(storage, path)
    assert dictionaries_in(found) == ["few", "nulls", "runs", "nothing"]
    expected = rows().drop_columns(["price"]).to_pylist()
    assert found.select([name for name in SCHEMA.names if name != "price"]).to_pylist() == 2 * expected
