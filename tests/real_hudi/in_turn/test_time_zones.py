"""``hoodie.table.timeline.timezone`` is LOCAL by default: a timeline is in the zone of its writers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real_hudi.in_turn.shared_table import SharedTable, rows
from tests.real_hudi.jvm import TIME_ZONE, Jvm, running


# A JVM waits until its instant times are later than all earlier ones, of any table. In a western zone that
# takes hours after instant times in UTC. So each test has a JVM of its own.
@pytest.fixture(params=["America/Chicago", "Asia/Tokyo"])
def hudi_elsewhere(request: pytest.FixtureRequest) -> Iterator[Jvm]:
    zone = {TIME_ZONE: request.param}
    with (
        tempfile.TemporaryDirectory(prefix="real-hudi-") as folder,
        running(Path(folder), settings=zone) as jvm,
    ):
        yield jvm


@pytest.mark.parametrize("made", [SharedTable.of_ours, SharedTable.of_the_jvm], ids=["ours", "theirs"])
def test_a_jvm_of_another_time_zone(made: object, hudi_elsewhere: Jvm, location: Path) -> None:
    hudi = hudi_elsewhere.session()
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
