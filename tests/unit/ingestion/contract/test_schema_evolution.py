"""Writes that change the columns of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.exceptions import IncompatibleSchemaError, MissingColumnError, WriteConflictError
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.restore import restore
from airflow_provider.services.savepoint import create_savepoint
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.metadata_table.keys import partition_stats_key
from airflow_provider.table.metadata_table.reader import MetadataTable, metadata_storage
from airflow_provider.table.metadata_table.records import ColumnStats, ValueType
from airflow_provider.table.schema import VALIDATE
from airflow_provider.table.timeline.active import instant_path
from airflow_provider.table.timeline.instant import Action, Instant, State, after, now
from airflow_provider.table.timeline.metadata import CommitMetadata, encode_commit_metadata
from tests.ingestion_contract.interleaving import MeetingLock
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild

ADDRESS = pa.struct([("street", pa.string())])
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("v", pa.int32()),
        ("f", pa.float32()),
        ("address", ADDRESS),
        ("tags", pa.list_(pa.struct([("name", pa.string())]))),
        ("by_name", pa.map_(pa.string(), pa.struct([("n", pa.int32())]))),
        ("ts", pa.int64()),
    ]
)


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    made = HudiTable.create(
        str(tmp_path / "t"), name="t", schema=SCHEMA, record_key=["id"], ordering_field="ts"
    )
    ingest_arrow(made, pa.Table.from_pylist([old("a"), old("b")], SCHEMA), "insert")
    return made


def old(key: str, **more: Any) -> dict[str, Any]:
    return {
        "id": key,
        "v": 1,
        "f": 0.5,
        "address": {"street": "s"},
        "tags": [{"name": "t"}],
        "by_name": [("x", {"n": 1})],
        "ts": 1,
    } | more


def with_field(name: str, kind: pa.DataType) -> pa.Schema:
    index = SCHEMA.get_field_index(name)
    field = pa.field(name, kind)
    return SCHEMA.append(field) if index < 0 else SCHEMA.set(index, field)


def shown(table: HudiTable, moment: str | None = None) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in snapshot(HudiTable.open(table.location), moment).to_table().to_pylist()}


NEW = [
    ("extra", pa.string(), "x", None),
    ("v", pa.int64(), 2**40, 1),
    ("v", pa.float64(), 0.25, 1.0),
    ("f", pa.float64(), 1e300, 0.5),
    ("v", pa.string(), "text", "1"),
    (
        "address",
        pa.struct([("street", pa.string()), ("zip", pa.string())]),
        {"street": "n", "zip": "z"},
        {"street": "s", "zip": None},
    ),
    (
        "tags",
        pa.list_(pa.struct([("name", pa.string()), ("at", pa.int64())])),
        [{"name": "n", "at": 3}],
        [{"name": "t", "at": None}],
    ),
    (
        "by_name",
        pa.map_(pa.string(), pa.struct([("n", pa.int32()), ("m", pa.int32())])),
        [("y", {"n": 2, "m": 3})],
        [("x", {"n": 1, "m": None})],
    ),
]


@pytest.mark.parametrize(
    ("column", "kind", "new", "was"), NEW, ids=[f"{row[0]}-{row[1]}"[:24] for row in NEW]
)
def test_new_and_wider_columns_are_taken_up(
    table: HudiTable, column: str, kind: pa.DataType, new: Any, was: Any
) -> None:
    [then] = table.timeline().commits()
    batch = pa.Table.from_pylist([old("a", ts=2, **{column: new})], with_field(column, kind))
    result = ingest_arrow(table, batch)
    assert result["schema_changes"], "the load says what it has changed"
    assert {key: row[column] for key, row in shown(table).items()} == {"a": new, "b": was}
    assert HudiTable.open(table.location).schema.field(column).type == kind
    past = shown(table, then.requested_time)["b"]
    assert past == old("b"), "the past has the columns of then"


def test_narrower_values_fit_into_wider_columns_and_change_nothing(table: HudiTable) -> None:
    wide = pa.Table.from_pylist([old("a", ts=2, v=2**40)], with_field("v", pa.int64()))
    ingest_arrow(table, wide)
    result = ingest_arrow(table.location, pa.Table.from_pylist([old("b", ts=3, v=7)], SCHEMA))
    assert not result["schema_changes"]
    assert {key: row["v"] for key, row in shown(table).items()} == {"a": 2**40, "b": 7}


def test_what_would_lose_values_is_refused(table: HudiTable) -> None:
    with pytest.raises(IncompatibleSchemaError, match="column 'v'"):
        ingest_arrow(table, pa.Table.from_pylist([old("a", v=True)], with_field("v", pa.bool_())))
    assert shown(table)["a"]["v"] == 1


@pytest.mark.parametrize(
    ("of_the_table", "of_the_job", "is_filled"),
    [
        (None, None, True),
        (True, None, False),
        (False, None, True),
        (None, True, False),
        (None, False, True),
        (True, False, True),
        (False, True, False),
    ],
)
def test_rows_that_lack_a_column_are_refused_where_the_schema_is_validated_even_if_they_would_be_filled(
    tmp_path: Path, of_the_table: bool | None, of_the_job: bool | None, is_filled: bool
) -> None:
    said = {"hoodie.write.set.null.for.missing.columns": True}
    if of_the_table is not None:
        said[VALIDATE] = of_the_table
    table = HudiTable.create(
        str(tmp_path / "t"),
        name="t",
        schema=SCHEMA,
        record_key=["id"],
        ordering_field="ts",
        hudi_options=said,
    )
    ingest_arrow(table, pa.Table.from_pylist([old("a")], SCHEMA), "insert")
    lacking = pa.Table.from_pylist([old("b", ts=2)], SCHEMA).drop_columns(["v"])
    if is_filled:
        ingest_arrow(table, lacking, validate_schema=of_the_job)
        assert shown(table)["b"] == old("b", ts=2, v=None)
        return
    with pytest.raises(MissingColumnError, match=f"'v'.* and not {VALIDATE}=true"):
        ingest_arrow(table, lacking, validate_schema=of_the_job)
    assert shown(table) == {"a": old("a")}
    assert table.timeline().pending() == ()
    ingest_arrow(table, pa.Table.from_pylist([old("b")], SCHEMA))
    assert shown(table).keys() == {"a", "b"}, "complete rows are taken"


def test_rows_that_lack_a_column_are_refused_by_name_or_filled_on_demand(table: HudiTable) -> None:
    batch = pa.Table.from_pylist([old("a", ts=2)], SCHEMA).drop_columns(["v"])
    with pytest.raises(MissingColumnError, match=r"'v'.*hoodie\.write\.set\.null\.for\.missing\.columns"):
        ingest_arrow(table, batch)
    assert shown(table)["a"]["v"] == 1
    ingest_arrow(table, batch, set_null_for_missing_columns=True)
    assert {key: row["v"] for key, row in shown(table).items()} == {"a": None, "b": 1}


def test_a_column_that_came_since_the_last_load_of_the_same_object_is_missed(table: HudiTable) -> None:
    """The object remembers the columns of its last load, and detects the new one before it writes."""
    ingest_arrow(table, pa.Table.from_pylist([old("a", ts=2)], SCHEMA))
    theirs = pa.Table.from_pylist([old("b", ts=2, theirs="t")], with_field("theirs", pa.string()))
    ingest_arrow(table.location, theirs)
    commits = table.timeline().commits()
    with pytest.raises(MissingColumnError, match="'theirs'"):
        ingest_arrow(table, pa.Table.from_pylist([old("a", ts=3)], SCHEMA))
    timeline = table.timeline()
    assert timeline.commits() == commits
    assert timeline.pending() == ()
    assert {key: row["theirs"] for key, row in shown(table).items()} == {"a": None, "b": "t"}


def test_two_loads_that_change_columns_at_once_both_keep_theirs(table: HudiTable) -> None:
    def meanwhile() -> None:
        batch = pa.Table.from_pylist([old("b", ts=2, theirs="t")], with_field("theirs", pa.string()))
        ingest_arrow(table.location, batch)

    batch = pa.Table.from_pylist([old("c", ts=2, mine="m")], with_field("mine", pa.string()))
    ingest_arrow(table, batch, "insert", lock=MeetingLock(meanwhile), on_conflict="rebase")
    found = {key: (row["mine"], row["theirs"]) for key, row in shown(table).items()}
    assert found == {"a": (None, None), "b": (None, "t"), "c": ("m", None)}


def partition_stats_of(table: HudiTable, column: str) -> ColumnStats:
    found = MetadataTable(metadata_storage(table.storage)).look_up(
        "partition_stats", [partition_stats_key(column, "")]
    )
    [stats] = found.values()
    assert isinstance(stats, ColumnStats)
    return stats


def bounds(table: HudiTable, column: str) -> tuple[Any, Any, int]:
    stats = partition_stats_of(table, column)
    low, high = (each and each.value for each in (stats.min_value, stats.max_value))
    return low, high, stats.null_count


def build_statistics(table: HudiTable) -> None:
    schedule_index(table, ["files", "column_stats", "partition_stats"])
    run_index(table)


def load(table: HudiTable, schema: pa.Schema, *rows: dict[str, Any]) -> None:
    ingest_arrow(table.location, pa.Table.from_pylist(list(rows), schema), "bulk_insert")


@pytest.mark.parametrize(
    ("kind", "new", "told"),
    [
        (pa.int64(), 2**40, (-5, 2**40, ValueType.LONG)),
        (pa.float64(), 0.25, (-5.0, 30.0, ValueType.DOUBLE)),
        (pa.string(), "2a", ("-5", "30", ValueType.STRING)),
    ],
    ids=str,
)
@pytest.mark.parametrize("is_built_first", [True, False])
def test_statistics_of_a_partition_are_of_one_type(
    table: HudiTable, kind: pa.DataType, new: Any, told: tuple[Any, Any, ValueType], is_built_first: bool
) -> None:
    """The JVM's Hudi cannot merge statistics of two types: ClassCastException."""
    load(table, SCHEMA, old("c", v=30), old("d", v=-5))
    if is_built_first:
        build_statistics(table)
    load(table, with_field("v", kind), old("e", v=new))
    if not is_built_first:
        build_statistics(table)
    low, high, value_type = told
    assert bounds(table, "v") == (low, high, 0)
    stats = partition_stats_of(table, "v")
    assert stats.value_type is value_type
    load(table, with_field("v", kind), old("f", v=new))
    assert bounds(table, "v") == (low, high, 0), "what comes later only widens them"


def test_statistics_of_a_partition_count_the_rows_that_are_older_than_a_column(table: HudiTable) -> None:
    """Otherwise the JVM's Hudi skips these rows in a query for nulls."""
    load(table, with_field("extra", pa.int64()), old("e", extra=7))
    build_statistics(table)
    assert bounds(table, "extra") == (7, 7, 2)


def test_statistics_of_a_partition_cover_what_a_restore_brings_back(table: HudiTable) -> None:
    build_statistics(table)
    [first, *_] = table.timeline().commits()
    create_savepoint(table, first.requested_time)
    ingest_arrow(table.location, pa.Table.from_pylist([old("a", v=5, ts=2), old("b", v=6, ts=2)], SCHEMA))
    wide = with_field("v", pa.int64())
    ingest_arrow(table.location, pa.Table.from_pylist([old("a", v=7, ts=3), old("b", v=9, ts=3)], wide))
    assert bounds(table, "v") == (7, 9, 0)
    restore(HudiTable.open(table.location), first.requested_time)
    low, high, _ = bounds(table, "v")
    assert low <= 1 <= high
    assert partition_stats_of(table, "v").value_type is ValueType.INT


def test_two_loads_at_once_that_are_the_first_with_a_wider_column(table: HudiTable) -> None:
    build_statistics(table)
    wide = with_field("v", pa.int64())

    def meanwhile() -> None:
        load(table, wide, old("e", v=2**41))

    batch = pa.Table.from_pylist([old("f", v=-(2**41))], wide)
    lock = MeetingLock(meanwhile)
    with pytest.raises(WriteConflictError, match="requested later"):
        ingest_arrow(table.location, batch, "bulk_insert", lock=lock, on_conflict="rebase")
    ingest_arrow(table.location, batch, "bulk_insert")
    assert bounds(table, "v") == (-(2**41), 2**41, 0)


def test_two_such_loads_of_different_partitions_are_in_nobodys_way(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("part", pa.string()), ("v", pa.int32())])
    made = HudiTable.create(
        str(tmp_path / "t"), name="t", schema=schema, record_key=["id"], partition_by=["part"]
    )
    rows = [{"id": part, "part": part, "v": 1} for part in "pq"]
    load(made, schema, *rows)
    build_statistics(made)
    wide = schema.set(2, pa.field("v", pa.int64()))
    batch = pa.Table.from_pylist([{"id": "c", "part": "p", "v": 2**40}], wide)
    lock = MeetingLock(lambda: load(made, wide, {"id": "d", "part": "q", "v": 2**41}))
    ingest_arrow(made.location, batch, "bulk_insert", lock=lock, on_conflict="rebase")
    assert {key: row["v"] for key, row in shown(made).items()} == {"p": 1, "q": 1, "c": 2**40, "d": 2**41}
    assert_indexes_equal_a_rebuild(HudiTable.open(made.location))


def test_what_a_clustering_says_of_the_columns_changes_none(table: HudiTable) -> None:
    """The JVM's clustering names the columns of its plan, to which other writers have added columns."""
    [first] = table.timeline().commits()
    said = table.timeline().commit_metadata(first).extra_metadata
    ingest_arrow(table, pa.Table.from_pylist([old("a", ts=2, extra=7)], with_field("extra", pa.int64())))
    requested = now()
    metadata = encode_commit_metadata(CommitMetadata("CLUSTER", extra_metadata=said), Action.REPLACE_COMMIT)
    clustered = Instant(requested, Action.REPLACE_COMMIT, State.COMPLETED, after(requested))
    table.storage.put(instant_path(clustered), metadata)
    assert "extra" in table.schema.names
    assert shown(table)["a"]["extra"] == 7
