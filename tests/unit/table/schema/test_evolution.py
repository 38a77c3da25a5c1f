"""The changes of a table's columns by the columns of writes."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.exceptions import IncompatibleSchemaError, MissingColumnError
from airflow_provider.table.properties import TableConfig
from airflow_provider.table.schema.column_types import to_schema
from airflow_provider.table.schema.evolution import check_roles, evolved

DECIMALS = ("decimal(10,2)", "decimal(12,2)", "decimal(12,4)", "decimal(30,10)")
PLAIN = (
    "boolean",
    "int",
    "bigint",
    "float",
    "double",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
)
NESTED = ("array<int>", "struct<a:int>", "map<string,int>")
NUMBERS = ("int", "bigint", "float", "double")

# The table's type after an upsert of another row, by Hudi 1.2.0 on Spark 3.5; it refuses all others.
BY_HUDI: dict[str, dict[str, str]] = {
    "int": {"bigint": "bigint", "float": "float", "double": "double", "string": "string"},
    "bigint": {"int": "bigint", "float": "float", "double": "double", "string": "string"},
    "float": {"int": "float", "bigint": "float", "double": "double", "string": "string"},
    "double": {"int": "double", "bigint": "double", "float": "double", "string": "string"},
    "string": dict.fromkeys((*NUMBERS, *DECIMALS, "binary", "date"), "string"),
    "binary": {"string": "binary"},
    "decimal(10,2)": {each: each for each in DECIMALS[1:]} | dict.fromkeys(NUMBERS, "decimal(10,2)"),
    "decimal(12,2)": dict.fromkeys((*NUMBERS, "decimal(10,2)"), "decimal(12,2)") | {DECIMALS[3]: DECIMALS[3]},
    "decimal(12,4)": dict.fromkeys((*NUMBERS, "decimal(10,2)"), "decimal(12,4)") | {DECIMALS[3]: DECIMALS[3]},
    "decimal(30,10)": dict.fromkeys((*NUMBERS, *DECIMALS[:3]), "decimal(30,10)"),
}


@pytest.mark.parametrize("table", [*PLAIN, *DECIMALS, *NESTED])
def test_types_become_what_hudi_makes_of_them(table: str) -> None:
    before = to_schema({"c": table})
    for batch in (*PLAIN, *DECIMALS, *NESTED):
        expected = table if batch == table else BY_HUDI.get(table, {}).get(batch)
        if expected is None:
            with pytest.raises(
                IncompatibleSchemaError, match=r"column 'c' is .* in the data and .* in the table"
            ):
                evolved(before, to_schema({"c": batch}))
        else:
            after, changes = evolved(before, to_schema({"c": batch}))
            assert after == to_schema({"c": expected}), batch
            told = [each.to_dict() for each in changes]
            widened = {"column": "c", "change": "widened", "from": table, "to": expected}
            assert told == ([] if expected == table else [widened])


def test_new_columns_come_after_those_that_there_are() -> None:
    table = to_schema("id bigint, st struct<a:int>, ar array<struct<x:int>>, mp map<string,struct<x:int>>")
    batch = to_schema(
        "z string, mp map<string,struct<new:int,x:int>>, ar array<struct<y:string,x:int>>, "
        "st struct<b:struct<c:int>,a:int>, id bigint"
    )
    after, changes = evolved(table, batch)
    assert after == to_schema(
        "id bigint, st struct<a:int,b:struct<c:int>>, ar array<struct<x:int,y:string>>, "
        "mp map<string,struct<x:int,new:int>>, z string"
    )
    assert [str(each) for each in changes] == [
        "column st.b added: struct<c:int>",
        "column ar.element.y added: string",
        "column mp.value.new added: int",
        "column z added: string",
    ]


def test_types_of_arrow_are_stored_as_the_next_wider_one() -> None:
    batch = pa.schema(
        {
            "id": pa.int64(),
            "tiny": pa.int8(),
            "word": pa.dictionary(pa.int32(), pa.large_string()),
            "at": pa.timestamp("ns", "Europe/Paris"),
        }
    )
    after, _ = evolved(to_schema("id bigint"), batch)
    assert after == to_schema("id bigint, tiny int, word string, at timestamp")


MISSING = to_schema("id bigint, n int, st struct<a:int,b:string>, ar array<struct<x:int,y:int>>")
LACKING = to_schema("id bigint, st struct<a:int>, ar array<struct<y:int>>, extra int")


def test_what_the_data_lack_is_named_also_inside_columns() -> None:
    with pytest.raises(
        MissingColumnError, match=r"columns 'n', 'st\.b', 'ar\.element\.x' of the table"
    ) as caught:
        evolved(MISSING, LACKING)
    assert caught.value.details == {"columns": ["n", "st.b", "ar.element.x"]}


def test_what_the_data_lack_is_null_where_that_is_said() -> None:
    after, changes = evolved(MISSING, LACKING, fills_missing=True)
    assert after == pa.schema([*MISSING, pa.field("extra", pa.int32())])
    assert [each.column for each in changes] == ["extra"]


def test_a_column_that_must_not_be_null_and_is_filled_may_be_null_from_then_on() -> None:
    table = to_schema("id bigint not null, st struct<a:int not null,b:int>")
    after, changes = evolved(table, to_schema("st struct<b:int>"), fills_missing=True)
    assert after == to_schema("id bigint, st struct<a:int,b:int>")
    assert [(each.column, each.change) for each in changes] == [("id", "nullable"), ("st.a", "nullable")]


@pytest.mark.parametrize(
    "text", ["id bigint, extra int not null", "id bigint, st struct<a:int,b:int not null>"]
)
def test_a_new_column_that_must_not_be_null_is_refused_unless_it_is_filled(text: str) -> None:
    table = to_schema("id bigint, st struct<a:int>")
    batch = pa.schema([*to_schema(text), *([table.field("st")] if "st" not in text else [])])
    with pytest.raises(IncompatibleSchemaError, match=r"not null.*would have null there; make it nullable"):
        evolved(table, batch)
    assert all(field.nullable for field in evolved(table, batch, fills_missing=True)[0])


def test_a_required_column_stays_so_where_the_data_may_have_null() -> None:
    table = to_schema("id bigint not null")
    assert evolved(table, to_schema("id bigint")) == (table, ())


def test_a_new_column_that_differs_only_in_case_is_refused() -> None:
    table = to_schema("id bigint, st struct<street:string>")
    with pytest.raises(IncompatibleSchemaError, match="'ID' of the data differs from column 'id'"):
        evolved(table, to_schema("ID bigint, st struct<street:string>"), fills_missing=True)
    with pytest.raises(
        IncompatibleSchemaError, match=r"'st\.Street' of the data differs from column 'st\.street'"
    ):
        evolved(table, to_schema("id bigint, st struct<street:string,Street:string>"))


def test_a_new_column_without_a_type_is_refused_with_the_likely_one() -> None:
    with pytest.raises(IncompatibleSchemaError, match=r"'dely'.*did you mean 'delay'.*has no type"):
        evolved(to_schema("delay int"), pa.schema({"delay": pa.int32(), "dely": pa.null()}))


def test_a_new_column_of_a_type_that_no_table_stores_is_refused() -> None:
    with pytest.raises(IncompatibleSchemaError, match="'big' has type uint64"):
        evolved(to_schema("id int"), pa.schema({"id": pa.int32(), "big": pa.uint64()}))


# --- random columns, and what was done to them ------------------------------------------------------


class Changing:
    """Makes the columns of a table and of a batch, and the table's columns after the batch."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.names = iter(range(10_000))

    def kind(self, depth: int) -> Any:
        roll = self.random.random()
        if depth and roll < 0.2:
            return {"struct": self.columns(depth - 1)}
        if depth and roll < 0.3:
            return {"array": self.kind(depth - 1)}
        if depth and roll < 0.4:
            return {"map": self.kind(depth - 1)}
        return self.random.choice([*BY_HUDI, "boolean", "date", "timestamp"])

    def columns(self, depth: int) -> list[tuple[str, Any]]:
        return [(f"c{next(self.names)}", self.kind(depth)) for _ in range(self.random.randint(1, 4))]

    def changed(self, kind: Any) -> tuple[Any, Any]:
        """A batch's type, and the table's type after it."""
        if isinstance(kind, str):
            batch, after = self.random.choice([(kind, kind), *BY_HUDI.get(kind, {}).items()])
            return batch, after
        [(form, inner)] = kind.items()
        if form == "struct":
            batch, after = self.changed_columns(inner)
        else:
            batch, after = self.changed(inner)
        return {form: batch}, {form: after}

    def changed_columns(self, columns: list[tuple[str, Any]]) -> tuple[list[Any], list[Any]]:
        batch, after = [], []
        for name, kind in columns:
            if len(columns) > 1 and self.random.random() < 0.15:
                after.append((name, kind))
                continue
            came, became = self.changed(kind)
            batch.append((name, came))
            after.append((name, became))
        new = self.columns(1) if self.random.random() < 0.3 else []
        self.random.shuffle(batch)
        for column in new:
            batch.insert(self.random.randint(0, len(batch)), column)
        after += [column for column in batch if column in new]
        return batch, after


def _type(kind: Any) -> pa.DataType:
    if isinstance(kind, str):
        return to_schema({"c": kind}).field(0).type
    [(form, inner)] = kind.items()
    if form == "struct":
        return pa.struct(list(_schema(inner)))
    return (
        pa.list_(pa.field("element", _type(inner))) if form == "array" else pa.map_(pa.string(), _type(inner))
    )


def _schema(columns: list[tuple[str, Any]]) -> pa.Schema:
    return pa.schema([pa.field(name, _type(kind)) for name, kind in columns])


@given(st.randoms(use_true_random=False))
def test_any_columns_become_those_that_they_were_changed_to(random: Random) -> None:
    changing = Changing(random)
    table = changing.columns(3)
    batch, after = changing.changed_columns(table)
    found, changes = evolved(_schema(table), _schema(batch), fills_missing=True)
    assert found == _schema(after)
    assert bool(changes) == (_schema(after) != _schema(table))
    assert evolved(found, _schema(batch), fills_missing=True) == (found, ())


# --- what keys and orders are made of ---------------------------------------------------------------


CONFIG = TableConfig(
    name="t",
    record_key_fields=("id",),
    partition_fields=("p",),
    ordering_fields=("ts",),
)


@pytest.mark.parametrize(
    ("column", "before", "after"),
    [
        ("id", "int", "double"),
        ("id", "decimal(10,2)", "decimal(12,4)"),
        ("p", "bigint", "float"),
        ("ts", "int", "string"),
    ],
)
def test_keys_partitions_and_the_order_of_versions_stay(column: str, before: str, after: str) -> None:
    _, changes = evolved(to_schema({column: before}), to_schema({column: after}))
    with pytest.raises(IncompatibleSchemaError, match=f"column '{column}' would be widened from"):
        check_roles(CONFIG, changes)


@pytest.mark.parametrize(
    ("column", "after"), [("id", "bigint"), ("id", "string"), ("p", "string"), ("ts", "double")]
)
def test_a_type_with_the_same_texts_or_the_same_order_is_taken(column: str, after: str) -> None:
    _, changes = evolved(to_schema({column: "int"}), to_schema({column: after}))
    check_roles(CONFIG, changes)
