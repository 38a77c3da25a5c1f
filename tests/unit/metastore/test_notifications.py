"""The notification log: reading, consumers, retention."""

from __future__ import annotations

import pytest

from airflow_provider.exceptions import (
    AlreadyExistsError,
    EventsExpiredError,
    InvalidInputError,
    NoSuchObjectError,
)
from airflow_provider.metastore import AnyMetastore, Column, EventType, Metastore, Purged
from tests.unit.metastore.database.database_rows import change_rows

DAY = 86_400


def age_events(url: str, seconds: int, *, through: int) -> None:
    change_rows(
        url,
        "UPDATE metastore_notification_log SET event_time = event_time - :seconds WHERE event_id <= :through",
        seconds=seconds,
        through=through,
    )


def test_events_are_read_in_pieces(metastore: AnyMetastore) -> None:
    for _ in range(5):
        metastore.open_txn("me", "here")
    assert metastore.current_event_id() == 7
    assert [event.event_id for event in metastore.next_events(0)] == list(range(1, 8))
    assert [event.event_id for event in metastore.next_events(3, limit=2)] == [4, 5]
    assert metastore.next_events(7) == []
    assert metastore.next_events(70) == []


def test_events_are_read_by_type_and_table(metastore: AnyMetastore) -> None:
    metastore.create_table("default", "flights", location="/f", schema=[Column("id", "bigint")])
    txn_id = metastore.open_txn("me", "here")
    metastore.allocate_table_write_id(txn_id, "lake", "flights")
    metastore.commit_txn(txn_id)
    wanted = {EventType.COMMIT_TXN, EventType.ALLOC_WRITE_ID}
    assert [event.event_id for event in metastore.next_events(0, event_types=wanted)] == [5, 6]
    assert [event.event_id for event in metastore.next_events(0, table="Flights")] == [2, 3, 5]
    assert [event.event_id for event in metastore.next_events(0, table="flights", database="lake")] == [2, 5]
    assert [event.event_id for event in metastore.next_events(0, 1, event_types=wanted)] == [5]


@pytest.mark.parametrize(("after", "limit"), [(-1, 10), (0, 0), (0, -5)])
def test_positions_that_cannot_be_are_refused(metastore: AnyMetastore, after: int, limit: int) -> None:
    with pytest.raises(InvalidInputError, match="give after >= 0 and limit >= 1"):
        metastore.next_events(after, limit)


def test_a_consumer_begins_at_the_end_or_where_it_says(metastore: AnyMetastore) -> None:
    assert metastore.register_consumer("tail").event_id == 2
    assert metastore.register_consumer("whole", event_id=0).event_id == 0
    assert [(one.name, one.event_id) for one in metastore.consumers()] == [("tail", 2), ("whole", 0)]
    with pytest.raises(AlreadyExistsError, match="consumer 'tail' is registered at event 2"):
        metastore.register_consumer("tail", event_id=0)
    assert metastore.register_consumer("tail", event_id=0, if_not_exists=True).event_id == 2
    with pytest.raises(InvalidInputError, match="last event is 2"):
        metastore.register_consumer("ahead", event_id=3)
    with pytest.raises(InvalidInputError, match="needs a name"):
        metastore.register_consumer("")


def test_a_consumer_moves_only_forward(metastore: AnyMetastore) -> None:
    registered = metastore.register_consumer("replica", event_id=0)
    moved = metastore.advance_consumer("replica", 2)
    assert moved.event_id == 2
    assert moved.updated_at >= registered.updated_at
    assert metastore.advance_consumer("replica", 1).event_id == 2
    with pytest.raises(InvalidInputError, match="event 3 is not in the log"):
        metastore.advance_consumer("replica", 3)
    with pytest.raises(NoSuchObjectError, match="no consumer 'other'"):
        metastore.advance_consumer("other", 1)
    metastore.unregister_consumer("replica")
    assert metastore.consumers() == []
    with pytest.raises(NoSuchObjectError, match="no consumer 'replica'"):
        metastore.unregister_consumer("replica")


def test_a_consumer_that_applies_the_same_event_again_is_alive(metastore: AnyMetastore) -> None:
    metastore.register_consumer("replica", event_id=2)
    before = metastore.consumers()[0].updated_at
    while metastore.advance_consumer("replica", 2).updated_at <= before:
        pass
    assert metastore.consumers()[0].updated_at > before


def test_retention_removes_old_events_from_the_front(
    metastore: AnyMetastore, by_database: Metastore, url: str
) -> None:
    metastore.open_txn("me", "here")
    age_events(url, 2 * DAY, through=2)
    assert by_database.purge_events(DAY) == Purged(removed=2, oldest_event_id=3, held_back_by=())
    assert by_database.purge_events(DAY) == Purged(removed=0, oldest_event_id=3, held_back_by=())
    assert [event.event_id for event in metastore.next_events(2)] == [3]
    assert metastore.current_event_id() == 3
    metastore.open_txn("me", "here")
    assert metastore.current_event_id() == 4


def test_the_error_says_how_a_consumer_that_fell_behind_goes_on(
    metastore: AnyMetastore, by_database: Metastore, url: str
) -> None:
    age_events(url, 2 * DAY, through=2)
    by_database.purge_events(DAY)
    with pytest.raises(EventsExpiredError, match=r"events 2 to 2 were removed.*comes after 2") as caught:
        metastore.next_events(1)
    assert caught.value.details == {"after": 1, "purged_through": 2}
    with pytest.raises(EventsExpiredError):
        metastore.next_events(0, event_types=[EventType.COMMIT_TXN])
    with pytest.raises(EventsExpiredError) as caught:
        metastore.register_consumer("late", event_id=0)
    assert caught.value.details == {"after": 0, "purged_through": 2}
    assert metastore.consumers() == []
    assert metastore.next_events(2) == []


def test_retention_waits_for_the_slowest_consumer(
    metastore: AnyMetastore, by_database: Metastore, url: str
) -> None:
    for _ in range(8):
        metastore.open_txn("me", "here")
    metastore.register_consumer("fast")
    metastore.register_consumer("slow", event_id=4)
    metastore.register_consumer("slower", event_id=4)
    age_events(url, 2 * DAY, through=9)
    assert by_database.purge_events(DAY) == Purged(4, 5, ("slow", "slower"))
    assert [event.event_id for event in metastore.next_events(4)] == [5, 6, 7, 8, 9, 10]
    metastore.unregister_consumer("slower")
    metastore.advance_consumer("slow", 10)
    assert by_database.purge_events(DAY) == Purged(5, 10, ())
    assert by_database.purge_events(0) == Purged(1, 11, ())
    assert metastore.current_event_id() == 10


def test_a_young_event_keeps_the_older_ones_behind_it(
    metastore: AnyMetastore, by_database: Metastore, url: str
) -> None:
    """The log has no gap, even if a writer's clock was wrong."""
    metastore.open_txn("me", "here")
    age_events(url, 2 * DAY, through=3)
    age_events(url, -2 * DAY, through=1)
    assert by_database.purge_events(DAY).removed == 0
    assert len(metastore.next_events(0)) == 3


def test_a_consumer_that_is_gone_holds_nothing_back(
    metastore: AnyMetastore, by_database: Metastore, url: str
) -> None:
    for _ in range(8):
        metastore.open_txn("me", "here")
    metastore.register_consumer("gone", event_id=4, expiry_seconds=60)
    metastore.register_consumer("slow", event_id=6, expiry_seconds=60)
    age_events(url, 2 * DAY, through=10)
    assert by_database.purge_events(DAY) == Purged(4, 5, ("gone",))
    change_rows(url, "UPDATE metastore_consumers SET updated_at = updated_at - 61000 WHERE name = 'gone'")
    assert [(one.name, one.expiry_seconds, one.is_live) for one in metastore.consumers()] == [
        ("gone", 60.0, False),
        ("slow", 60.0, True),
    ]
    assert by_database.purge_events(DAY) == Purged(2, 7, ("slow",), ("gone",))


def test_a_consumer_that_fell_out_begins_again(
    metastore: AnyMetastore, by_database: Metastore, url: str
) -> None:
    for _ in range(8):
        metastore.open_txn("me", "here")
    metastore.register_consumer("gone", event_id=4, expiry_seconds=0.001)
    age_events(url, 2 * DAY, through=8)
    while metastore.consumers()[0].is_live:
        pass
    assert by_database.purge_events(DAY).left_behind == ("gone",)
    with pytest.raises(EventsExpiredError, match="events 5 to 8 were removed"):
        metastore.next_events(4)
    with pytest.raises(EventsExpiredError, match=r"restart a consumer \(restart_consumer\)"):
        metastore.advance_consumer("gone", 10)
    with pytest.raises(EventsExpiredError):
        metastore.restart_consumer("gone", event_id=7)
    with pytest.raises(InvalidInputError, match="last event is 10"):
        metastore.restart_consumer("gone", event_id=11)
    assert metastore.restart_consumer("gone").event_id == 10
    assert metastore.restart_consumer("gone", event_id=8).event_id == 8
    assert [event.event_id for event in metastore.next_events(8)] == [9, 10]
    assert metastore.advance_consumer("gone", 9).event_id == 9
    assert by_database.purge_events(DAY).left_behind == ()
    with pytest.raises(NoSuchObjectError, match="no consumer 'other'"):
        metastore.restart_consumer("other")


def test_a_silent_consumer_that_lost_nothing_just_goes_on(metastore: AnyMetastore) -> None:
    metastore.register_consumer("asleep", event_id=0, expiry_seconds=0.001)
    while metastore.consumers()[0].is_live:
        pass
    assert metastore.advance_consumer("asleep", 2).event_id == 2
    with pytest.raises(InvalidInputError, match="an expiry of 0 s"):
        metastore.register_consumer("never", expiry_seconds=0)
