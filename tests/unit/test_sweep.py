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


@pytest.mark.parametrize("values", [["a"], ["a", "b"], ["a", "b", "c"]])
def test_a_push_tries_one_value_of_a_test_and_other_commits_the_others(
    values: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: dict[str, set[str]] = {}
    for share in range(sweep.SHARES):
        monkeypatch.setenv("SWEEP", str(share))
        sweep.chosen.cache_clear()
        found = {test: sweep.one_of(test, values) for test in map(str, range(20))}
        assert {len(each) for each in found.values()} == {1}
        assert {value for [value] in found.values()} == set(values), "tests differ"
        for test, one in found.items():
            tried.setdefault(test, set()).update(one)
    assert all(each == set(values) for each in tried.values())


def test_every_moment_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEP", "all")
    assert sweep.share_of(range(9)) == list(range(9))
    assert sweep.one_of("test", ["a", "b"]) == ["a", "b"]
    assert sweep.describe() == "sweeps: every moment"


def test_a_commit_has_one_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SWEEP", raising=False)
    share = sweep.chosen()
    sweep.chosen.cache_clear()
    assert sweep.chosen() == share
    assert share in range(sweep.SHARES)
    assert sweep.describe() == f"sweeps: share {share} of 8 (SWEEP={share})"
