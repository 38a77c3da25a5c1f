"""A plugin of pytest for `make mutants`: it runs few variants of each test, and limits the time.

For each mutant mutmut runs the tests that call its function, the fastest first, until one of them fails. For
a mutant of ``fate.py`` the tests of ``test_fate.py`` come before all others.
"""

from __future__ import annotations

import json
import os
from itertools import accumulate, groupby
from pathlib import Path

import pytest
from hypothesis import Phase, settings

VARIANTS = 9
NOT_TRIED = 34  # mutmut's exit code of a mutant that it skips
# For how long the tests of one mutant may run, by what each took without it.
SECONDS = float(os.environ.get("MUTANT_SECONDS", "inf"))
LEFT_OUT = pytest.StashKey[bool]()
STATISTICS = Path("mutmut-stats.json")  # by mutmut, in whose folder the tests run


def pytest_configure() -> None:
    """A failing example kills a mutant; hypothesis need not shrink it."""
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("mutants", settings(), phases=phases, derandomize=True, database=None)
    settings.load_profile("mutants")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the other tests."""
    by_test = groupby(items, key=lambda item: item.nodeid.partition("[")[0])
    kept = [item for _, variants in by_test for item in _some(list(variants))]
    # If a module's own tests notice a mutant, no other test has to run.
    module = os.environ.get("MUTANT_UNDER_TEST", "").rpartition(".")[0].rpartition(".")[2]
    kept.sort(key=lambda item: item.path.name != f"test_{module}.py")
    if module and STATISTICS.exists() and not config.option.collectonly:  # not while the statistics are made
        took = json.loads(STATISTICS.read_text())["duration_by_test"]
        ends = accumulate(took.get(item.nodeid, 0.0) for item in kept)
        quick = [item for item, end in zip(kept, ends, strict=True) if end <= SECONDS or item is kept[0]]
        config.stash[LEFT_OUT], kept = len(quick) < len(kept), quick
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A mutant that passes only a part of its tests has not survived."""
    if exitstatus == pytest.ExitCode.OK and session.config.stash.get(LEFT_OUT, False):
        session.exitstatus = NOT_TRIED


def _some(variants: list[pytest.Item]) -> list[pytest.Item]:
    """A few moments of a sweep, in place of all of them."""
    return variants[:: -(-len(variants) // VARIANTS)]
