"""Requested times are even milliseconds, and completion times odd ones."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from airflow_provider.concurrency import CommitLog
from airflow_provider.concurrency.heartbeats.heartbeat import HeartbeatInfo, heartbeat_path
from airflow_provider.concurrency.log import completion_time_after, request_instant
from airflow_provider.concurrency.log.instant_time import requested_times_before
from airflow_provider.table.storage.storage import Storage
from tests.unit.concurrency.log.test_commit_log import entry

LONG_AGO, FAR_AHEAD = "20200101000000000", "29990101000000000"
ME = HeartbeatInfo(owner="me")


def ms(time: str, later: int) -> str:
    """A time, this many milliseconds later."""
    return str(int(time) + later)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path / "t"))


def request(storage: Storage, newest_completed_at: str = "", later_than: str = "") -> str:
    log = CommitLog(storage)
    if newest_completed_at:
        log.append(log.head() + 1, replace(entry(1), completion_time=newest_completed_at))
    time, newest = request_instant(storage, log, log.newest(), ME, later_than=later_than)
    assert newest == log.newest()
    assert HeartbeatInfo.from_json(storage.read(heartbeat_path(time))) == ME
    return time


def test_an_instant_is_requested_after_all_that_has_completed(storage: Storage) -> None:
    assert request(storage, newest_completed_at=ms(FAR_AHEAD, 1)) == ms(FAR_AHEAD, 2)
    assert request(storage, newest_completed_at=ms(FAR_AHEAD, 4)) == ms(FAR_AHEAD, 6), "and not at an odd one"


def test_an_instant_is_requested_after_whatever_it_has_to_be_later_than(storage: Storage) -> None:
    assert request(storage, later_than=FAR_AHEAD) == ms(FAR_AHEAD, 2)
    assert LONG_AGO < request(storage, later_than=LONG_AGO) < FAR_AHEAD, "by the clock, where that suffices"


def test_two_instants_never_have_the_same_requested_time(storage: Storage) -> None:
    assert [request(storage, later_than=FAR_AHEAD) for _ in range(3)] == [
        ms(FAR_AHEAD, 2),
        ms(FAR_AHEAD, 4),
        ms(FAR_AHEAD, 6),
    ]


def test_a_requested_time_that_was_passed_before_it_was_taken_is_given_up(storage: Storage) -> None:
    log = CommitLog(storage)
    log.append(1, replace(entry(1), completion_time=ms(FAR_AHEAD, 2)))
    time, newest = request_instant(storage, log, None, ME, later_than=FAR_AHEAD)
    assert (time, newest) == (ms(FAR_AHEAD, 4), log.newest())
    assert list(storage.names(".hoodie/.heartbeat")) == [time], "nobody waits for the one given up"


@pytest.mark.parametrize(
    ("before", "requested", "later_than", "completes"),
    [
        (ms(FAR_AHEAD, 1), LONG_AGO, "", ms(FAR_AHEAD, 3)),
        ("", FAR_AHEAD, "", ms(FAR_AHEAD, 1)),
        ("", LONG_AGO, FAR_AHEAD, ms(FAR_AHEAD, 1)),
        (ms(FAR_AHEAD, 1), ms(FAR_AHEAD, 4), ms(FAR_AHEAD, 2), ms(FAR_AHEAD, 5)),
    ],
    ids=["the entry before", "its request", "whatever else", "all of them"],
)
def test_a_commit_completes_after(
    storage: Storage, before: str, requested: str, later_than: str, completes: str
) -> None:
    newest = replace(entry(1), completion_time=before) if before else None
    assert completion_time_after(storage, newest, requested, later_than=later_than) == completes


def test_a_commit_completes_by_the_clock_at_an_odd_millisecond(storage: Storage) -> None:
    completed = [completion_time_after(storage, None, LONG_AGO) for _ in range(20)]
    assert all(LONG_AGO < time < FAR_AHEAD and int(time) % 2 == 1 for time in completed)


def test_what_was_requested_before_a_moment() -> None:
    assert list(islice(requested_times_before(ms(FAR_AHEAD, 3), ""), 2)) == [ms(FAR_AHEAD, 2), FAR_AHEAD]
    assert next(requested_times_before(ms(FAR_AHEAD, 2), "")) == FAR_AHEAD
    # Completion times are odd; a requested time takes one only if no even millisecond is free.
    found = list(requested_times_before(ms(FAR_AHEAD, 5), FAR_AHEAD))
    assert found == [ms(FAR_AHEAD, each) for each in (4, 2, 3, 1)]
    assert list(requested_times_before(ms(FAR_AHEAD, 2), FAR_AHEAD)) == [ms(FAR_AHEAD, 1)]
    assert list(requested_times_before(ms(FAR_AHEAD, 2), ms(FAR_AHEAD, 1))) == []
