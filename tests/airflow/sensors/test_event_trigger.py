"""The trigger that starts DAGs, with Airflow's own shared streams: its deliveries, and its cursor's moves."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import asynccontextmanager, closing
from importlib import import_module
from types import SimpleNamespace

import pytest
from airflow.sdk import Asset, AssetWatcher
from airflow.sdk.exceptions import AirflowSkipException
from airflow.serialization.encoders import encode_trigger
from airflow.triggers.base import BaseEventTrigger
from airflow.triggers.shared_stream import SharedStreamManager

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.metastore import Column
from airflow_provider.triggers import NotificationLogEventTrigger, notification_event
from airflow_provider.triggers.notification_log import CatchUp

SECRET = "geheim-4711-geheim"
IS_3_4 = hasattr(BaseEventTrigger, "queue")


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Make the trigger look again soon after an error."""
    monkeypatch.setattr(notification_event, "_PAUSE_AFTER_ERROR", 0.1)


@pytest.fixture
def lake(metastore):
    """A metastore with the table ``lake.flights``."""
    metastore.create_database("lake")
    metastore.create_table("lake", "flights", location="/lake/flights", schema=[Column("id", "bigint")])
    return metastore


def watching(**arguments) -> NotificationLogEventTrigger:
    defaults = {"consumer": "report", "table": "lake.flights", "event_types": ["INSERT"]}
    return NotificationLogEventTrigger(**{**defaults, "poll_interval": 0.05, **arguments})


def insert(metastore, *files: str, table: str = "flights") -> int:
    return metastore.fire_insert_event("lake", table, files)


def cursor(metastore, name: str = "report") -> int:
    return next(consumer.event_id for consumer in metastore.consumers() if consumer.name == name)


def ids(payload) -> list[int]:
    assert json.loads(json.dumps(payload)) == payload
    return [event["event_id"] for event in payload["events"]]


async def until(condition):
    async with asyncio.timeout(300):
        while not condition():
            await asyncio.sleep(0.02)


class Triggerer:
    """Runs one trigger as Airflow's triggerer does (TriggerRunner.run_trigger), without its database."""

    def __init__(self, trigger: BaseEventTrigger, manager: SharedStreamManager, trigger_id: int = 1) -> None:
        path, arguments = trigger.serialize()
        assert json.loads(json.dumps(arguments)) == arguments
        module, _, name = path.rpartition(".")
        self._trigger = getattr(import_module(module), name)(**arguments)
        self._manager = manager
        self._id = trigger_id
        self._key = self._trigger.shared_stream_key()
        stream = manager.subscribe(trigger_id=trigger_id, trigger=self._trigger, key=self._key)
        self._task = asyncio.create_task(self._run(self._trigger.filter_shared_stream(stream)))
        self._events: asyncio.Queue = asyncio.Queue()
        self._last: int | None = None

    async def _run(self, stream) -> None:
        try:
            async for event in stream:
                bound = self._manager.bind_pending_event(trigger_id=self._id, key=self._key)
                self._events.put_nowait((event.payload, bound))
        except Exception as error:
            self._events.put_nowait((error, None))

    async def event(self, *, stored: bool = True):
        """The next payload, or the error with which the trigger ended."""
        payload, bound = await asyncio.wait_for(self._events.get(), 300)
        if stored and bound is not None:
            self._manager.confirm_persisted([bound])
        return payload

    async def killed(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._manager.unsubscribe(self._id, self._key)


@asynccontextmanager
async def triggerer(trigger: BaseEventTrigger, **options):
    manager = SharedStreamManager(**options)
    running = Triggerer(trigger, manager)
    try:
        yield running
    finally:
        await running.killed()
        await manager.stop_all()


def test_events_are_delivered_in_order_and_once_stored_not_again(lake):
    async def follow():
        async with triggerer(watching()) as running:
            await until(lambda: lake.consumers())
            first = insert(lake, "/lake/flights/a.parquet")
            payload = await running.event(stored=False)
            assert payload["consumer"] == "report"
            assert payload["missed"] is None
            assert payload["event_id"] == first
            [told] = payload["events"]
            assert told.items() >= {"event_type": "INSERT", "database": "lake", "table": "flights"}.items()
            assert "message" not in told
            assert cursor(lake) < first, "Airflow has not stored it"
        async with triggerer(watching(with_message=True)) as running:
            payload = await running.event()
            assert ids(payload) == [first], "what was not stored comes again"
            assert payload["events"][0]["message"]["files"] == ["/lake/flights/a.parquet"]
            await until(lambda: cursor(lake) == lake.current_event_id())
            later = [insert(lake) for _ in range(3)]
            got = []
            while got != later:
                got += ids(await running.event())
        async with triggerer(watching()) as running:
            last = insert(lake)
            while last not in (got := ids(await running.event())):
                assert set(got) <= set(later[-1:]), "only the last delivery may be told again"

    asyncio.run(follow())


def test_a_delivery_that_airflow_never_stores_ends_the_trigger_and_comes_again(lake):
    async def follow():
        lake.register_consumer("report")
        first = insert(lake)
        # The manager looks for late streams at most once a second.
        async with triggerer(watching(), ack_timeout=0.2) as running:
            assert ids(await running.event(stored=False)) == [first]
            error = await running.event()
            assert isinstance(error, Exception), error
        assert cursor(lake) < first
        async with triggerer(watching()) as running:
            assert ids(await running.event()) == [first]

    asyncio.run(follow())


def test_what_it_does_not_want_moves_the_cursor_and_starts_nothing(lake):
    async def follow():
        lake.create_table("lake", "trains", location="/lake/trains", schema=[Column("id", "bigint")])
        async with triggerer(watching(start_event_id=0)) as running:
            await until(lake.consumers)
            insert(lake, table="trains")
            lake.commit_txn(lake.open_txn("me", "here"))
            await until(lambda: cursor(lake) == lake.current_event_id())
            wanted = insert(lake)
            assert ids(await running.event()) == [wanted]

    asyncio.run(follow())


def test_so_many_at_once_and_no_more(lake):
    lake.register_consumer("report")
    inserted = [insert(lake) for _ in range(5)]

    async def follow():
        async with triggerer(watching(max_events=2)) as running:
            deliveries = [ids(await running.event()) for _ in range(3)]
        assert deliveries == [inserted[:2], inserted[2:4], inserted[4:]]

    asyncio.run(follow())


def test_of_a_database_or_of_everything(lake):
    lake.register_consumer("all", event_id=0)
    lake.register_consumer("sea", event_id=0)
    lake.create_database("sea")

    async def first(**arguments):
        async with triggerer(watching(table=None, event_types=None, **arguments)) as running:
            return [event["event_type"] for event in (await running.event())["events"]]

    everything = [event.event_type for event in lake.next_events(0)]
    assert asyncio.run(first(consumer="all")) == everything
    assert asyncio.run(first(consumer="sea", database="sea")) == ["CREATE_DATABASE"]


def expire(lake, tmp_path) -> int:
    """Let a consumer ``report`` fall out of retention; return the last event that retention has removed."""
    lake.register_consumer("report", expiry_seconds=600)
    insert(lake)
    insert(lake)
    with closing(sqlite3.connect(tmp_path / "metastore.db")) as database, database:
        database.execute("UPDATE metastore_consumers SET updated_at = updated_at - 1000000")
        database.execute("UPDATE metastore_notification_log SET event_time = event_time - 1000000")
    assert lake.purge_events(3600).left_behind == ("report",)
    return lake.current_event_id()


def test_a_cursor_that_fell_out_of_retention_waits_for_a_person(lake, tmp_path, caplog):
    async def follow():
        head = expire(lake, tmp_path)
        async with triggerer(watching()) as running:
            await until(lambda: "consumer report: events " in caplog.text)
            assert "were removed by retention" in caplog.text
            lake.restart_consumer("report")
            wanted = insert(lake)
            assert ids(await running.event()) == [wanted]
            assert wanted > head

    asyncio.run(follow())


def test_or_begins_again_at_the_logs_end_and_says_what_was_missed(lake, tmp_path, caplog):
    async def follow():
        known = lake.current_event_id()
        head = expire(lake, tmp_path)
        async with triggerer(watching(restart=True)) as running:
            payload = await running.event()
            assert payload["missed"] == {"after": known, "through": head}
            assert ids(payload) == []
            await until(lambda: cursor(lake) == head)
            wanted = insert(lake)
            assert ids(await running.event()) == [wanted]
        assert f"fell out of retention and begins again at {head}" in caplog.text

    asyncio.run(follow())


def test_a_new_cursor_begins_with_what_is_left(lake, tmp_path):
    expire(lake, tmp_path)
    left = insert(lake)

    async def follow():
        async with triggerer(watching(consumer="late", start_event_id=0)) as running:
            assert ids(await running.event()) == [left]

    asyncio.run(follow())


def test_a_cursor_that_a_person_moves_back_or_forgets(lake):
    lake.register_consumer("report")
    first = insert(lake)

    async def follow():
        async with triggerer(watching()) as running:
            assert ids(await running.event()) == [first]
            await until(lambda: cursor(lake) > first)
            lake.restart_consumer("report", event_id=first - 1)
            assert ids(await running.event()) == [first]
            await until(lambda: cursor(lake) > first)
            lake.unregister_consumer("report")
            await until(lake.consumers)
            second = insert(lake)
            assert ids(await running.event()) == [second]

    asyncio.run(follow())


def test_a_metastore_that_is_away_is_looked_for_again(connect, tmp_path, caplog):
    blocker = tmp_path / "file"
    blocker.touch()
    url = f"sqlite:///{blocker}/metastore.db"
    connect("table_metastore_default", conn_type="table_metastore", extra=json.dumps({"url": url}))

    async def follow():
        async with triggerer(watching(table=None, event_types=None, start_event_id=0)) as running:
            await until(lambda: "looking again in 0.1 s" in caplog.text)
            blocker.unlink()
            opened = notification_event.open_metastore(url)
            opened.create_database("lake")
            assert (await running.event())["events"]
            opened.close()

    asyncio.run(follow())


def test_two_watchers_with_one_cursor_are_told_so(lake):
    async def follow():
        manager = SharedStreamManager()
        lake.register_consumer("report")
        one = Triggerer(watching(), manager, 1)
        other = Triggerer(watching(table="lake.trains"), manager, 2)
        insert(lake)
        errors = [await one.event(), await other.event()]
        await one.killed()
        await other.killed()
        await manager.stop_all()
        [error] = [each for each in errors if isinstance(each, Exception)]
        assert isinstance(error, InvalidInputError)
        assert "two watchers use the consumer 'report'" in str(error)

    asyncio.run(follow())


def test_without_a_triggerer_the_next_call_counts_as_stored(lake):
    lake.register_consumer("report")
    first = insert(lake)

    async def follow():
        stream = aiter(watching().run())
        assert ids((await anext(stream)).payload) == [first]
        assert cursor(lake) < first
        following = asyncio.ensure_future(anext(stream))
        await until(lambda: cursor(lake) > first)
        second = insert(lake)
        assert ids((await following).payload) == [second]

    asyncio.run(follow())


async def deliveries(lake, count: int) -> list[dict]:
    """The deliveries of the example DAG's trigger for this many changes, one change at a time."""
    lake.register_consumer("flights_arrivals_trigger")
    for number in range(count):
        insert(lake, f"/lake/flights/{number}.parquet")
    async with triggerer(watching(consumer="flights_arrivals_trigger", max_events=1)) as running:
        return [await running.event() for _ in range(count)]


@pytest.mark.parametrize(
    ("runs", "handled"),
    [
        ([[0], [1], [2]], [3, None, None]),  # Airflow 3.4: a run for each delivery
        ([[0], [2], [1], [1]], [3, None, None, None]),  # from then on in any order, some deliveries twice
        ([[0, 1, 2]], [3]),  # Airflow 3.3: one run for several deliveries
        ([[0], [2, 1]], [3, None]),
    ],
)
def test_the_example_does_once_what_is_delivered_in_one_run_or_in_many(table, metastore, runs, handled):
    from dags_examples.flights_arrivals import ARRIVALS, count

    payloads = asyncio.run(deliveries(metastore, 3))
    told = [ids(payload)[0] for payload in payloads]

    def run(chosen: list[int]) -> list[int] | None:
        events = [SimpleNamespace(extra={"payload": payloads[number]}) for number in chosen]
        try:
            return count.function(triggering_asset_events={ARRIVALS: events})["events"]
        except AirflowSkipException:
            return None

    done = [run(chosen) for chosen in runs]
    assert [None if each is None else len(each) for each in done] == handled
    assert done[0] == told
    later = insert(metastore)
    assert run([0]) == [later], "a late delivery wakes it for what is new"
    assert run([0]) is None


def test_who_wants_some_events_only_has_caught_up_when_it_has_looked(table, metastore):
    from dags_examples.flights_arrivals import ARRIVALS, count

    [payload] = asyncio.run(deliveries(metastore, 1))
    committed = metastore.commit_txn(metastore.open_txn("me", "here"))
    events = [SimpleNamespace(extra={"payload": payload})]
    count.function(triggering_asset_events={ARRIVALS: events})
    # flights.py waits after its load for every consumer, and for an event that is no INSERT.
    waited_for = CatchUp(until=committed, txn_id=None, consumers=["flights_arrivals"], gone_after=600)
    assert waited_for.look(metastore).is_done
    later = metastore.commit_txn(metastore.open_txn("me", "here"))
    with pytest.raises(AirflowSkipException):
        count.function(triggering_asset_events={ARRIVALS: events})
    assert cursor(metastore, "flights_arrivals") == later


@pytest.fixture
def airflow_3_4(monkeypatch):
    """Give an older Airflow the constructor of 3.4."""

    def construct(self, *, queue: str | None = None, **arguments):
        super(BaseEventTrigger, self).__init__(**arguments)
        self.asset_state_store = None
        self.queue = queue

    if not IS_3_4:
        monkeypatch.setattr(BaseEventTrigger, "__init__", construct)


def test_the_queue_of_airflow_3_4_is_passed_on(airflow_3_4):
    """Airflow stores the queue beside the trigger; it is no argument when a triggerer makes the trigger."""
    trigger = watching(queue="lake")
    assert trigger.queue == "lake"
    assert watching().queue is None
    assert trigger.serialize() == watching().serialize()
    assert trigger.shared_stream_key() == watching().shared_stream_key()
    encoded = encode_trigger(trigger)
    assert encoded.pop("queue", None) == ("lake" if IS_3_4 else None)
    assert encoded == encode_trigger(watching())


def test_nothing_secret_is_serialised(connect, metastore):
    connect("lake", conn_type="table_metastore", host="db", password=SECRET, extra='{"dialect": "sqlite"}')
    trigger = watching(metastore_conn_id="lake")
    assert SECRET not in repr(trigger) + json.dumps(trigger.serialize())
    Asset("arrivals", watchers=[AssetWatcher("inserts", trigger=trigger)])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"consumer": ""}, "needs a name"),
        ({"event_types": ["INSERTION"]}, "known are .*INSERT"),
        ({"event_types": []}, "give one at least"),
        ({"event_types": ["COMMIT_TXN"]}, "a transaction's events are of no table"),
        ({"table": "flights"}, r"database\.table"),
        ({"database": "lake"}, "leave one out"),
        ({"max_events": 0}, "give more than 0"),
        ({"poll_interval": 0}, "give more than 0"),
        ({"expiry_seconds": 0.1}, "four poll intervals"),
    ],
)
def test_what_cannot_work_fails_where_the_dag_is_written(arguments, said):
    with pytest.raises(InvalidInputError, match=said):
        watching(**arguments)
