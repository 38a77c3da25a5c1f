"""The files of readers: leases in a folder of their own, and consumers with a checkpoint."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider.concurrency.heartbeats.heartbeat import HeartbeatInfo
from airflow_provider.concurrency.readers import (
    CONSUMERS_FOLDER,
    READERS_FOLDER,
    forget_consumer,
    reader_lease,
    register_consumer,
    registered_consumers,
)
from airflow_provider.exceptions import InvalidInputError
from airflow_provider.table import HudiTable
from airflow_provider.table.storage.storage import FileStatus, Storage

CHECKPOINT = "20240101000000000"


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    schema = pa.schema({"id": pa.int64()})
    return HudiTable.create(str(tmp_path / "t"), name="t", schema=schema, record_key=["id"])


def test_a_lease_beats_where_it_was_taken(table: HudiTable) -> None:
    with reader_lease(table) as lease:
        lease.tell("half of it")
        lease.check()
        (file,) = table.storage.list(READERS_FOLDER)
        assert HeartbeatInfo.from_json(table.storage.read(file.path)).progress == "half of it"


def test_where_no_consumer_is_nothing_is_put_to_read_the_clock(
    table: HudiTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Storage, "_read_clock")
    assert registered_consumers(HudiTable.open(table.location).storage) == []


def test_consumers_are_told_by_name_with_what_they_have_said(table: HudiTable) -> None:
    register_consumer(table, "b.1-2_3", CHECKPOINT, expires_after=0.5)
    register_consumer(table, "a", CHECKPOINT)
    first, second = registered_consumers(table.storage)
    assert (first.name, first.checkpoint, first.expires_after) == ("a", CHECKPOINT, 7 * 24 * 3600.0)
    assert (second.name, second.checkpoint, second.expires_after) == ("b.1-2_3", CHECKPOINT, 0.5)


def test_a_consumer_that_is_ahead_of_the_storages_clock_is_of_no_age(
    table: HudiTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    register_consumer(table, "billing", CHECKPOINT)
    monkeypatch.setattr(Storage, "_read_clock", lambda _: 0.0)
    (found,) = registered_consumers(table.storage)
    assert found.age_seconds == 0.0


def test_no_consumer_expires_on_the_word_of_an_older_look_at_the_clock(
    table: HudiTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    register_consumer(table, "billing", CHECKPOINT, expires_after=3600.0)
    here = table.storage.clock(anew=True)
    monkeypatch.setattr(table.storage, "_clock", (time.monotonic(), here + 7200.0))
    (found,) = registered_consumers(table.storage)
    assert not found.is_expired


def test_a_consumer_that_is_forgotten_while_they_are_listed_hides_no_other(table: HudiTable) -> None:
    for name in ("a", "b"):
        register_consumer(table, name, CHECKPOINT)

    class Stale(Storage):
        def list(self, path: str, *, recursive: bool = False) -> list[FileStatus]:
            found: Iterable[FileStatus] = super().list(path, recursive=recursive)
            listed = sorted(found, key=lambda status: status.name)
            if path == CONSUMERS_FOLDER:
                forget_consumer(table, "a")
            return listed

    assert [found.name for found in registered_consumers(Stale(table.location))] == ["b"]


@pytest.mark.parametrize(("name", "expires_after"), [("a/b", 3600.0), ("a", 0.0), ("a", -1.0)])
def test_a_wrong_name_or_a_wrong_expiry_is_refused_each_by_itself(
    table: HudiTable, name: str, expires_after: float
) -> None:
    with pytest.raises(InvalidInputError, match="a consumer has a name of letters"):
        register_consumer(table, name, CHECKPOINT, expires_after=expires_after)
    assert registered_consumers(table.storage) == []
