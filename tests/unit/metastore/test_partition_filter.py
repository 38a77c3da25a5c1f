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
        ("dest >= 'a'", [0, 1, 3, 5]),
        ('dest = "a" or year = 2013 and dest = "b"', [0, 1, 5]),
        ("(dest = 'a' or year = 2013) and year = 2013", [1, 2]),
        ("dest like 'a%'", [0, 3, 5]),
        ("dest like 'a_'", [3]),
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
        ("year = 'x'", "'year' is of type int, 'x' is no integer"),
        ("year =", "is no partition filter"),
        ("year = 2013 dest = 'a'", "is no partition filter"),
        ("year = 2013; drop table", "is no partition filter"),
        ("year in ()", "is no partition filter"),
    ],
)
def test_texts_that_are_no_filter_of_the_table(text: str, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        partition_filter(text, KEYS)


def test_the_metastore_filters(metastore: AnyMetastore) -> None:
    specs = [PartitionSpec(("2013", str(month)), f"/{month}") for month in range(1, 13)]
    metastore.add_partitions("lake", "flights", specs)
    found = metastore.get_partitions_by_filter("lake", "flights", "month > 9 and year = 2013")
    assert [one.values[1] for one in found] == ["10", "11", "12"]
