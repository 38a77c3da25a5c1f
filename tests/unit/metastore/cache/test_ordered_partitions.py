"""The partitions that a choice finds in memory are those that a look at each of them finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.metastore import Column, PartitionInfo
from airflow_provider.metastore.cache.ordered_partitions import OrderedPartitions
from airflow_provider.metastore.model.partition_choice import PartitionChoice
from airflow_provider.metastore.partition_filter import partition_choice

KEYS = [Column("p", "int"), Column("s", "string")]
VALUES = st.tuples(
    st.sampled_from(["7", "07", "7.0", "-1", "12", None]), st.sampled_from(["7", "07", "a", "b", "", None])
)
ONE = st.sampled_from(
    ["p = 7", "p in (7, 12)", "p > 6", "p != 7", 's = "7"', 's in ("a", "07")', 's like "a%"', "p = -1"]
)
FILTERS = st.recursive(
    ONE,
    lambda inner: st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(
        "({0[0]}) {0[1]} ({0[2]})".format
    ),
)


def partitions(values: set[tuple[str | None, str | None]]) -> list[PartitionInfo]:
    return [PartitionInfo(each, f"/lake/{number}", {}) for number, each in enumerate(values)]


@given(st.sets(VALUES, max_size=20), FILTERS)
def test_by_a_filter(values: set[tuple[str | None, str | None]], text: str) -> None:
    ordered, choice = OrderedPartitions(partitions(values)), partition_choice(text, KEYS)
    assert ordered.chosen(choice) == [one for one in ordered.all if choice.keeps(one.values)]


@given(st.sets(VALUES, max_size=20), st.lists(VALUES, max_size=5))
def test_by_exact_values(
    values: set[tuple[str | None, str | None]], wanted: list[tuple[str | None, str | None]]
) -> None:
    ordered = OrderedPartitions(partitions(values))
    found = ordered.chosen(PartitionChoice(wanted.__contains__, exact=wanted))
    assert found == [one for one in ordered.all if one.values in wanted]
    assert ordered.chosen(PartitionChoice()) == ordered.all
