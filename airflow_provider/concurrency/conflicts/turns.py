"""Turns: how a write that keeps losing gets through, and the longest time that others wait for it.

A writer that commits a small batch every second can take the file groups of a large batch again and again,
while the large one merges them anew. So after a few losses a write takes a *turn*: it holds the table lock
while it merges again, and yields to nobody. Other writers find the lock held and wait for it; they merge a
small batch onto the result in a moment. The priority of the write bounds its turn.

Another Hudi writer takes no turns: its write fails if another write has touched its file groups meanwhile. So
a write of this package that shares its lock waits once for such a writer on the same file groups, and merges
onto the result.
"""

from __future__ import annotations

from airflow_provider.concurrency.conflicts.rules import PRIORITIES

LOSSES_BEFORE_A_TURN = 3
"""How often a write is lost, or gives way, before it takes a turn."""

SHORT_TURN_SECONDS = 0.5
"""How long a merge under the lock may take when the write has no turn."""

TURN_SECONDS = {"ingestion": 10.0, "backfill": 30.0, "table_service": 10.0, "cleaning": 1.0}
"""How long a write of a named priority holds the table lock in its turn, at most."""

SECONDS_FOR_ANOTHER_ENGINE = 30.0
"""How long a write waits, once, for a write of another Hudi writer on its file groups."""


def turn_seconds(priority: int) -> float:
    """How long a write may hold the table lock in its turn.

    :param priority: the write's priority; a number between two names counts as the lower one.
    """
    names = sorted(PRIORITIES, key=lambda name: PRIORITIES[name])
    below = [name for name in names if PRIORITIES[name] <= priority] or names[:1]
    return TURN_SECONDS[below[-1]]


def why_no_turn_helps(takes: float, bound: float) -> str:
    """The remedy for a write that takes longer than its turn; empty for any other write.

    :param takes: about how many seconds the write takes to merge its lost file groups.
    :param bound: seconds that its turn lasts.
    """
    if takes <= bound:
        return ""
    return (
        f"; to merge it again takes about {takes:.0f} s, and a write of its priority holds the table lock "
        f"for {bound:.0f} s at most, so load fewer rows at once, as in smaller windows of a backfill"
    )
