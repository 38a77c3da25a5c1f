"""Each moment of a sweep is in some share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import sweep


@pytest.fixture(autouse=True)
def chosen_anew() -> Iterator[None]:
    sweep.chosen.cache_clear()
    yield
    sweep.chosen.cache_clear()


@pytest.mark.parametrize("shares", [2, sweep.SHARES])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 41])
def test_the_shares_together_are_all_moments(
    count: int, shares: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: set[int] = set()
    for share in range(sweep.SHARES):
        monkeypatch.setenv("SWEEP", str(share))
        sweep.chosen.cache_clear()
        found = sweep.share_of(range(count), shares)
        assert found == sorted(set(found))
        assert {0, count - 1} & set(range(count)) <= set(found), "the first and the last are in each"
        tried |= set(found)
    assert tried == set(range(count))


def test_a_push_tries_one_value_of_a_test_and_the_next_share_another(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: dict[int, set[str]] = {}
    for share in range(sweep.SHARES):
        monkeypatch.setenv("SWEEP", str(share))
        sweep.chosen.cache_clear()
        for test in range(20):
            [found] = [value for value in "ab" if sweep.is_tried(f"test_{test}", value, "ab")]
            tried.setdefault(test, set()).add(found)
    assert all(found == {"a", "b"} for found in tried.values())
    firsts = {sweep.is_tried(f"test_{test}", "a", "ab") for test in range(20)}
    assert firsts == {True, False}, "tests differ"


def test_every_moment_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEP", "all")
    assert sweep.share_of(range(9)) == list(range(9))
    assert all(sweep.is_tried("test", value, "ab") for value in "ab")
    assert sweep.describe() == "sweeps: every moment"


def test_a_commit_has_one_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SWEEP", raising=False)
    share = sweep.chosen()
    sweep.chosen.cache_clear()
    assert sweep.chosen() == share
    assert share in range(sweep.SHARES)
    assert sweep.describe() == f"sweeps: share {share} of 8 (SWEEP={share})"
