"""``hoodie.table.timeline.timezone`` is LOCAL by default: a timeline is in the zone of its writers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .jvm import Session
from .shared_table import SharedTable, rows

SET_ZONE = "zones = spark._jvm.java.util.TimeZone; zones.setDefault(zones.getTimeZone(zone))"


@pytest.fixture
def zone(request: pytest.FixtureRequest, hudi: Session) -> Iterator[str]:
    hudi.run(SET_ZONE, zone=request.param)
    yield request.param
    hudi.run(SET_ZONE, zone="UTC")


@pytest.mark.parametrize("zone", ["America/Chicago", "Asia/Tokyo"], indirect=True)
@pytest.mark.parametrize("made", [SharedTable.of_ours, SharedTable.of_the_jvm], ids=["ours", "theirs"])
def test_a_jvm_of_another_time_zone(made: object, zone: str, hudi: Session, location: Path) -> None:
    shared: SharedTable = made(hudi, location, rows(range(30), 0))
    shared.check()
    for turn in range(2):
        shared.ours(rows(range(turn, 30, 4), 1000 * (turn + 1), 10 + 10 * turn))
        shared.check()
        shared.sql("update {t} set v = v + 100000, ts = ts + 1 where id in ('k0000', 'k0004', 'k0007')")
        for key in ("k0000", "k0004", "k0007"):
            there = shared.model[key]
            shared.change([key], v=there["v"] + 100000, ts=there["ts"] + 1)
        shared.check()
