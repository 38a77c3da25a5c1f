"""Tables whose properties decide how versions are merged; each engine writes them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.exceptions import UnsupportedTableError
from airflow_provider.table import snapshot
from airflow_provider.table.properties import PROPERTIES_PATH, dump_properties, parse_properties
from tests.ingestion_contract.lake import Lake, LakeTable, in_order, untouched
from tests.ingestion_contract.record_index import build, check_index

SCHEMA = pa.schema(
    {
        "id": pa.string(),
        "part": pa.string(),
        "value": pa.int64(),
        "name": pa.string(),
        "ts": pa.int64(),
        "seq": pa.int32(),
        "op": pa.string(),
        "_hoodie_is_deleted": pa.bool_(),
        "raw": pa.binary(),
    }
)
MODE = "hoodie.record.merge.mode"
ORDERING = "hoodie.table.ordering.fields"
PARTIAL = "hoodie.table.partial.update.mode"
PROPERTY = "hoodie.record.merge.property."
FILLS_MISSING_COLUMNS = {"hoodie__write__set__null__for__missing__columns": "true"}
MODELS = "org.apache.hudi.common.model"


def table_with(lake: Lake, schema: pa.Schema = SCHEMA, **properties: str) -> LakeTable:
    """A table with the ordering field ``ts`` and these properties, given as Python names."""
    table = lake.create(schema, partition_by=["part"], ordering_field="ts")
    set_properties(table, {name.replace("__", "."): value for name, value in properties.items()})
    return table


def set_properties(table: LakeTable, properties: dict[str, str]) -> None:
    storage = table.table.storage
    found = parse_properties(storage.read(PROPERTIES_PATH).decode()) | properties
    storage.put(PROPERTIES_PATH, dump_properties(found).encode())


def row(id_: str, value: int | None = 0, ts: int | None = 10, **more: Any) -> dict[str, Any]:
    empty = {"name": "n", "seq": 0, "op": None, "_hoodie_is_deleted": None, "raw": b"r"}
    return {"id": id_, "part": "a", "value": value, "ts": ts} | empty | more


def without(rows: list[dict[str, Any]], *ids: str) -> list[dict[str, Any]]:
    return [each for each in rows if each["id"] not in ids]


START = [row(id_) for id_ in "12345"]


@pytest.fixture
def started(lake: Lake) -> Any:
    def make(**properties: str) -> LakeTable:
        table = table_with(lake, **properties)
        table.ingest("upsert", START)
        return table

    return make


def test_by_commit_time_the_later_write_wins_whatever_it_is_ordered_by(started: Any) -> None:
    table = started(hoodie__record__merge__mode="COMMIT_TIME_ORDERING")
    table.ingest("upsert", [row("1", 1, ts=3), row("2", 1, ts=9), row("2", 2, ts=1)])
    table.check([row("1", 1, ts=3), row("2", 2, ts=1), *without(START, "1", "2")])
    table.ingest("delete", [{"id": "3", "part": "a", "ts": 1}])
    table.check([row("1", 1, ts=3), row("2", 2, ts=1), *without(START, "1", "2", "3")])


def test_by_commit_time_nobody_needs_the_ordering_column(started: Any) -> None:
    table = started(hoodie__record__merge__mode="COMMIT_TIME_ORDERING", **FILLS_MISSING_COLUMNS)
    table.ingest("upsert", [{"id": "1", "part": "a", "value": 7}])
    changed = {**dict.fromkeys(SCHEMA.names), "id": "1", "part": "a", "value": 7}
    table.check([changed, *without(START, "1")])


def test_of_two_ordering_fields_the_first_decides_before_the_second(started: Any) -> None:
    table = started(hoodie__table__ordering__fields="ts,seq")
    batch = [
        row("1", 1, seq=-1),
        row("2", 1, seq=1),
        row("3", 1, ts=11, seq=-5),
        row("4", 1, ts=9, seq=5),
        row("5", 1, seq=0),
    ]
    table.ingest("upsert", batch)
    # hudi-rs reads no table of several ordering fields.
    assert table.rows() == in_order([batch[1], batch[2], batch[4], *without(START, "2", "3", "5")])
    twice = [row("6", 1, seq=3), row("6", 2, seq=2), row("7", 1, seq=None), row("7", 2, seq=-9)]
    table.ingest("upsert", twice)
    left = [batch[1], batch[2], batch[4], twice[0], twice[3], *without(START, "2", "3", "5")]
    assert table.rows() == in_order(left)


def test_what_is_deleted_in_an_upsert_goes_by_the_order_too(started: Any) -> None:
    table, gone = started(), {"_hoodie_is_deleted": True}
    batch = [row("1", ts=10, **gone), row("2", ts=9, **gone), row("3", 1, _hoodie_is_deleted=False)]
    result = table.ingest("upsert", [*batch, row("9", **gone)])
    assert [result[f"rows_{what}"] for what in ("inserted", "updated", "deleted")] == [0, 1, 1]
    table.check([batch[2], *without(START, "1", "3")])
    # In one batch, the newest version counts.
    both = [row("4", ts=20, **gone), row("4", 1, ts=15), row("5", ts=15, **gone), row("5", 1, ts=20)]
    table.ingest("upsert", both)
    table.check([batch[2], both[3], *without(START, "1", "3", "4", "5")])


@pytest.mark.parametrize("operation", ["insert", "insert_overwrite_table"])
def test_what_is_deleted_is_not_inserted(started: Any, operation: str) -> None:
    table = started()
    table.ingest(operation, [row("8"), row("9", _hoodie_is_deleted=True)])
    table.check([row("8"), *(START if operation == "insert" else [])])


def test_a_column_and_a_marker_of_ones_own_delete(started: Any) -> None:
    properties = {
        f"{PROPERTY}hoodie.payload.delete.field": "op",
        f"{PROPERTY}hoodie.payload.delete.marker": "D",
    }
    table = started()
    set_properties(
        table, properties | {"hoodie.table.legacy.payload.class": f"{MODELS}.DefaultHoodieRecordPayload"}
    )
    table.ingest("upsert", [row("1", op="D"), row("2", 1, op="U"), row("3", ts=1, op="D"), row("9", op="D")])
    table.check([row("2", 1, op="U"), *without(START, "1", "2")])


def test_what_an_upsert_deletes_leaves_the_record_index(started: Any) -> None:
    table = started()
    build(table, "record_index")
    table.ingest(
        "upsert", [row("1", _hoodie_is_deleted=True), row("2", 1), row("9", _hoodie_is_deleted=True)]
    )
    check_index(table)
    table.ingest("upsert", [row("1", 1, part="b")])  # the key may come back, in another partition
    check_index(table)
    table.check_now([row("1", 1, part="b"), row("2", 1), *without(START, "1", "2")])


def test_aws_dms_deletes_by_commit_time(started: Any) -> None:
    table = started()
    set_properties(
        table,
        {
            MODE: "COMMIT_TIME_ORDERING",
            "hoodie.table.legacy.payload.class": f"{MODELS}.AWSDmsAvroPayload",
            f"{PROPERTY}hoodie.payload.delete.field": "op",
            f"{PROPERTY}hoodie.payload.delete.marker": "D",
        },
    )
    table.ingest("upsert", [row("1", ts=1, op="D"), row("2", 1, ts=1, op="U")])
    table.check([row("2", 1, ts=1, op="U"), *without(START, "1", "2")])


def test_nulls_of_the_newer_version_say_nothing(started: Any) -> None:
    table = started(hoodie__table__partial__update__mode="IGNORE_DEFAULTS")
    before = {each["id"]: each for each in commit_times(table)}
    table.ingest("upsert", [row("1", None, 11, name="new"), row("2", None, 9), row("6", None, name=None)])
    table.check([row("1", 0, 11, name="new"), row("6", None, name=None), *without(START, "1")])
    after = {each["id"]: each for each in commit_times(table)}
    assert after["2"] == before["2"], "what says nothing new is not written again"
    # A late version fills the nulls of the newer one.
    table.ingest("upsert", [row("6", 5, 1, name="late")])
    table.check([row("1", 0, 11, name="new"), row("6", 5, name="late"), *without(START, "1")])
    assert {each["id"]: each for each in commit_times(table)}["6"] != after["6"]


def test_versions_of_one_batch_fill_each_other_in_their_order(started: Any) -> None:
    table = started(hoodie__table__partial__update__mode="IGNORE_DEFAULTS")
    versions = [row("1", 1, 20, name=None), row("1", None, 30, name="b"), row("1", 3, 25, name="c", op="x")]
    table.ingest("upsert", [*versions, row("7", None, name="only"), row("7", 7, name=None)])
    table.check([row("1", 1, 30, name="b", op="x"), row("7", 7, name="only"), *without(START, "1")])


def test_columns_that_do_not_come_keep_their_values(started: Any) -> None:
    table = started(hoodie__table__partial__update__mode="IGNORE_DEFAULTS", **FILLS_MISSING_COLUMNS)
    table.ingest("upsert", [{"id": "1", "part": "a", "ts": 12, "name": "x"}])
    table.check([row("1", 0, 12, name="x"), *without(START, "1")])


def test_a_deletion_keeps_no_values_and_leaves_none(started: Any) -> None:
    table = started(hoodie__table__partial__update__mode="IGNORE_DEFAULTS")
    table.ingest("upsert", [row("1", None, 20, _hoodie_is_deleted=True), row("1", None, 30)])
    table.check([row("1", 0, 30), *without(START, "1")])
    table.ingest(
        "upsert", [row("2", None, 20, _hoodie_is_deleted=True), row("3", 1, 5, _hoodie_is_deleted=True)]
    )
    table.check([row("1", 0, 30), *without(START, "1", "2")])


def test_by_commit_time_nulls_say_nothing_either(started: Any) -> None:
    table = started(
        hoodie__record__merge__mode="COMMIT_TIME_ORDERING",
        hoodie__table__partial__update__mode="IGNORE_DEFAULTS",
    )
    table.ingest("upsert", [row("1", None, 1, name="x")])
    table.check([row("1", 0, 1, name="x"), *without(START, "1")])


def test_a_value_that_is_unavailable_keeps_the_older_one(started: Any) -> None:
    table, marker = started(hoodie__table__partial__update__mode="FILL_UNAVAILABLE"), "__unavailable"
    set_properties(table, {f"{PROPERTY}hoodie.write.partial.update.unavailable.value": marker})
    batch = [row("1", 1, name=marker, raw=marker.encode()), row("2", None, name=None), row("6", name=marker)]
    table.ingest("upsert", batch)
    table.check([row("1", 1), *batch[1:], *without(START, "1", "2")])


def commit_times(table: LakeTable) -> list[dict[str, Any]]:
    rows = snapshot(table.table, meta_columns=True).to_table(columns=["id", "_hoodie_commit_time"])
    return list(rows.to_pylist())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (MODE, "CUSTOM"),
        (MODE, "SOMETHING_NEW"),
        ("hoodie.record.merge.strategy.id", "00000000-0000-0000-0000-000000000000"),
        ("hoodie.compaction.payload.class", "com.example.OurPayload"),
        ("hoodie.table.legacy.payload.class", "com.example.OurPayload"),
        (PARTIAL, "KEEP_VALUES"),
        (f"{PROPERTY}com.example.option", "x"),
        (f"{PROPERTY}hoodie.payload.delete.field", "op"),
        (f"{PROPERTY}hoodie.payload.delete.marker", "D"),
        ("hoodie.table.cdc.enabled", "true"),
        ("hoodie.populate.meta.fields", "false"),
        ("hoodie.table.keygenerator.type", "CUSTOM"),
        ("hoodie.table.keygenerator.type", "TIMESTAMP"),
    ],
)
def test_what_is_not_known_is_refused_and_read(started: Any, key: str, value: str) -> None:
    table = started()
    set_properties(table, {key: value})
    for operation in ("upsert", "insert", "delete", "bulk_insert"):
        with pytest.raises(UnsupportedTableError) as refused:
            untouched(table.location, lambda: table.ingest(operation, [row("1", 1)]))  # noqa: B023
        assert refused.value.details["property"].startswith(key)
        assert key in str(refused.value)
        assert "write it with the Hudi that made it" in str(refused.value) or "set both" in str(refused.value)
    assert table.rows() == in_order(START)


def test_a_marker_in_a_column_that_reads_otherwise_in_java_is_refused(lake: Lake) -> None:
    properties = {
        f"{PROPERTY}hoodie.payload.delete.field": "op",
        f"{PROPERTY}hoodie.payload.delete.marker": "1",
    }
    table = table_with(lake, SCHEMA.set(6, pa.field("op", pa.float64())))
    set_properties(table, properties)
    with pytest.raises(UnsupportedTableError, match=r"delete\.field=op.*is double"):
        untouched(table.location, lambda: table.ingest("upsert", [row("1", op=1.0)]))
