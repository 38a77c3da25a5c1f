"""An index finds the same partitions of a table as a look at all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import event

from airflow_provider.metastore import Column, Metastore, PartitionSpec
from airflow_provider.metastore.catalog import partitions
from airflow_provider.metastore.model import PartitionChoice, PartitionInfo, is_plain
from airflow_provider.metastore.partition_filter import partition_choice, partition_filter

KEYS = (Column("d", "string"), Column("n", "int"), Column("x", "decimal(10,2)"))
TEXTS = st.sampled_from(["a", "A", "b", "a%", "a_", 'q"', "\\", "é", None])
NUMBERS = st.sampled_from(["1", "01", "1.0", "10", "-1", "0", "-0", " 1", "1e1", "x", "NaN", None])
CONSTANTS = {
    "d": ["'a'", "'A'", "'a%'", "'\"'", "'__HIVE_DEFAULT_PARTITION__'"],
    "n": ["1", "01", "'1'", "10", "1e1", "0", "'__HIVE_DEFAULT_PARTITION__'"],
    "x": ["1.0", "1", "10.00", "1.5"],
}


@st.composite
def comparisons(draw: Callable[..., Any]) -> str:
    key = draw(st.sampled_from(sorted(CONSTANTS)))
    constants = st.sampled_from(CONSTANTS[key])
    symbol = draw(st.sampled_from(["=", "==", "!=", "<", ">=", "in", "not in", "between"]))
    if symbol.endswith("in"):
        return f"({key}) {symbol} ({draw(constants)}, {draw(constants)})"
    if symbol == "between":
        return f"{key} between {draw(constants)} and {draw(constants)}"
    return f"{key} {symbol} {draw(constants)}"


STRUCTS = st.builds(
    lambda d, n: f"(struct(d, n)) in (const struct({d}, {n}), const struct('b', 10))",
    st.sampled_from(CONSTANTS["d"]),
    st.sampled_from(CONSTANTS["n"]),
)
FILTERS = st.recursive(
    comparisons() | STRUCTS,
    lambda inner: st.builds("({}) {} ({})".format, inner, st.sampled_from(["and", "or"]), inner),
    max_leaves=6,
)


def finds(choice: PartitionChoice, values: tuple[str | None, ...]) -> bool:
    """Whether the database is asked for a partition with these values."""
    has_plain_values = all(map(is_plain, values))
    return all(
        values[at] in known for at, known in choice.plain.items() if has_plain_values or at in choice.texts
    )


@given(FILTERS, st.lists(st.tuples(TEXTS, NUMBERS, NUMBERS), max_size=20))
def test_what_a_filter_keeps_is_looked_for(text: str, rows: list[tuple[str | None, ...]]) -> None:
    keep, choice = partition_filter(text, KEYS), partition_choice(text, KEYS)
    for values in rows:
        kept = keep(PartitionInfo(values, ""))
        assert choice.keeps(values) == kept
        assert finds(choice, values) or not kept, (text, values)


@pytest.fixture
def many(by_database: Metastore) -> Metastore:
    by_database.create_table("lake", "t", location="/t", schema=[Column("id", "int")], partition_keys=KEYS)
    specs = [
        PartitionSpec((d, n, x), f"/{d}/{n}/{x}")
        for d in ("a", "A", "a%", "b", None)
        for n in ("1", "01", "2", None)
        for x in ("1", "1.0")
    ]
    by_database.add_partitions("lake", "t", specs)
    return by_database


@pytest.mark.parametrize(
    "text",
    [
        "d = 'a' and n = 1 and x = 1",
        "d = 'a' and n = 1",
        "d = 'a%'",
        "d in ('a', 'b') and n > 1",
        "d = '__HIVE_DEFAULT_PARTITION__' or d = 'A'",
        "n = 1",
        "n in (1, 2) and x = 1",
        "n = '__HIVE_DEFAULT_PARTITION__'",
        "d > 'A' and n = 2",
        "d = 'a' and d = 'b'",
        "d = 'nothing' or n = 2",
        "",
    ],
)
def test_the_database_finds_what_the_filter_keeps(many: Metastore, text: str) -> None:
    everything = many.get_partitions("lake", "t")
    kept = list(filter(partition_filter(text, KEYS), everything))
    assert many.get_partitions_by_filter("lake", "t", text) == kept
    _, first = many.sql.read(
        lambda connection: partitions.get_table_and_chosen(
            connection, "lake", "t", lambda owner: partition_choice(text, owner.partition_keys), 3
        )
    )
    assert first == kept[:3]


def test_one_of_many_is_read_alone(many: Metastore) -> None:
    """The test counts the rows of the database's answer, not its time."""
    fetched: list[str] = []
    many.drop_partitions("lake", "t", [one.values for one in many.get_partitions("lake", "t")])
    many.add_partitions("lake", "t", [PartitionSpec(("a", str(n), "1"), f"/{n}") for n in range(500)])
    engine = many.sql._engine

    def note(connection: object, cursor: Any, statement: str, *rest: object) -> None:
        fetched.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    [found] = many.get_partitions_by_filter("lake", "t", "d = 'a' and n = 7 and x = 1")
    event.remove(engine, "before_cursor_execute", note)
    assert found.location == "/7"
    asked = [
        one
        for one in fetched
        if "metastore_partitions" in one and "has_plain_values" not in one.split("WHERE")[1]
    ]
    assert asked
    assert all(" IN " in one for one in asked)


@pytest.mark.parametrize(
    ("text", "index"),
    [
        ("n = 7", "ix_metastore_partitions_value_1"),
        ("d > 'A' and x in (1, 2)", "ix_metastore_partitions_value_2"),
        ("d = 'a' and n > 0", "partition_values>? AND partition_values<?"),
    ],
)
def test_an_index_finds_the_values_of_a_later_key(many: Metastore, text: str, index: str) -> None:
    asked: list[tuple[str, Any]] = []
    engine = many.sql._engine

    def note(connection: object, cursor: Any, statement: str, parameters: Any, *rest: object) -> None:
        if "FROM metastore_partitions" in statement:
            asked.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", note)
    found = many.get_partitions_by_filter("lake", "t", text)
    event.remove(engine, "before_cursor_execute", note)
    assert found == list(filter(partition_filter(text, KEYS), many.get_partitions("lake", "t")))
    # PostgreSQL's plans depend on the number of rows.
    explain = "EXPLAIN QUERY PLAN" if engine.dialect.name == "sqlite" else "EXPLAIN"
    with engine.connect() as connection:
        rows = connection.exec_driver_sql(f"{explain} {asked[0][0]}", asked[0][1]).all()
    assert explain == "EXPLAIN" or index in str(rows)


def test_texts_of_numbers_do_not_count_where_texts_are_compared(many: Metastore) -> None:
    """``01`` may be the number 1, but not the text 1: for a key of texts only the equal value is read."""
    keys = [Column("month", "string"), Column("hour", "string")]
    many.create_table("lake", "hours", location="/h", schema=[Column("id", "int")], partition_keys=keys)
    specs = [PartitionSpec((f"{m:02}", f"{h:02}"), f"/{m}/{h}") for m in range(1, 9) for h in range(9)]
    many.add_partitions("lake", "hours", specs)
    choice = partition_choice("hour = '07' and month > '02'", keys)
    assert choice.texts == [1]
    [condition] = partitions._conditions(many.get_table("lake", "hours"), choice) or []
    assert "has_plain_values" not in str(condition.compile(many.sql._engine))
    found = many.get_partitions_by_filter("lake", "hours", "hour = '07' and month > '02'")
    assert [one.location for one in found] == [f"/{month}/7" for month in range(3, 9)]


def test_all_values_are_asked_for_anew_after_each_change(many: Metastore) -> None:
    def values() -> list[tuple[str | None, ...]]:
        _, found = many.sql.read(
            lambda connection: partitions.get_table_and_chosen_values(
                connection, "lake", "t", lambda owner: PartitionChoice()
            )
        )
        return list(found)

    before = values()
    assert values() == before
    many.add_partitions("lake", "t", [PartitionSpec(('a"b, c', "3", "1"), "/new")])
    assert values() == [one.values for one in many.get_partitions("lake", "t")] != before
    many.drop_partitions("lake", "t", [('a"b, c', "3", "1")])
    assert values() == before


def test_a_renamed_partition_is_found_by_its_new_values(many: Metastore) -> None:
    many.rename_partition("lake", "t", ("a", "2", "1"), ("a", "007", "1"))
    [found] = many.get_partitions_by_filter("lake", "t", "d = 'a' and n = 7")
    assert found.values == ("a", "007", "1")
    many.rename_partition("lake", "t", ("a", "007", "1"), ("a", "8", "1"))
    assert many.get_partitions_by_filter("lake", "t", "d = 'a' and n = 7") == []
    assert len(many.get_partitions_by_filter("lake", "t", "d = 'a' and n = 8")) == 1
