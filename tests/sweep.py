"""Sweeps kill, pause or overtake an actor at every moment of its work; a push tries a share of the moments.

The commit decides which share: a second run of a commit tries the same moments, other commits try others.
``SWEEP=all``, as in `make soak`, tries every moment; ``SWEEP=2`` tries share 2.
"""

from __future__ import annotations

import os
import subprocess
import zlib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

SHARES = 8
Moment = TypeVar("Moment")


@cache
def chosen() -> int | None:
    """The number of this run's share, or ``None`` if it tries every moment."""
    if wanted := os.environ.get("SWEEP"):
        return None if wanted == "all" else int(wanted) % SHARES
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True
    )
    return int(head.stdout[:8] or "0", 16) % SHARES


def share_of(moments: Iterable[Moment], shares: int = SHARES) -> list[Moment]:
    """This run's share of a sweep's moments; the first and the last are in each share.

    :param moments: all of them, in their order.
    :param shares: the number of shares.
    """
    all_of_them = list(moments)
    share = chosen()
    if share is None:
        return all_of_them
    last = len(all_of_them) - 1
    return [
        moment
        for number, moment in enumerate(all_of_them)
        if number % shares == share % shares or number in (0, last)
    ]


def is_tried(test: str, value: Moment, values: Sequence[Moment]) -> bool:
    """Whether this run tries a test with one of several values. A push tries one, not the same in all tests.

    :param test: the test's name.
    :param value: one of the values.
    :param values: all of them.
    """
    share = chosen()
    return share is None or value == values[(share + zlib.crc32(test.encode())) % len(values)]


def describe() -> str:
    """For the header of a test run."""
    share = chosen()
    return f"sweeps: {'every moment' if share is None else f'share {share} of {SHARES} (SWEEP={share})'}"
