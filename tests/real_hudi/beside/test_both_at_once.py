"""This package and the JVM's Hudi write to one table at the same time, under one lock.

Each side runs its table services and maintains all indexes, while both are paused and killed. The test takes
some tens of seconds; ``SOAK=1`` takes minutes.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_provider.services.failed_writes import rollback_failed_writes
from airflow_provider.table import snapshot
from tests.real_hudi.beside.both_at_once import SERVICES_OF_THE_JVM, Ours, Side, Theirs, verdict
from tests.real_hudi.in_turn.shared_table import ALL_INDEXES_OF_THE_JVM, SharedTable, rows
from tests.real_hudi.jvm import Session
from tests.real_hudi.one_lock import OneLock
from tests.real_hudi.services_and_columns.metadata_table import check_metadata_table

ACKNOWLEDGED = 60 if "SOAK" in os.environ else 6
"""The number of acknowledged writes of each side."""
LOST_IN_A_ROW = 8
"""The number of losses in a row from which a side counts as starving."""

# The JVM checks only once whether it still holds the lock, and whether its heartbeat is fresh. So it survives
# only pauses that are shorter than both.
OF_THE_JVM = {
    "hoodie.write.lock.zookeeper.session_timeout_ms": "15000",
    "hoodie.client.heartbeat.interval_in_ms": "2000",
    "hoodie.client.heartbeat.tolerable.misses": "10",
}
SECONDS_THAT_THE_JVM_STANDS_STILL = 3
SECONDS_OF_OUR_LEASE = 3.0
SECONDS_THAT_OURS_STANDS_STILL = 5
MERGE_ON_READ = {
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.compact.inline": "true",
    "hoodie.compact.inline.max.delta.commits": "3",
    "hoodie.metadata.global.record.level.index.enable": "false",
}
BEATS_OF_OURS = {"heartbeat_interval": 1.0, "tolerable_misses": 2}
"""The JVM rolls ours back while it stands still."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for JVMs, with a path that is short enough for their sockets."""
    with tempfile.TemporaryDirectory(prefix="real-hudi-") as folder:
        yield Path(folder)


@pytest.mark.parametrize(
    ("ours_keys", "theirs_keys", "more"),
    [(range(60), range(60), {}), (range(60), range(100, 160), {}), (range(60), range(60), MERGE_ON_READ)],
    ids=["the same keys", "other keys", "merge-on-read"],
)
def test_nothing_acknowledged_is_lost_and_neither_side_starves(
    ours_keys: range,
    theirs_keys: range,
    more: dict[str, str],
    hudi: Session,
    location: Path,
    one_lock: OneLock,
    folder: Path,
) -> None:
    options = {**one_lock.theirs, **ALL_INDEXES_OF_THE_JVM, **SERVICES_OF_THE_JVM, **OF_THE_JVM, **more}
    first = rows(range(1000, 1010), 0)
    shared = SharedTable.of_the_jvm(hudi, location, first, options)
    lock = {**one_lock.ours, "lease_seconds": SECONDS_OF_OUR_LEASE}
    theirs = Theirs(shared, theirs_keys, folder)
    ours = Ours(shared.location, lock, BEATS_OF_OURS, ours_keys)
    services = Ours(shared.location, lock, BEATS_OF_OURS, None)
    told = until_both_have_enough(theirs, ours, services)
    # The JVM ends last: a write of ours may wait for a clustering that the JVM has planned, and that its next
    # write executes.
    for each in (ours, services, theirs):
        each.end()
    rollback_failed_writes(shared.table)
    sides = [theirs.side, ours.side]
    before = Side("before", [first])
    described = [*map(str, sides), str(services.side), *told, *map(reasons, [*sides, services.side])]
    shown = snapshot(shared.table).to_table().to_pylist()
    wrong = verdict([before, *sides], shown)
    assert not wrong, "\n".join([*wrong[:10], *described])
    starving = [side for side in sides if side.most_losses_in_a_row > LOST_IN_A_ROW]
    assert not starving, "\n".join(described)
    shared.model = {each["id"]: each for each in shown}
    shared.check()
    check_metadata_table(hudi, shared.table)


def until_both_have_enough(theirs: Theirs, ours: Ours, services: Ours) -> list[str]:
    """Cause one trouble after the other, each when both sides have made progress; return the troubles."""

    def stand_still(whom: Theirs | Ours, seconds: float) -> None:
        whom.signal(signal.SIGSTOP)
        time.sleep(seconds)
        whom.signal(signal.SIGCONT)

    troubles: dict[str, Callable[[], None]] = {
        "ours stands still": lambda: stand_still(ours, SECONDS_THAT_OURS_STANDS_STILL),
        "the JVM is killed": theirs.kill,
        "ours is killed": ours.kill,
        "the JVM stands still": lambda: stand_still(theirs, SECONDS_THAT_THE_JVM_STANDS_STILL),
        "our services stand still": lambda: stand_still(services, SECONDS_THAT_OURS_STANDS_STILL),
        "our services are killed": services.kill,
    }
    sides = (theirs.side, ours.side)
    told, begun = [], time.monotonic()
    last = [0, 0]
    for name in itertools.cycle(troubles):
        while any(len(side.acknowledged) <= before for side, before in zip(sides, last, strict=True)):
            if any(side.losses_in_a_row > LOST_IN_A_ROW for side in sides):
                return told
            time.sleep(0.05)
        if all(len(side.acknowledged) >= ACKNOWLEDGED for side in sides):
            return told
        last = [len(side.acknowledged) for side in sides]
        told.append(
            f"{time.monotonic() - begun:.1f} s, after {last[1]} of ours and {last[0]} of the JVM: {name}"
        )
        troubles[name]()
    return told


def reasons(side: Side) -> str:
    """The reasons of lost writes, the most frequent first."""
    counted = Counter(_cause(why) for why in side.lost)
    return f"lost by {side.name}: {counted.most_common(5)}"


def _cause(why: str) -> str:
    """The root cause of an error of the JVM."""
    *_, last = re.findall(r"^Caused by: .*", why, re.MULTILINE) or [why]
    return last[:300]
