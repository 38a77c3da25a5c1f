"""Tables without a record key: a write generates a key for each row; each engine writes them."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.exceptions import UnsupportedTableError
from airflow_provider.table import snapshot
from tests.ingestion_contract.interleaving import MeetingLock
from tests.ingestion_contract.lake import KIB, Lake, LakeTable, untouched

SCHEMA = pa.schema({"part": pa.string(), "value": pa.int64(), "tags": pa.map_(pa.string(), pa.string())})
KEY = re.compile(r"(\d{17})_\d+_\d+")


def row(value: int, part: str = "a") -> dict[str, Any]:
    return {"part": part, "value": value, "tags": [("of", part)]}


def events(lake: Lake, **options: Any) -> LakeTable:
    """An empty table of two partitions."""
    return lake.create(SCHEMA, None, partition_by=["part"], **options)


def keys(table: LakeTable) -> dict[str, str]:
    """The instant that wrote each record key; each key exists once and contains that instant."""
    names = ["_hoodie_record_key", "_hoodie_commit_time"]
    found = snapshot(table.table, meta_columns=True).to_table(names).to_pylist()
    by_key = {each[names[0]]: each[names[1]] for each in found}
    assert len(by_key) == len(found), "a key is there twice"
    for key, instant in by_key.items():
        match = KEY.fullmatch(key)
        assert match is not None
        assert match[1] == instant
    return by_key


def test_rows_are_added_and_replaced_and_neither_updated_nor_deleted(lake: Lake) -> None:
    table = events(lake)
    assert "hoodie.table.recordkey.fields" not in table.table.config.raw
    first = [row(1), row(1), row(2, "b")]
    written = {table.ingest("insert", first)["instant"]}
    written.add(table.ingest("insert", [row(1), row(3, "b")])["instant"])
    written.add(table.ingest("bulk_insert", [row(4, "b")])["instant"])
    table.check_now([*first, row(1), row(3, "b"), row(4, "b")])
    assert {*keys(table).values()} == written
    assert len(table.files()["part=a"]) == 1, "the second insert has filled the small file group"
    last = table.ingest("insert_overwrite", [row(5, "b"), row(5, "b")])["instant"]
    table.check([row(1), row(1), row(1), row(5, "b"), row(5, "b")])
    assert last in keys(table).values()
    for operation in ("upsert", "delete"):
        with pytest.raises(
            UnsupportedTableError, match=rf"{operation} of table .*no record key.*bulk_insert"
        ):
            untouched(table.location, lambda: table.ingest(operation, [row(1)]))  # noqa: B023
    table.ingest("insert_overwrite_table", [row(6)])
    table.check([row(6)])


def test_equal_rows_in_many_file_groups_have_keys_of_their_own(lake: Lake) -> None:
    table = events(lake)
    small = {"target_file_size": 6 * KIB, "small_file_limit": 5 * KIB}
    table.ingest("bulk_insert", [row(number) for number in range(1000)], **small)
    table.ingest("insert", [row(number // 2, "ab"[number % 2]) for number in range(1000)], **small)
    assert len(table.files()["part=a"]) > 2
    assert len(keys(table)) == 2000
    expected = [*(row(n) for n in range(1000)), *(row(n // 2, "ab"[n % 2]) for n in range(1000))]
    assert table.rows() == sorted(expected, key=repr)


def overtaken(table: LakeTable) -> None:
    """A write that loses one of its file groups, and writes the rows of that file group again."""
    table.ingest("insert", [row(1), row(2, "b")])
    lock = MeetingLock(lambda: table.ingest("insert", [row(6, "b")]))
    rows = [row(3), row(4, "b"), row(5, "c")]
    result = table.ingest("insert", rows, lock=lock, on_conflict="rebase")
    assert result["rebases"] == 1
    table.check_now([row(1), row(2, "b"), *rows, row(6, "b")])
    assert len(keys(table)) == 6


def test_who_is_overtaken_gives_new_keys_to_the_rows_that_it_writes_again(lake: Lake) -> None:
    overtaken(events(lake))
