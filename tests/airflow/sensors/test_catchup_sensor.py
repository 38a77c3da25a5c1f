"""The sensor that waits for consumers of the notification log, in a worker and in the triggerer."""

from __future__ import annotations

import json
import re
import sqlite3
import threading
import time
from contextlib import closing
from datetime import timedelta

import pytest
from airflow.sdk.exceptions import (
    AirflowFailException,
)

from airflow_provider.exceptions import (
    ConsumerGoneError,
    InvalidInputError,
    MetastoreUnavailableError,
    NoSuchObjectError,
    NoSuchTransactionError,
    TransactionAbortedError,
)
from airflow_provider.metastore import open_metastore
from airflow_provider.sensors import NotificationLogCatchupSensor
from tests.airflow.sensors.deferral import run_trigger


class TestNotificationLogCatchup:
    def test_all_registered_consumers_must_be_there_unless_named(self, metastore):
        metastore.register_consumer("replica")
        metastore.register_consumer("index")
        metastore.create_database("lake")
        until = metastore.current_event_id()
        metastore.advance_consumer("replica", until)

        progress = NotificationLogCatchupSensor(task_id="t", until=until).look()
        assert progress.blocking == (f"consumer 'index' is at event {until - 1}, 1 behind {until}",)
        named = NotificationLogCatchupSensor(task_id="t", until=str(until), consumers=["replica"]).look()
        assert named.is_done
        assert named.result == {"event_id": until, "consumers": {"replica": until}}

    def test_without_consumers_it_waits_for_the_log_itself(self, metastore):
        head = metastore.current_event_id()
        assert NotificationLogCatchupSensor(task_id="t", until=head).look().is_done
        blocking = NotificationLogCatchupSensor(task_id="t", until=head + 1).look().blocking
        assert blocking == (f"notification log is at event {head}, not yet at {head + 1}",)

    def test_a_consumer_that_is_not_registered_is_an_error_in_worker_and_triggerer(self, metastore):
        metastore.register_consumer("replica")
        sensor = NotificationLogCatchupSensor(task_id="t", until=10**6, consumers=["nobody"])
        with pytest.raises(
            AirflowFailException,
            match=r"NoSuchObjectError: .*'nobody' is not registered.*registered: replica",
        ):
            sensor.execute({})

        waiting = NotificationLogCatchupSensor(
            task_id="t", until=10**6, consumers=["replica"], poke_interval=0.1, deferrable=True
        )
        with pytest.raises(NoSuchObjectError, match="'replica' is not registered"):
            run_trigger(waiting, later=lambda: metastore.unregister_consumer("replica"))

    @pytest.mark.parametrize("until", ["None", "", "-3", "12.5", "{{ x }}", {"event_id": None}])
    def test_what_is_no_event_id_is_refused(self, metastore, until):
        with pytest.raises(InvalidInputError, match="no event id"):
            NotificationLogCatchupSensor(task_id="t", until=until).look()

    def test_what_is_waited_for_is_one_thing(self, metastore):
        with pytest.raises(InvalidInputError, match="two things"):
            NotificationLogCatchupSensor(task_id="t", until=1, txn_id=1)
        with pytest.raises(InvalidInputError, match="'t' waits for nothing"):
            NotificationLogCatchupSensor(task_id="t")
        with pytest.raises(InvalidInputError, match="no txn id"):
            NotificationLogCatchupSensor(task_id="t", txn_id="soon").look()

    @pytest.mark.parametrize("deferrable", [False, True])
    def test_a_transaction_is_waited_for_until_it_has_ended_and_was_read(self, metastore, deferrable):
        metastore.register_consumer("replica")
        txn_id = metastore.open_txn("me", "here")
        sensor = NotificationLogCatchupSensor(
            task_id="t", txn_id=str(txn_id), poke_interval=0.1, timeout=300, deferrable=deferrable
        )
        assert sensor.look().blocking == (f"transaction {txn_id} is open",)

        def commit() -> None:
            committed.append(metastore.commit_txn(txn_id))
            time.sleep(0.3)
            metastore.advance_consumer("replica", committed[0])

        committed: list[int] = []
        if deferrable:
            result = run_trigger(sensor, later=commit)
        else:
            threading.Timer(0.3, commit).start()
            result = sensor.execute({})
        assert result == {"event_id": committed[0], "consumers": {"replica": committed[0]}}

    def test_a_transaction_that_was_aborted_or_never_opened_is_an_error(self, metastore):
        txn_id = metastore.open_txn("me", "here")
        metastore.abort_txn(txn_id)
        with pytest.raises(TransactionAbortedError, match=f"transaction {txn_id} was aborted"):
            NotificationLogCatchupSensor(task_id="t", txn_id=txn_id).look()
        with pytest.raises(NoSuchTransactionError):
            NotificationLogCatchupSensor(task_id="t", txn_id=99).look()

    def test_the_result_of_an_ingestion_says_both(self, metastore):
        txn_id = metastore.open_txn("me", "here")
        result = {"txn_id": txn_id, "event_id": metastore.commit_txn(txn_id), "rows_inserted": 3}
        metastore.register_consumer("replica")
        for argument in ("until", "txn_id"):
            found = NotificationLogCatchupSensor(task_id="t", **{argument: result}).execute({})
            assert found["event_id"] == result["event_id"]

    def test_the_log_says_how_far_each_is_and_at_what_rate_and_nothing_twice(self, metastore, capfd):
        metastore.register_consumer("replica")
        begin = metastore.current_event_id()
        for _ in range(8):
            metastore.open_txn("me", "here")
        until = begin + 8
        sensor = NotificationLogCatchupSensor(task_id="t", until=until)
        started = time.monotonic()

        def said() -> list[str]:
            sensor.poke({})
            return re.findall(r"waiting: (.*?) \[", capfd.readouterr().out)

        assert said() == [f"consumer 'replica' is at event {begin}, 8 behind {until}"]
        assert said() == []
        time.sleep(0.5)
        metastore.advance_consumer("replica", begin + 2)
        [line] = said()
        slowest = 2 / (time.monotonic() - started)
        where = f"consumer 'replica' is at event {begin + 2}, 6 behind {until}"
        form = rf"{where}, (\S+) events/s, 0:00:(\d\d) left at that rate"
        rate, left = map(float, re.fullmatch(form, line).groups())
        assert slowest * 0.99 <= rate <= 2 / 0.5
        assert abs(left - 6 / rate) <= 1
        assert said() == []
        metastore.restart_consumer("replica", event_id=begin)
        assert said() == [f"consumer 'replica' is at event {begin}, 8 behind {until}"]

    def test_the_triggerers_log_says_nothing_twice_either(self, metastore, capfd):
        metastore.register_consumer("replica")
        metastore.create_database("lake")
        until = metastore.current_event_id()
        sensor = NotificationLogCatchupSensor(
            task_id="t", until=until, poke_interval=0.05, timeout=300, deferrable=True
        )
        run_trigger(sensor, later=lambda: metastore.advance_consumer("replica", until))
        # The worker looked once, then the triggerer many times.
        assert len(re.findall("waiting: consumer 'replica'", capfd.readouterr().out)) == 2

    @pytest.mark.parametrize("deferrable", [False, True])
    def test_a_consumer_that_is_gone_is_an_error(self, metastore, tmp_path, deferrable):
        started = time.monotonic()
        metastore.register_consumer("replica")
        metastore.create_database("lake")
        sensor = NotificationLogCatchupSensor(
            task_id="t",
            until=metastore.current_event_id(),
            gone_after=timedelta(seconds=2),
            poke_interval=0.1,
            timeout=300,
            deferrable=deferrable,
        )
        wait = run_trigger if deferrable else NotificationLogCatchupSensor.execute
        arguments = {"timeout": 300} if deferrable else {"context": {}}
        with pytest.raises(ConsumerGoneError, match=r"'replica' is at event .* no sign of life for") as gone:
            wait(sensor, **arguments)
        assert time.monotonic() - started > 1
        assert "table-services metastore forget replica" in str(gone.value)

    def test_a_consumer_with_nothing_to_read_or_a_sign_of_life_is_not_gone(self, metastore, tmp_path):
        def silent(seconds: int, *, events: int) -> None:
            with closing(sqlite3.connect(tmp_path / "metastore.db")) as database, database:
                database.execute(
                    "UPDATE metastore_consumers SET updated_at = updated_at - ?", (seconds * 1000,)
                )
                database.execute(
                    "UPDATE metastore_notification_log SET event_time = event_time - ?", (events,)
                )

        metastore.register_consumer("replica")
        silent(1000, events=1000)
        metastore.create_database("lake")
        until = metastore.current_event_id()
        sensor = NotificationLogCatchupSensor(task_id="t", until=until)
        assert not sensor.look().is_done, "it was silent for long, because nothing happened"
        silent(1000, events=1000)
        with pytest.raises(ConsumerGoneError):
            sensor.look()
        metastore.advance_consumer("replica", until - 1)
        assert not sensor.look().is_done, "it works, slowly"
        ahead = NotificationLogCatchupSensor(task_id="t", until=until + 5)
        metastore.advance_consumer("replica", until)
        silent(1000, events=0)
        assert not ahead.look().is_done, "there is nothing to read"

    def test_a_consumer_that_fell_out_of_retention_cannot_come_there(self, metastore, tmp_path):
        metastore.register_consumer("replica", expiry_seconds=600)
        metastore.create_database("lake")
        metastore.create_database("sea")
        with closing(sqlite3.connect(tmp_path / "metastore.db")) as database, database:
            database.execute("UPDATE metastore_consumers SET updated_at = updated_at - 1000000")
            database.execute("UPDATE metastore_notification_log SET event_time = event_time - 1000000")
        metastore.purge_events(3600)
        sensor = NotificationLogCatchupSensor(task_id="t", until=metastore.current_event_id())
        with pytest.raises(
            ConsumerGoneError, match=r"it cannot come there: events .* were removed by retention"
        ):
            sensor.look()

    @pytest.mark.parametrize("deferrable", [False, True])
    def test_an_unreachable_metastore_is_tried_again_a_few_times_and_then_an_error(
        self, connect, tmp_path, monkeypatch, deferrable
    ):
        pauses = []
        monkeypatch.setattr("tenacity.nap.time.sleep", pauses.append)
        (tmp_path / "file").touch()
        url = f"sqlite:///{tmp_path}/file/metastore.db"
        connect("table_metastore_default", conn_type="table_metastore", extra=json.dumps({"url": url}))
        sensor = NotificationLogCatchupSensor(task_id="t", until=1, deferrable=deferrable)
        with pytest.raises(MetastoreUnavailableError):
            sensor.execute({})
        assert len(pauses) == 4

    def test_a_metastore_that_comes_back_in_time_is_waited_for(
        self, connect, metastore, tmp_path, monkeypatch
    ):
        folder, aside = tmp_path / "disk", tmp_path / "aside"
        url = f"sqlite:///{folder}/metastore.db"
        open_metastore(url).close()
        folder.rename(aside)
        folder.touch()

        def comes_back(seconds):
            if aside.exists():
                folder.unlink()
                aside.rename(folder)

        connect("table_metastore_default", conn_type="table_metastore", extra=json.dumps({"url": url}))
        monkeypatch.setattr("tenacity.nap.time.sleep", comes_back)
        sensor = NotificationLogCatchupSensor(task_id="t", until=0)
        assert sensor.execute({}) == {"event_id": 0, "consumers": {}}
