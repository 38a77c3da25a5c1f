"""A heartbeat names its writer and shows that the writer is alive; a lost heartbeat stays lost."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from airflow_provider.concurrency.heartbeats.heartbeat import (
    HEARTBEAT_FOLDER,
    Heartbeat,
    HeartbeatInfo,
    ObservedHeartbeat,
    check_wanted,
    heartbeat_path,
    observe,
    observe_above,
    progress_of,
)
from airflow_provider.concurrency.heartbeats.settings import HeartbeatSettings
from airflow_provider.exceptions import HeartbeatExpiredError, InstantRolledBackError, InvalidInputError
from airflow_provider.table.storage.storage import Storage

INSTANT = "20260101000000000"
MINUTE = HeartbeatInfo(owner="host:17", priority=300, interval=20.0, tolerable_misses=3)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path / "t"))


@pytest.fixture
def heartbeat(storage: Storage) -> Heartbeat:
    storage.put(heartbeat_path(INSTANT), MINUTE.to_json())
    return Heartbeat(storage, INSTANT, MINUTE)


def beats(storage: Storage, instant: str, info: HeartbeatInfo, *, seconds_ago: float = 0.0) -> None:
    storage.put(heartbeat_path(instant), info.to_json())
    then = storage.clock(anew=True) - seconds_ago
    os.utime(storage.url(heartbeat_path(instant)), (then, then))


class TestObserved:
    def test_a_writer_is_dead_after_the_beats_that_it_may_miss_and_no_sooner(self) -> None:
        assert ObservedHeartbeat(INSTANT, MINUTE, 60.0).alive
        assert not ObservedHeartbeat(INSTANT, MINUTE, 60.1).alive

    def test_each_writer_has_its_own_tolerance(self, storage: Storage) -> None:
        patient = HeartbeatInfo(interval=60.0, tolerable_misses=10)
        beats(storage, INSTANT, MINUTE, seconds_ago=300.0)
        beats(storage, "20260101000000002", patient, seconds_ago=300.0)
        observed = observe(storage)
        assert {name: found.alive for name, found in observed.items()} == {
            INSTANT: False,
            "20260101000000002": True,
        }
        assert observed[INSTANT].info == MINUTE
        assert observed[INSTANT].age_seconds == pytest.approx(300.0, abs=60.0)

    def test_who_beats_ahead_of_the_storages_clock_is_of_no_age(self, storage: Storage) -> None:
        beats(storage, INSTANT, MINUTE, seconds_ago=-600.0)
        assert observe(storage)[INSTANT].age_seconds == 0.0
        assert observe_above(storage, 0)[INSTANT].age_seconds == 0.0

    def test_only_writers_above_a_priority_are_in_its_way(self, storage: Storage) -> None:
        beats(storage, INSTANT, MINUTE)
        assert [INSTANT in observe_above(storage, priority) for priority in (299, 300, 301)] == [
            True,
            False,
            False,
        ]

    def test_each_writer_above_a_priority_is_found_whoever_is_listed_before_it(
        self, storage: Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        beats(storage, INSTANT, HeartbeatInfo(priority=100))
        beats(storage, "20260101000000002", MINUTE)
        listed = ["no-instant", "20260101000000001", INSTANT, "20260101000000002"]  # one has ended just now
        monkeypatch.setattr(storage, "names", lambda folder: listed)
        assert list(observe_above(storage, 100)) == ["20260101000000002"]

    def test_the_storages_clock_is_read_once_as_long_as_all_live(
        self, storage: Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        beats(storage, INSTANT, MINUTE)
        read: list[bool] = []
        monkeypatch.setattr(storage, "_read_clock", lambda: read.append(True) or time.time())
        for _ in range(2):
            assert observe(storage)[INSTANT].alive
            assert observe_above(storage, 0)[INSTANT].alive
        assert len(read) == 0, "it was read when the heartbeat was put"

    def test_nobody_is_dead_on_the_word_of_an_older_look_at_the_clock(
        self, storage: Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        beats(storage, INSTANT, MINUTE)
        for look in (observe, lambda storage: observe_above(storage, 0)):
            monkeypatch.setattr(storage, "_clock", (time.monotonic(), time.time() + 3600.0))
            assert look(storage)[INSTANT].alive

    def test_who_has_been_silent_is_observed_as_dead_whatever_its_priority(self, storage: Storage) -> None:
        beats(storage, INSTANT, MINUTE, seconds_ago=300.0)
        assert not observe_above(storage, 299)[INSTANT].alive

    def test_an_empty_heartbeat_such_as_the_jvms_has_hudis_defaults(self, storage: Storage) -> None:
        storage.put(heartbeat_path(INSTANT), b"")
        storage.put(heartbeat_path("no-instant"), b"")
        (found,) = observe(storage).values()
        assert (found.info, found.info.tolerance) == (HeartbeatInfo(), 600.0)


class TestSettings:
    @pytest.mark.parametrize(("interval", "misses"), [(0.5, 1), (1, 2), (0.01, 1.0)])
    def test_what_can_be_kept(self, interval: float, misses: int) -> None:
        HeartbeatSettings(interval, misses)

    @pytest.mark.parametrize(("interval", "misses"), [(0, 6), (-1.0, 6), (10.0, 0), (True, 6), (10.0, True)])
    def test_what_cannot_be_kept(self, interval: float, misses: int) -> None:
        with pytest.raises(InvalidInputError, match="heartbeat_interval must be"):
            HeartbeatSettings(interval, misses)

    def test_a_text_is_no_number(self) -> None:
        with pytest.raises(InvalidInputError, match=r"a number of seconds.*not '10'"):
            HeartbeatSettings("10")  # type: ignore[arg-type]


class TestTask:
    def test_a_task_whose_write_was_rolled_back_takes_its_files_along(self, storage: Storage) -> None:
        storage.put(heartbeat_path(INSTANT), b"")
        storage.put("p/a.parquet", b"rows")
        check_wanted(storage, INSTANT, ["p/a.parquet"])
        assert storage.read("p/a.parquet") == b"rows"
        storage.delete(heartbeat_path(INSTANT))
        with pytest.raises(InstantRolledBackError, match=INSTANT):
            check_wanted(storage, INSTANT, ["p/a.parquet"])
        assert storage.stat("p/a.parquet") is None


class TestWriter:
    def test_it_says_how_far_the_write_is(self, storage: Storage, heartbeat: Heartbeat) -> None:
        assert progress_of(storage, INSTANT) is None
        heartbeat.tell("3 of 7 files")
        assert progress_of(storage, INSTANT) == "3 of 7 files"
        storage.delete(heartbeat_path(INSTANT))
        assert progress_of(storage, INSTANT) is None

    def test_it_is_lost_when_it_was_silent_for_longer_than_it_may(
        self, storage: Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        began = float(int(time.monotonic()))
        monkeypatch.setattr(time, "monotonic", lambda: began)
        heartbeat = Heartbeat(storage, INSTANT, MINUTE)
        monkeypatch.setattr(time, "monotonic", lambda: began + 60.0)
        heartbeat.check()
        monkeypatch.setattr(time, "monotonic", lambda: began + 61.0)
        with pytest.raises(HeartbeatExpiredError, match="no beat for"):
            heartbeat.check()
        monkeypatch.setattr(time, "monotonic", lambda: began)
        with pytest.raises(HeartbeatExpiredError, match="no beat for"):
            heartbeat.check()

    def test_a_beat_makes_up_for_the_silence_before(
        self, heartbeat: Heartbeat, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        began = time.monotonic()
        for seconds in (50.0, 100.0, 150.0):
            monkeypatch.setattr(time, "monotonic", lambda now=began + seconds: now)
            heartbeat.tell("on its way")
            heartbeat.check()

    def test_it_is_lost_when_others_took_its_file_away(self, storage: Storage, heartbeat: Heartbeat) -> None:
        storage.delete(heartbeat_path(INSTANT))
        heartbeat.tell("on its way")
        assert storage.stat(heartbeat_path(INSTANT)) is None, "it does not come back to life"
        with pytest.raises(HeartbeatExpiredError, match=r"is lost: its file was taken away.* for dead; the"):
            heartbeat.check()

    def test_it_is_lost_with_the_process_that_the_writer_drives(self, storage: Storage) -> None:
        storage.put(heartbeat_path(INSTANT), b"")
        heartbeat = Heartbeat(storage, INSTANT, MINUTE, is_alive=lambda: False)
        heartbeat.tell("on its way")
        assert storage.read(heartbeat_path(INSTANT)) == b""
        with pytest.raises(HeartbeatExpiredError, match=r"is lost: the process .* is gone; the"):
            heartbeat.check()

    def test_it_beats_by_itself_until_it_is_stopped(self, storage: Storage) -> None:
        storage.put(heartbeat_path(INSTANT), b"")
        often = HeartbeatInfo(owner="host:17", interval=0.01, tolerable_misses=100_000)
        heartbeat = Heartbeat(storage, INSTANT, often)
        for _ in range(3):
            storage.put(heartbeat_path(INSTANT), b"")
            while not storage.read(heartbeat_path(INSTANT)):
                time.sleep(0.01)
        assert HeartbeatInfo.from_json(storage.read(heartbeat_path(INSTANT))) == often
        heartbeat.stop()
        storage.put(heartbeat_path(INSTANT), b"stopped")
        time.sleep(0.1)
        assert storage.read(heartbeat_path(INSTANT)) == b"stopped"

    def test_once_it_is_lost_nobody_beats_any_more(self, storage: Storage) -> None:
        storage.put(heartbeat_path(INSTANT), b"")
        asked_by: list[threading.Thread] = []
        often = HeartbeatInfo(interval=0.01, tolerable_misses=100_000)

        def is_alive() -> bool:
            asked_by.append(threading.current_thread())
            return False

        heartbeat = Heartbeat(storage, INSTANT, often, is_alive)
        while not asked_by:
            time.sleep(0.01)
        asked_by[0].join(300.0)
        assert not asked_by[0].is_alive()
        heartbeat.stop()
        assert len(asked_by) == 1

    def test_who_stops_waits_no_longer_than_an_interval_for_a_beat_that_hangs(self, storage: Storage) -> None:
        storage.put(heartbeat_path(INSTANT), b"")
        begun, goes_on, ended = threading.Event(), threading.Event(), threading.Event()

        def hangs() -> bool:
            begun.set()
            goes_on.wait(300.0)  # longer than any machine takes to stop
            ended.set()
            return True

        heartbeat = Heartbeat(storage, INSTANT, HeartbeatInfo(interval=0.01, tolerable_misses=100_000), hangs)
        assert begun.wait(300.0)
        heartbeat.stop()
        assert not ended.is_set()
        goes_on.set()
        assert ended.wait(300.0)

    def test_a_beat_that_fails_is_missed_and_no_more(self, tmp_path: Path) -> None:
        class Fails(Storage):
            def put(self, path: str, data: bytes) -> None:
                raise OSError("the storage does not answer")

        Storage(str(tmp_path / "t")).put(heartbeat_path(INSTANT), b"")
        heartbeat = Heartbeat(Fails(str(tmp_path / "t")), INSTANT, MINUTE)
        heartbeat.tell("on its way")
        heartbeat.check()

    def test_a_readers_heartbeat_lies_in_the_readers_folder(self, storage: Storage) -> None:
        storage.put("readers/me", b"")
        Heartbeat(storage, "me", MINUTE, folder="readers").tell("reading")
        assert HeartbeatInfo.from_json(storage.read("readers/me")).progress == "reading"
        assert list(storage.names(HEARTBEAT_FOLDER)) == []
