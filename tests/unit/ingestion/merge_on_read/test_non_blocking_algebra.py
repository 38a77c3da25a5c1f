"""What readers show of several versions of a record: the table "What a user gets" of docs/non-blocking.md.

Three writers are in flight at a time, and commit in any order. Each "yes" of the table is a property, and
each "no" has a counterexample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider.services.table_compaction.table_compaction import (
    compact_table,
    run_table_compaction,
    schedule_table_compaction,
)
from tests.ingestion_contract.lake import Lake, LakeTable, in_order
from tests.unit.ingestion.merge_on_read.non_blocking_table import ALWAYS, Row, in_flight, make, row

UPSERT, DELETE, DELETE_BY_KEY = "upsert", "delete with an ordering value", "delete by key"


@dataclass(frozen=True)
class Load:
    """One operation on one record.

    :param version: tells rows of the same key and ordering value apart.
    """

    kind: str
    key: str
    ts: int
    version: str = ""

    @property
    def row(self) -> Row:
        return row(self.key, f"{self.key}{self.ts}{self.version}", self.ts)

    def write(self, table: LakeTable) -> tuple[str, pa.Table]:
        """The operation and the rows by which it is written."""
        if self.kind == UPSERT:
            return "upsert", table.arrow([self.row])
        names = ["id", "part"] if self.kind == DELETE_BY_KEY else ["id", "part", "ts"]
        return "delete", table.arrow([{name: self.row[name] for name in names}])


def loads(*kinds: str, versions: str = "x") -> st.SearchStrategy[list[Load]]:
    """Two to seven loads of two keys."""
    load = st.builds(
        Load, st.sampled_from(kinds), st.sampled_from("ab"), st.integers(1, 4), st.sampled_from(versions)
    )
    return st.lists(load, min_size=2, max_size=7)


@st.composite
def unequal_loads(draw: st.DrawFn, *kinds: str) -> list[Load]:
    """Loads of which no two of one key have the same ordering value; and some of them again."""
    drawn = draw(loads(*kinds))
    unequal = list({(each.key, each.ts): each for each in drawn}.values())
    again = draw(st.lists(st.sampled_from(unequal), max_size=3))
    return list(draw(st.permutations([*unequal, *again])))


def run(
    table: LakeTable, wanted: Sequence[Load], random: Any, compacts: Callable[[], bool] = lambda: False
) -> list[Load]:
    """Write loads, three in flight at a time, with compactions planned and run at any point.

    :return: the loads in the order of their completion.
    """
    completed: list[Load] = []
    plans: list[str] = []

    def between() -> None:
        if compacts() and (plan := schedule_table_compaction(table.table, ALWAYS)):
            plans.append(plan)
        if plans and compacts():
            run_table_compaction(table.table, plans.pop())

    for three in (wanted[at : at + 3] for at in range(0, len(wanted), 3)):
        order = random.sample(range(len(three)), len(three))
        in_flight(table, [each.write(table) for each in three], order, between)
        completed += [three[number] for number in order]
    for plan in plans:
        run_table_compaction(table.table, plan)
    return completed


def by_key(completed: Iterable[Load], wins: Callable[[Load, Load], bool]) -> list[Row]:
    """The rows that stay.

    :param wins: whether a load wins against the winner of those that completed before it.
    """
    found: dict[str, Load] = {}
    for each in completed:
        if each.key not in found or wins(each, found[each.key]):
            found[each.key] = each
    return [each.row for each in found.values() if each.kind == UPSERT]


def largest(load: Load, other: Load) -> bool:
    return load.ts > other.ts


def largest_or_last(load: Load, other: Load) -> bool:
    return load.ts >= other.ts


def last(load: Load, other: Load) -> bool:
    return True


New = Callable[..., LakeTable]


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> New:
    """Makes a table for each example."""
    return lambda **options: make(Lake(tmp_path_factory.mktemp("algebra")), buckets=2, **options)


randoms = st.randoms(use_true_random=False)
FEW = settings(max_examples=max(1, settings.default.max_examples // 5))


# --- what is promised -------------------------------------------------------------------------


@FEW
@given(wanted=unequal_loads(UPSERT), random=randoms)
def test_upserts_under_an_ordering_field_commute_associate_and_repeat(
    new: New, wanted: list[Load], random: Any
) -> None:
    """The rows are last-writer-wins registers, a CRDT: all readers agree at any time, whatever came when."""
    table = new()
    run(table, wanted, random, lambda: random.random() < 0.5)
    rows = by_key(wanted, largest)
    table.check_now(rows)
    compact_table(table.table, ALWAYS)
    table.check_now(rows)


@FEW
@given(wanted=loads(UPSERT, versions="xyz"), random=randoms)
def test_of_equal_ordering_values_the_last_to_complete_wins_whatever_is_compacted_when(
    new: New, wanted: list[Load], random: Any
) -> None:
    table = new()
    completed = run(table, wanted, random, lambda: random.random() < 0.5)
    rows = by_key(completed, largest_or_last)
    assert table.rows() == in_order(rows)
    compact_table(table.table, ALWAYS)
    table.check_now(rows)


@FEW
@given(wanted=loads(UPSERT, DELETE_BY_KEY, versions="xyz"), random=randoms)
def test_without_an_ordering_field_the_last_to_complete_wins_whatever_is_compacted_when(
    new: New, wanted: list[Load], random: Any
) -> None:
    table = new(ordering_field=None)
    completed = run(table, wanted, random, lambda: random.random() < 0.5)
    rows = by_key(completed, last)
    assert table.rows() == in_order(rows)
    compact_table(table.table, ALWAYS)
    table.check_now(rows)


@FEW
@given(wanted=unequal_loads(UPSERT, DELETE), random=randoms, has_base=st.booleans())
def test_deletes_with_an_ordering_value_commute_and_repeat_between_two_compactions(
    new: New, wanted: list[Load], random: Any, has_base: bool
) -> None:
    table = new()
    before = [Load(UPSERT, key, 0) for key in "ab"] if has_base else []
    run(table, before, random)
    compact_table(table.table, ALWAYS)
    run(table, wanted, random)
    rows = by_key([*before, *wanted], largest)
    table.check_now(rows)
    compact_table(table.table, ALWAYS)
    table.check_now(rows)


@FEW
@given(wanted=loads(UPSERT, DELETE, DELETE_BY_KEY, versions="xyz"), random=randoms, ordered=st.booleans())
def test_the_newest_load_may_be_repeated_and_a_delete_by_key_wins_against_all_before_it(
    new: New, wanted: list[Load], random: Any, ordered: bool
) -> None:
    table = new(ordering_field="ts" if ordered else None)
    newest = run(table, wanted, random, lambda: random.random() < 0.5)[-1]
    rows = table.rows()
    # A compaction forgets a delete with an ordering value, and what has lost against it would win.
    has_lost = any(
        each.kind == DELETE and each.key == newest.key and each.ts > newest.ts for each in wanted if ordered
    )
    for compacts in (True,) if has_lost else (True, False):
        run(table, [newest], random)
        assert table.rows() == rows
        if compacts:
            compact_table(table.table, ALWAYS)
            assert table.rows() == rows
    run(table, [Load(DELETE_BY_KEY, "a", 0)], random)
    assert table.rows() == [each for each in rows if each["id"] != "a"]


# --- what is not promised ---------------------------------------------------------------------

COMPACTION = None
OLD, NEW, OTHER = Load(UPSERT, "a", 3), Load(UPSERT, "a", 5), Load(UPSERT, "a", 5, "other")
DELETED, GONE = Load(DELETE, "a", 5), Load(DELETE_BY_KEY, "a", 0)

Steps = list[Load | None]
COUNTEREXAMPLES: dict[str, tuple[str | None, Steps, Load | None, Steps, Load | None]] = {
    "upserts of equal ordering values do not commute": ("ts", [NEW, OTHER], OTHER, [OTHER, NEW], NEW),
    "nor may one that is not the newest be repeated": ("ts", [NEW, OTHER], OTHER, [NEW, OTHER, NEW], NEW),
    "without an ordering field upserts do not commute": (None, [OLD, NEW], NEW, [NEW, OLD], OLD),
    "nor do a delete and an upsert": (None, [OLD, GONE], None, [GONE, OLD], OLD),
    "nor may an older load be repeated": (None, [OLD, GONE], None, [OLD, GONE, OLD], OLD),
    "a delete with an ordering value does not commute over a compaction": (
        "ts", [OLD, DELETED, COMPACTION], None, [DELETED, COMPACTION, OLD], OLD,
    ),
    "nor does it associate": ("ts", [DELETED, OLD], None, [DELETED, COMPACTION, OLD], OLD),
    "nor may an older load be repeated after the compaction": (
        "ts", [OLD, DELETED, COMPACTION], None, [OLD, DELETED, COMPACTION, OLD], OLD,
    ),
    "nor does it commute with an upsert of an equal ordering value": (
        "ts", [NEW, DELETED], None, [DELETED, NEW], NEW,
    ),
    "a delete by key does not commute": ("ts", [NEW, GONE], None, [GONE, NEW], NEW),
    # A late version below the deleted one ends the delete, and loses against the base file's.
    "nor does it associate with what is in the base file": (
        "ts", [NEW, COMPACTION, GONE, OLD], NEW, [NEW, COMPACTION, GONE, COMPACTION, OLD], OLD,
    ),
    "nor may an older load be repeated after it": ("ts", [NEW, GONE], None, [NEW, GONE, NEW], NEW),
}  # fmt: skip


@pytest.mark.parametrize(
    ("ordering_field", "one", "shown", "other", "shown_of_other"),
    COUNTEREXAMPLES.values(),
    ids=list(COUNTEREXAMPLES),
)
def test_what_readers_show_depends_on(
    new: New,
    ordering_field: str | None,
    one: Steps,
    shown: Load | None,
    other: Steps,
    shown_of_other: Load | None,
) -> None:
    for steps, wanted in ((one, shown), (other, shown_of_other)):
        table = new(ordering_field=ordering_field)
        for load in steps:
            if load is COMPACTION:
                compact_table(table.table, ALWAYS)
            else:
                table.write(*load.write(table))
        rows = [] if wanted is None else [wanted.row]
        table.check_now(rows)
        compact_table(table.table, ALWAYS)
        table.check_now(rows)
