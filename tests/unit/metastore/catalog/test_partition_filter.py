"""Hive's partition filter language."""

from __future__ import annotations

import pytest

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.metastore import AnyMetastore, Column, PartitionInfo, PartitionSpec
from airflow_provider.metastore.partition_filter import partition_filter

KEYS = (Column("year", "int"), Column("dest", "string"))
PARTITIONS = [("2012", "a"), ("2013", "b"), ("2013", None), (None, "a%"), ("10", "B"), ("x", "a")]


def kept(text: str) -> list[tuple[str | None, str | None]]:
    keep = partition_filter(text, KEYS)
    return [values for values in PARTITIONS if keep(PartitionInfo(values, "/p"))]


@pytest.mark.parametrize(
    ("text", "positions"),
    [
        ("", [0, 1, 2, 3, 4, 5]),
        ("year = 2013", [1, 2]),
        ("YEAR = '2013'", [1, 2]),
        ("2012 < year", [1, 2]),
        ("year < 100", [4]),
        ("year != 2013", [0, 4]),
        ("year <> 2013 and dest = 'a'", [0]),
        ("year == 2013", [1, 2]),
        ("year = 2013.0", [1, 2]),
        ("dest >= 'a'", [0, 1, 3, 5]),
        ('dest = "a" or year = 2013 and dest = "b"', [0, 1, 5]),
        ("(dest = 'a' or year = 2013) and year = 2013", [1, 2]),
        ("dest like 'a%'", [0, 3, 5]),
        ("dest like 'a_'", [3]),
        ("dest like 'a.*'", [0, 3, 5]),
        ("dest like '.'", [0, 1, 4, 5]),
        ("dest like '((((' or dest = 'B'", [4]),
        # The null partition has a name, with which a filter compares texts but no numbers.
        ("dest != 'a'", [1, 2, 3, 4]),
        ("dest < 'a'", [2, 4]),
        ('dest = "__HIVE_DEFAULT_PARTITION__"', [2]),
        ('dest != "__HIVE_DEFAULT_PARTITION__"', [0, 1, 3, 4, 5]),
        ('year = "__HIVE_DEFAULT_PARTITION__"', [3]),
        ("(year) in (10, 2012)", [0, 4]),
        ("(year) not in (10, 2012)", [1, 2]),
        ('((dest) in ("a", "b")) and year = 2013', [1]),
        ('(struct(year, dest)) IN (const struct(2012, "a"), const struct(2013, "b"))', [0, 1]),
        ('(struct(year, dest)) NOT IN (const struct(2012, "a"))', [1, 2, 3, 4]),
        ('(year, dest) IN ((2012, "a"))', [0]),
        ("year in (10, 2012)", [0, 4]),
        ("year not in (10, 2012)", [1, 2]),
        ("year between 2000 and 2012", [0]),
        ("year not between 2000 and 2012", [1, 2, 4]),
        ("dest BETWEEN 'a' AND 'b' AND `year` = 2013", [1]),
        ("dest = date '2013-01-01'", []),
    ],
)
def test_what_a_filter_keeps(text: str, positions: list[int]) -> None:
    assert kept(text) == [PARTITIONS[position] for position in positions]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("price = 1", "'price' is no partition key; the table's are"),
        ("year = 'x'", "'year' is of type int, 'x' is no value of it"),
        ("(year, dest) in ((1))", r"are compared with 1 constants, \['1'\]; give one for each key"),
        ("year =", "is no partition filter"),
        ("year = 2013 dest = 'a'", "is no partition filter"),
        ("year = 2013; drop table", "is no partition filter"),
        ("year in ()", "is no partition filter"),
    ],
)
def test_texts_that_are_no_filter_of_the_table(text: str, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        partition_filter(text, KEYS)


@pytest.mark.parametrize(
    ("type_", "values", "text", "expected"),
    [
        ("double", ["10", "9.5", "8", "-1e2", "NaN"], "p > 8", ["10", "9.5"]),
        ("decimal(10,2)", ["10.50", "9.00", "100"], "p >= 10.5", ["10.50", "100"]),
        ("decimal(10,2)", ["10.50", "9.00", "100"], "p = 9", ["9.00"]),
        ("bigint", ["01", "1", "10"], "p = 1", ["01", "1"]),
        (
            "timestamp",
            ["2026-01-02 00:00:00", "2026-01-10 12:30:00.5"],
            "p > '2026-01-02 00:00:00.0'",
            ["2026-01-10 12:30:00.5"],
        ),
        (
            "timestamp",
            ["2026-01-02 00:00:00", "2026-01-10 12:30:00.5"],
            "p < timestamp '2026-01-03'",
            ["2026-01-02 00:00:00"],
        ),
        ("date", ["2025-12-31", "2026-05-04", "2026-05-05"], "p < 2026-05-05", ["2025-12-31", "2026-05-04"]),
        ("date", ["2025-12-31", "2026-05-04"], "p between date 2026-01-01 and '2026-12-31'", ["2026-05-04"]),
        ("date", ["2025-12-31", "2026-05-04"], "p like '2025.*'", ["2025-12-31"]),
        ("varchar(3)", ["10", "9"], "p > 8", ["9"]),
    ],
)
def test_each_type_has_its_own_order(type_: str, values: list[str], text: str, expected: list[str]) -> None:
    keep = partition_filter(text, [Column("p", type_)])
    assert [one for one in values if keep(PartitionInfo((one,), "/p"))] == expected
    # The null partition is a text among texts, and satisfies no comparison of another type.
    assert keep(PartitionInfo((None,), "/p")) is type_.startswith("varchar")


@pytest.mark.parametrize("text", ["dest like '%a%a%a%a%a%a%a%a%a%a%a%a%b'", "dest like '(a*)*(a*)*(a*)*b'"])
def test_a_pattern_is_matched_in_linear_time(text: str) -> None:
    """With a matcher that backtracks this test does not end."""
    keep = partition_filter(text, [Column("dest", "string")])
    assert not keep(PartitionInfo(("a" * 5_000,), "/p"))
    assert keep(PartitionInfo(("a" * 5_000 + "b",), "/p"))


def test_the_null_partition_is_where_hive_lists_it(metastore: AnyMetastore) -> None:
    metastore.create_table(
        "lake", "places", location="/l", schema=[Column("id", "int")], partition_keys=[Column("d", "string")]
    )
    specs = [PartitionSpec((value,), f"/{value}") for value in ("b", "a", None, "1", "B")]
    metastore.add_partitions("lake", "places", specs)
    listed = [one.values[0] for one in metastore.get_partitions("lake", "places")]
    assert listed == ["1", "B", None, "a", "b"]
    found = metastore.get_partitions_by_filter("lake", "places", 'd != "a"')
    assert [one.values[0] for one in found] == ["1", "B", None, "b"]


def test_the_metastore_filters(metastore: AnyMetastore) -> None:
    specs = [PartitionSpec(("2013", str(month)), f"/{month}") for month in range(1, 13)]
    metastore.add_partitions("lake", "flights", specs)
    found = metastore.get_partitions_by_filter("lake", "flights", "month > 9 and year = 2013")
    assert [one.values[1] for one in found] == ["10", "11", "12"]
