"""Partitions of several file groups: the file groups of existing keys, and of new ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from airflow_provider.table import snapshot
from tests.ingestion_contract.lake import KIB, Lake, LakeTable

SCHEMA = pa.schema(
    {"id": pa.int64(), "sub": pa.string(), "part": pa.string(), "value": pa.int64(), "pad": pa.string()}
)

_RANDOM = np.random.default_rng(7)
SMALL: dict[str, Any] = {"target_file_size": 24 * KIB, "small_file_limit": 16 * KIB}


def rows(ids: range, value: int, part: str = "a", sub: str | None = "x") -> pa.Table:
    # Noise cannot be compressed, so file sizes follow from the number of rows.
    pads = [_RANDOM.bytes(16).hex() for _ in ids]
    count = len(ids)
    columns = {"id": ids, "sub": [sub] * count, "part": [part] * count, "value": [value] * count, "pad": pads}
    return pa.table(columns, SCHEMA)


def values(table: LakeTable) -> dict[tuple[str, int], int]:
    found = snapshot(table.table).to_table(["part", "id", "value"]).to_pylist()
    assert len({(row["part"], row["id"]) for row in found}) == len(found), "a key is there twice"
    return {(row["part"], row["id"]): row["value"] for row in found}


@pytest.fixture
def several(lake: Lake) -> LakeTable:
    """A table: partition ``a`` with some file groups of several hundred rows, ``b`` with one."""
    table = lake.create(SCHEMA, partition_by=["part"])
    table.ingest("bulk_insert", rows(range(1500), 0), **SMALL)
    table.ingest(
        "bulk_insert", pa.concat_tables([rows(range(1500, 3000), 0), rows(range(10), 0, "b")]), **SMALL
    )
    assert len(table.files()["part=a"]) >= 4
    return table


def test_updates_find_their_file_groups_and_inserts_a_place(several: LakeTable) -> None:
    before = several.files()
    batch = pa.concat_tables(
        [rows(range(100, 130), 1), rows(range(2990, 3020), 1), rows(range(5, 15), 1, "b")]
    )
    result = several.ingest("upsert", batch, **SMALL)
    assert (result["rows_inserted"], result["rows_updated"]) == (25, 45)
    expected = {("a", n): 0 for n in range(3000)} | {("b", n): 0 for n in range(10)}
    expected |= {("a", n): 1 for n in [*range(100, 130), *range(2990, 3020)]}
    expected |= {("b", n): 1 for n in range(5, 15)}
    assert values(several) == expected
    several.check()
    assert {file_id for file_id, _ in before["part=a"]} <= {
        file_id for file_id, _ in several.files()["part=a"]
    }


def test_only_file_groups_with_a_hit_are_rewritten(several: LakeTable) -> None:
    result = several.ingest("upsert", rows(range(77, 78), 5), **SMALL)
    assert (result["rows_updated"], result["rows_inserted"], result["files_written"]) == (1, 0, 1)
    assert values(several)[("a", 77)] == 5


def test_new_rows_fill_file_groups_up_and_then_open_new_ones(several: LakeTable) -> None:
    several.ingest("upsert", rows(range(10_000, 13_000), 2), **SMALL)
    assert values(several) == (
        {("a", n): 0 for n in range(3000)}
        | {("b", n): 0 for n in range(10)}
        | {("a", n): 2 for n in range(10_000, 13_000)}
    )
    sizes = [base_file.size for base_file in several.table.view().base_files("part=a")]
    assert max(sizes) < 2 * SMALL["target_file_size"]
    several.check()


def test_the_same_new_key_twice_is_one_row(several: LakeTable) -> None:
    # Hundreds of new keys, each twice, spread over several targets.
    batch = pa.concat_tables([rows(range(9000, 11_000), 1), rows(range(9000, 11_000), 2)])
    result = several.ingest("upsert", batch, **SMALL)
    assert result["rows_inserted"] == 2000
    found = values(several)
    assert {found["a", n] for n in range(9000, 11_000)} == {2}


def test_deletes_find_their_rows(several: LakeTable) -> None:
    keys = pa.concat_tables([rows(range(0, 3000, 10), 0), rows(range(4000, 4100), 0)])
    result = several.ingest("delete", keys.select(["id", "part"]), **SMALL)
    assert (result["rows_deleted"], result["rows_inserted"]) == (300, 0)
    assert values(several) == {("a", n): 0 for n in range(3000) if n % 10} | {("b", n): 0 for n in range(10)}
    several.check()


def test_deleting_nothing_among_several_file_groups(several: LakeTable) -> None:
    result = several.ingest("delete", [{"id": -1, "part": "a"}], **SMALL)
    assert (result["files_written"], result["rows_deleted"]) == (0, 0)
    assert len(values(several)) == 3010


def test_keys_of_several_columns_with_nulls(lake: Lake) -> None:
    table = lake.create(SCHEMA, record_key=["id", "sub"])
    table.ingest("bulk_insert", rows(range(800), 0, sub=None), **SMALL)
    table.ingest("bulk_insert", rows(range(800), 0, sub=""), **SMALL)
    table.ingest("bulk_insert", rows(range(800), 0, sub="y"), **SMALL)
    result = table.ingest(
        "upsert", pa.concat_tables([rows(range(5), 1, sub=None), rows(range(5), 2, sub="")]), **SMALL
    )
    assert (result["rows_updated"], result["rows_inserted"]) == (10, 0)
    found = {(row["id"], row["sub"]): row["value"] for row in table.rows()}
    assert len(found) == 2400
    assert {key: value for key, value in found.items() if value} == (
        {(n, None): 1 for n in range(5)} | {(n, ""): 2 for n in range(5)}
    )


def test_partition_values_of_null(lake: Lake) -> None:
    table = lake.create(SCHEMA, partition_by=["part"])
    for start in (0, 1000):
        table.ingest("bulk_insert", _without_part(rows(range(start, start + 1000), 0)), **SMALL)
    assert len(table.files()["part=__HIVE_DEFAULT_PARTITION__"]) > 1
    result = table.ingest("upsert", _without_part(rows(range(990, 1010), 1)), **SMALL)
    assert (result["rows_updated"], result["rows_inserted"]) == (20, 0)


def _without_part(found: pa.Table) -> pa.Table:
    return found.set_column(2, "part", pa.nulls(found.num_rows, pa.string()))


def test_many_partitions_with_several_columns(lake: Lake) -> None:
    schema = pa.schema(
        {
            "id": pa.int64(),
            "day": pa.date32(),
            "hour": pa.int32(),
            "at": pa.timestamp("us", "UTC"),
            "v": pa.int64(),
        }
    )
    table = lake.create(schema, partition_by=["day", "hour", "at"])
    count = 120
    columns = {
        "id": range(count),
        "day": [n // 3 for n in range(count)],
        "hour": [n % 3 if n % 5 else None for n in range(count)],
        "at": [n % 2 * 86_400_000_000 for n in range(count)],
    }
    batch = pa.table({**columns, "v": [0] * count}, schema)
    result = table.ingest("upsert", batch)
    assert len(result["partitions"]) == len(table.files()) > 100
    table.ingest("upsert", batch.slice(10, 50).set_column(4, "v", pa.array([1] * 50)))
    assert table.rows() == sorted(
        pa.table({**columns, "v": [int(10 <= n < 60) for n in range(count)]}, schema).to_pylist(), key=repr
    )


def test_a_key_that_lives_in_several_file_groups(lake: Lake) -> None:
    # Only an insert makes such keys, and then an upsert writes to all of them.
    table = lake.create(SCHEMA, partition_by=["part"])
    for _ in range(2):
        table.ingest("bulk_insert", rows(range(10), 0))
    result = table.ingest("upsert", rows(range(8, 11), 1))
    assert (result["rows_updated"], result["rows_inserted"]) == (4, 1)
    found = sorted((row["id"], row["value"]) for row in table.rows())
    assert found == sorted([(n, 0) for n in range(8)] * 2 + [(8, 1), (9, 1)] * 2 + [(10, 1)])
