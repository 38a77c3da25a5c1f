"""``hoodie.table.timeline.timezone`` is LOCAL: instant times are in the zone of the JVMs that write."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from airflow_provider.concurrency import CommitResult, find_operation
from airflow_provider.exceptions import InvalidInputError, SnapshotNotSettledError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.properties import (
    PROPERTIES_PATH,
    TIMELINE_ZONE,
    dump_properties,
    parse_properties,
)
from airflow_provider.table.timeline.instant import format_time, parse_time
from airflow_provider.table.timeline.zone import timeline_zone

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])
ZONES = ("America/Chicago", "Asia/Tokyo", "Asia/Kathmandu", "Pacific/Kiritimati", "Pacific/Pago_Pago", "UTC")


def of_a_jvm_in(zone: str, location: Path, *, seconds_late: float = 0.0) -> HudiTable:
    """A table as a JVM in the zone leaves it: every name with a time has the zone's time.

    :param seconds_late: seconds from an instant's time until the JVM put it.
    """
    table = HudiTable.create(str(location), name="t", schema=SCHEMA, record_key=["id"])
    result = ingest_arrow(table, rows("a", "b"), "insert")
    for part in ("commit_log", "metadata"):
        shutil.rmtree(location / ".hoodie" / part, ignore_errors=True)
    now = datetime.now(UTC)
    local = format_time(now - timedelta(milliseconds=200), ZoneInfo(zone))
    for file in list(location.rglob("*" + result["instant"] + "*")):
        name = file.name.replace(result["instant"], local)
        if "_" in name and file.parent.name == "timeline":
            name = f"{local}_{format_time(now, ZoneInfo(zone))}.commit"
        os.utime(file, (now.timestamp() + seconds_late,) * 2)
        file.rename(file.with_name(name))
    content = (
        location
        / ".hoodie/timeline"
        / next(each.name for each in (location / ".hoodie/timeline").iterdir() if "_" in each.name)
    )
    assert content.exists()
    properties = parse_properties((location / PROPERTIES_PATH).read_text())
    properties["hoodie.table.timeline.timezone"] = "LOCAL"
    for name in ("hoodie.table.metadata.partitions", "hoodie.table.metadata.partitions.inflight"):
        properties.pop(name, None)
    (location / PROPERTIES_PATH).write_text(dump_properties(properties))
    rename_files_in(content, result["instant"], local)
    return HudiTable.open(str(location))


def rename_files_in(commit: Path, instant: str, local: str) -> None:
    """Rename files, also inside Avro, because old and new names have the same length."""
    os_times = commit.stat()
    commit.write_bytes(commit.read_bytes().replace(instant.encode(), local.encode()))
    os.utime(commit, (os_times.st_atime, os_times.st_mtime))


def rows(*keys: str, v: int = 0) -> pa.Table:
    return pa.table({"id": list(keys), "v": [v] * len(keys)}, SCHEMA)


def shown(location: Path, moment: str | None = None) -> dict[str, int]:
    found = snapshot(HudiTable.open(str(location)), as_of=moment).to_table().to_pylist()
    return {row["id"]: row["v"] for row in found}


@pytest.mark.parametrize("zone", ZONES)
def test_what_is_written_comes_after_the_jvms_and_not_before_its_next(zone: str, tmp_path: Path) -> None:
    location = tmp_path / "t"
    table = of_a_jvm_in(zone, location)
    [theirs] = table.timeline().completed()
    ours = ingest_arrow(str(location), rows("a", v=1), "upsert")
    assert theirs.completion_time is not None
    assert ours["instant"] > theirs.completion_time
    # The JVM's next instant, at any later moment by its clock, is later.
    assert ours["completion_time"] < format_time(datetime.now(UTC) + timedelta(seconds=2), ZoneInfo(zone))
    assert shown(location) == {"a": 1, "b": 0}
    assert shown(location, theirs.completion_time) == {"a": 0, "b": 0}


def test_a_time_in_the_zone_is_the_past_there(tmp_path: Path) -> None:
    location = tmp_path / "t"
    of_a_jvm_in("Asia/Tokyo", location)
    there = datetime.now(ZoneInfo("Asia/Tokyo"))
    assert shown(location, format_time(there, ZoneInfo("Asia/Tokyo"))) is not None
    with pytest.raises(SnapshotNotSettledError):
        shown(location, format_time(there + timedelta(hours=1), ZoneInfo("Asia/Tokyo")))


def test_a_slow_disk_makes_times_early_and_never_late(tmp_path: Path) -> None:
    table = of_a_jvm_in("Asia/Tokyo", tmp_path / "t", seconds_late=1800.0)
    ours = ingest_arrow(table, rows("a", v=1), "upsert")
    assert ours["instant"] > table.timeline().completed()[0].requested_time
    assert ours["completion_time"] < format_time(
        datetime.now(UTC) + timedelta(seconds=2), ZoneInfo("Asia/Tokyo")
    )


def test_the_option_names_the_zone(tmp_path: Path) -> None:
    location = tmp_path / "t"
    of_a_jvm_in("Asia/Tokyo", location, seconds_late=1800.0)
    with (location / PROPERTIES_PATH).open("a") as properties:
        properties.write(f"{TIMELINE_ZONE}=Asia/Tokyo\n")
    table = HudiTable.open(str(location))
    assert timeline_zone(table.storage) == ZoneInfo("Asia/Tokyo")
    ours = ingest_arrow(table, rows("a", v=1), "upsert")
    at = parse_time(ours["instant"], ZoneInfo("Asia/Tokyo"))
    assert abs(at - datetime.now(UTC)) < timedelta(seconds=60)


@pytest.mark.parametrize("zone", ["America/Chicago", "Asia/Tokyo"])
def test_an_earlier_try_is_found_from_a_moment_in_utc_on(tmp_path: Path, zone: str) -> None:
    table = of_a_jvm_in(zone, tmp_path / "t")
    began = format_time(datetime.now(UTC) - timedelta(seconds=60), UTC)
    ours = ingest_arrow(table, rows("a", v=1), "upsert", operation_key="flights/1")
    found = find_operation(table, "flights/1", since=began)
    assert isinstance(found, CommitResult)
    assert found.instant == ours["instant"]


def test_an_unknown_zone_is_refused_by_name(tmp_path: Path) -> None:
    location = tmp_path / "t"
    of_a_jvm_in("UTC", location)
    with (location / PROPERTIES_PATH).open("a") as properties:
        properties.write(f"{TIMELINE_ZONE}=Mars/Olympus\n")
    with pytest.raises(InvalidInputError, match=r"must name a time zone.*'Mars/Olympus'"):
        HudiTable.open(str(location))


def test_the_timeline_of_a_table_of_ours_is_in_utc(tmp_path: Path) -> None:
    table = HudiTable.create(str(tmp_path / "t"), name="t", schema=SCHEMA, record_key=["id"])
    assert timeline_zone(table.storage) is UTC
