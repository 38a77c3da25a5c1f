"""Snapshots, compared with Hive's own test vectors and with sets of ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.metastore import ValidTxnList, ValidWriteIdList, compare

NO_OPEN = 9223372036854775807


def ids(invalid: list[int], watermark: int, *, table: str = "default.t") -> ValidWriteIdList:
    opened = invalid[0] if invalid else NO_OPEN
    return ValidWriteIdList(table, watermark, tuple(invalid), frozenset(), opened)


# storage-api/src/test/org/apache/hive/common/util/TestTxnIdUtils.java
@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (([], 5), ([], 5), 0),
        (([], 4), ([], 5), -1),
        (([1, 2, 4, 5], 5), ([1, 2, 3, 4, 5], 5), 1),
        (([2, 4, 5], 6), ([2, 4, 5], 5), 1),
        (([1, 2, 3], 3), ([1, 2, 3, 4, 5], 5), 0),
        (([1, 2, 3], 9), ([1, 2, 3, 10, 11], 11), 0),
        (([1, 2, 3], 9), ([1, 2, 3], 11), -1),
        (([], 9), ([10, 11], 11), 0),
        (([], 9), ([10], 11), -1),
        (([8], 9), ([8], 11), -1),
        (([8], 9), ([8, 10, 11], 11), 0),
        (([1, 2, 3, 4, 5], 5), ([1, 2, 3, 4, 5, 6, 7, 8], 8), 0),
        (([1, 2, 3, 4, 5], 5), ([], 0), 0),
        (([1, 2, 3, 4, 5, 6, 7, 8], 8), ([], 0), 0),
        (([], 5), ([6], 6), 0),
        (([6], 6), ([6, 7, 8], 8), 0),
        # Aborted ids that are cleaned away cause a harmless miss, which is a known limit.
        (([6, 7, 8], 8), ([], 8), -1),
    ],
)
def test_compare_answers_as_hive(a: tuple[list[int], int], b: tuple[list[int], int], expected: int) -> None:
    assert compare(ids(*a), ids(*b)) == expected
    assert compare(ids(*b), ids(*a)) == -expected


@pytest.mark.parametrize(
    ("invalid", "watermark"),
    [
        ([2, 3, 4, 5, 6, 7, 8], 8),
        ([1, 2, 3, 4, 6, 7, 8], 8),
        ([1, 2, 3, 4, 6, 7], 8),
        ([100, 101, 105], 105),
    ],
)
def test_not_equivalent_with_one_to_five_open(invalid: list[int], watermark: int) -> None:
    assert compare(ids([1, 2, 3, 4, 5], 5), ids(invalid, watermark)) != 0


def test_compare_orders_other_tables_by_name() -> None:
    assert compare(ids([], 9, table="default.table1"), ids([], 1, table="default.table2")) == -1
    assert compare(ids([], 1, table="default.TABLE1"), ids([], 1, table="default.table1")) == 0


def test_an_open_id_that_committed_makes_the_snapshot_newer() -> None:
    """HIVE-24975."""
    older = ValidWriteIdList.parse("default.test:1:1:1:")
    newer = ValidWriteIdList.parse("default.test:1:9223372036854775807::")
    assert compare(older, newer) == -1


def from_bits(watermark: int, invalid: int, aborted: int) -> ValidWriteIdList:
    """A snapshot whose invalid and aborted ids are the bits of two numbers."""
    exceptions = tuple(one for one in range(1, watermark + 1) if invalid >> one & 1)
    ended = frozenset(one for one in exceptions if aborted >> one & 1)
    opened = [one for one in exceptions if one not in ended]
    return ValidWriteIdList("lake.flights", watermark, exceptions, ended, opened[0] if opened else NO_OPEN)


BITS = st.integers(0, 2**70)
SNAPSHOTS = st.builds(from_bits, st.integers(0, 64), BITS, BITS)


def visible(snapshot: ValidWriteIdList) -> set[int]:
    return {one for one in range(1, 70) if snapshot.is_valid(one)}


def order_of_visible_sets(a: set[int], b: set[int]) -> int:
    """The newer snapshot is the one that shows the lowest id that only one of them shows."""
    differing = a ^ b
    if not differing:
        return 0
    return 1 if min(differing) in a else -1


def test_compare_is_the_order_of_the_visible_sets_for_all_small_snapshots() -> None:
    small = [from_bits(watermark, bits << 1, 0) for watermark in range(7) for bits in range(2**watermark)]
    seen = [visible(snapshot) for snapshot in small]
    wrong = [
        (str(a), str(b))
        for a, of_a in zip(small, seen, strict=True)
        for b, of_b in zip(small, seen, strict=True)
        if compare(a, b) != order_of_visible_sets(of_a, of_b)
    ]
    assert wrong == []
    assert len(small) == 127


@given(SNAPSHOTS, SNAPSHOTS)
def test_compare_is_the_order_of_the_visible_sets(a: ValidWriteIdList, b: ValidWriteIdList) -> None:
    assert compare(a, b) == order_of_visible_sets(visible(a), visible(b))


@given(SNAPSHOTS)
def test_what_is_written_is_read_again(snapshot: ValidWriteIdList) -> None:
    assert ValidWriteIdList.parse(str(snapshot)) == snapshot
    txns = ValidTxnList(snapshot.high_watermark, snapshot.exceptions, snapshot.aborted, snapshot.min_open)
    assert ValidTxnList.parse(str(txns)) == txns


@pytest.mark.parametrize(
    ("text", "snapshot"),
    [
        ("default.t:5:9223372036854775807::", ValidWriteIdList("default.t", 5)),
        ("default.t:5:2:2,4:", ValidWriteIdList("default.t", 5, (2, 4), frozenset(), 2)),
        (
            "default.t:5:9223372036854775807::1,3",
            ValidWriteIdList("default.t", 5, (1, 3), frozenset({1, 3})),
        ),
        ("default.t:9:4:4,6:2,5", ValidWriteIdList("default.t", 9, (2, 4, 5, 6), frozenset({2, 5}), 4)),
        (
            "default.t:9:1:1,2,3,4,5,6:",
            ValidWriteIdList("default.t", 9, (1, 2, 3, 4, 5, 6), frozenset(), 1),
        ),
        ("null:3:9223372036854775807::", ValidWriteIdList(None, 3)),
    ],
)
def test_write_id_lists_are_written_as_hive_writes_them(text: str, snapshot: ValidWriteIdList) -> None:
    assert str(snapshot) == text
    assert ValidWriteIdList.parse(text) == snapshot


@pytest.mark.parametrize("text", ["default.t:5:9223372036854775807", "default.t:5:9223372036854775807:"])
def test_empty_lists_may_be_left_out_as_java_splits(text: str) -> None:
    assert ValidWriteIdList.parse(text) == ValidWriteIdList("default.t", 5)


@pytest.mark.parametrize(
    ("text", "snapshot"),
    [
        ("7:9223372036854775807::", ValidTxnList(7)),
        ("9:3:3,4:6", ValidTxnList(9, (3, 4, 6), frozenset({6}), 3)),
        ("9:1:1,2,3,4:", ValidTxnList(9, (1, 2, 3, 4), frozenset(), 1)),
        ("9:1:1-5:", ValidTxnList(9, (1, 2, 3, 4, 5), frozenset(), 1)),
        (
            "20:3:3,5-9,11:12-17",
            ValidTxnList(20, (3, *range(5, 10), 11, *range(12, 18)), frozenset(range(12, 18)), 3),
        ),
    ],
)
def test_txn_lists_are_written_with_ranges_of_five_and_more(text: str, snapshot: ValidTxnList) -> None:
    assert str(snapshot) == text
    assert ValidTxnList.parse(text) == snapshot


def test_an_empty_string_sees_everything() -> None:
    assert ValidTxnList.parse("").is_valid(10**15)
    assert ValidWriteIdList.parse("").is_valid(10**15)


def test_open_aborted_and_later_ids_are_not_valid() -> None:
    snapshot = ValidTxnList.parse("9:3:3,4:6")
    assert [one for one in range(1, 12) if snapshot.is_valid(one)] == [1, 2, 5, 7, 8, 9]
    assert [one for one in range(1, 12) if snapshot.is_aborted(one)] == [6]
    write_ids = ValidWriteIdList.parse("default.t:5:2:2:4")
    assert [one for one in range(1, 8) if write_ids.is_valid(one)] == [1, 3, 5]
    assert [one for one in range(1, 8) if write_ids.is_aborted(one)] == [4]


@pytest.mark.parametrize("text", ["default.t", "default.t:x:1::", "a:1:1:1:2:3", "default.t:5:1:1,b:"])
def test_other_texts_are_refused_with_the_form(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"its form is <database.table>:<high watermark>"):
        ValidWriteIdList.parse(text)


@pytest.mark.parametrize("text", ["5", "x:1::", "9:1:1:2:3"])
def test_other_txn_texts_are_refused_with_the_form(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"its form is <high watermark>:<lowest open>"):
        ValidTxnList.parse(text)


def test_exceptions_must_ascend_and_hold_the_aborted() -> None:
    with pytest.raises(InvalidInputError, match="must ascend"):
        ValidTxnList(5, (3, 2))
    with pytest.raises(InvalidInputError, match="must be among its exceptions"):
        ValidWriteIdList("default.t", 5, (3,), frozenset({4}))


@given(SNAPSHOTS, SNAPSHOTS)
def test_covering_is_holding_the_visible_set(a: ValidWriteIdList, b: ValidWriteIdList) -> None:
    assert a.covers(b) == (visible(a) >= visible(b))


@given(SNAPSHOTS, SNAPSHOTS)
def test_of_two_moments_the_newer_by_compare_covers(a: ValidWriteIdList, b: ValidWriteIdList) -> None:
    """Both moments are of one history, in which a committed id stays committed."""
    if visible(a) >= visible(b) or visible(b) >= visible(a):
        assert a.covers(b) == (compare(a, b) >= 0)


def test_compare_misses_a_readers_own_write() -> None:
    """A reader's own list has an id that no moment's list has: 5 is its own, 3 was committed since."""
    cached, own = ids([4, 5], 5), ids([3, 4], 5)
    assert compare(cached, own) > 0
    assert not cached.covers(own)


def test_a_list_that_sees_everything_is_covered_only_by_its_like() -> None:
    everything = ValidWriteIdList.parse("")
    assert everything.covers(ids([1], 5))
    assert not ids([], 5).covers(everything)


@given(SNAPSHOTS, st.integers(1, 66))
def test_a_commit_adds_its_id_and_no_other(snapshot: ValidWriteIdList, write_id: int) -> None:
    after = snapshot.with_committed(write_id)
    assert visible(after) == visible(snapshot) | {write_id}
    assert after.high_watermark == max(snapshot.high_watermark, write_id)
    assert after.is_aborted(write_id) is False
    assert ValidWriteIdList.parse(str(after)) == after


@pytest.mark.parametrize(
    ("before", "committed", "after"),
    [
        ("7:3:3,5:6", 3, "7:5:5:6"),
        ("7:3:3:", 3, f"7:{NO_OPEN}::"),
        ("7:3:3:", 4, "7:3:3:"),
        ("4:3:3:", 7, "7:3:3,5,6:"),
    ],
)
def test_a_list_with_one_more_transaction(before: str, committed: int, after: str) -> None:
    assert str(ValidTxnList.parse(before).with_committed(committed)) == after
