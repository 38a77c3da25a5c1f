"""Contenders that reclaim a dead holder's file lock at once, in any order of their storage operations."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from airflow_provider.locks.filesystem import LOCKS_FOLDER, FilesystemLockProvider
from airflow_provider.table.hudi_table import HudiTable
from tests.unit.concurrency.simulation.scheduler import Actor, Simulation

LONG = 1000  # more steps than any contender takes


class Reclaimed:
    """One contender after the other reclaims the lock of a dead holder.

    The first contender pauses before one of its operations, for so long that the others pass it over. It
    continues before one of the second contender's operations.

    :ivar held: the holder of the lock, each time that a contender acquired it.
    """

    def __init__(self, first_stops: int, second_stops: int, turns: int) -> None:
        self.simulation = Simulation()
        self.held: list[dict[str, int]] = []
        self._holders: dict[str, int] = {}
        assert FilesystemLockProvider(self.simulation.table().storage)._try_acquire() == 1
        self._age("lock")
        for name, its_turns in (("first", 1), ("second", turns)):
            self.simulation.add(name, self._take_turns(name, its_turns))
        first, second = self.simulation.actors
        self.simulation.go_on(first, first_stops)
        self._age("waiter")
        self.simulation.go_on(second, second_stops)
        self.second_stood = not second.done
        self.first_stood = not first.done
        self.simulation.go_on(first, LONG)
        self.simulation.go_on(second, LONG)
        for actor in (first, second):
            if actor.failure is not None:
                raise actor.failure

    def tried(self, name: str, token: int) -> bool:
        """Whether a contender reached the acquisition of the lock with this number."""
        return f"{name}: put_if_absent {LOCKS_FOLDER}/lock{token}.acquired" in self.simulation.trace

    def _take_turns(self, name: str, turns: int) -> Callable[[HudiTable, Actor], None]:
        def work(table: HudiTable, actor: Actor) -> None:
            for turn in range(turns):
                lock = FilesystemLockProvider(table.storage)
                token = lock._try_acquire()
                if token is None:
                    return
                self._holders[name] = token
                self.held.append(dict(self._holders))
                if turn < turns - 1:
                    del self._holders[name]
                    assert lock._give_back(token)

        return work

    def _age(self, kind: str) -> None:
        files = self.simulation.files
        for path in [path for path in files if path.startswith(f"{LOCKS_FOLDER}/{kind}")]:
            files[path] = (files[path][0], 0.0)


def every_order(turns: int) -> Iterator[Reclaimed]:
    for first_stops in itertools.count():
        for second_stops in itertools.count():
            run = Reclaimed(first_stops, second_stops, turns)
            yield run
            if not run.second_stood:
                break
        if not run.first_stood:
            return


def test_of_two_reclaimers_one_takes_the_lock() -> None:
    runs = list(every_order(turns=1))
    assert {len(holders) for run in runs for holders in run.held} == {1}
    assert any(run.tried("first", 2) and run.tried("second", 2) for run in runs)


def test_who_comes_late_with_an_old_listing_takes_no_id_that_was_swept() -> None:
    runs = list(every_order(turns=3))
    assert {len(holders) for run in runs for holders in run.held} == {1}
    assert any(run.tried("first", 2) and run.tried("second", 4) for run in runs)
