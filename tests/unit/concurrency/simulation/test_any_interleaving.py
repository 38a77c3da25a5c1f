"""Actors begin, continue, pause and die at any storage operation: the invariants hold.

``INTERLEAVINGS`` is the number of tried interleavings. Hypothesis prints a counterexample as the calls that
lead to it; each one becomes a test with a name in ``test_interleavings.py``.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from weakref import WeakKeyDictionary

import pytest
from greenlet import getcurrent, greenlet
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from airflow_provider.concurrency import PRIORITIES, ConflictPolicy
from airflow_provider.table.timeline.instant import format_time
from tests.unit.concurrency.simulation.actors import (
    FAIL,
    REBASE,
    REVERT,
    add_appender,
    add_archiver,
    add_cleaner,
    add_clusterer,
    add_executor,
    add_keeper,
    add_log_compactor,
    add_restorer,
    add_sweeper,
    add_table_compaction_executor,
    add_table_compactor,
    add_writer,
)
from tests.unit.concurrency.simulation.invariants import check
from tests.unit.concurrency.simulation.reading_actors import add_leased_reader, add_reader
from tests.unit.concurrency.simulation.scheduler import Actor, Simulation

KEYS = ("a", "b", "c", "nw")
SHARES = 4  # so that several processes can work on it
STEPS = 12
AHEAD_SECONDS = (0.0, 0.0, 5.0, -5.0, 0.02, -0.02, 0.004)
INGESTION, BACKFILL = PRIORITIES["ingestion"], PRIORITIES["backfill"]
SERVICES: dict[str, Callable[[Simulation, str], None]] = {
    "archiver": add_archiver,
    "clusterer": add_clusterer,
    "executor": add_executor,
    "logcompactor": add_log_compactor,
    "tablecompactor": add_table_compactor,
    "tableexecutor": add_table_compaction_executor,
    "cleaner": add_cleaner,
    "sweeper": add_sweeper,
    "restorer": add_restorer,
    "keeper": add_keeper,
    "reader": add_reader,
    "leased reader": add_leased_reader,
}
NOT_OF_COPY_ON_WRITE: dict[str, Callable[[Simulation, str], None]] = {
    "logcompactor": add_executor,
    "tablecompactor": add_clusterer,
    "tableexecutor": add_executor,
}
NOT_OF_BUCKETS: dict[str, Callable[[Simulation, str], None]] = {
    "clusterer": add_table_compactor,
    "executor": add_table_compaction_executor,
    "logcompactor": add_table_compaction_executor,
}
"""The actors that replace services that such a table does not have."""
KINDS = ("copy on write", "merge on read", "non-blocking")

# A draw costs about as much as a storage operation, so a step uses few draws.
TURNS = st.binary(max_size=8)
Upsert = tuple[tuple[str, ...], ConflictPolicy, int, bool]
UPSERTS: list[Upsert] = list(
    itertools.product(
        [keys for size in range(1, 5) for keys in itertools.combinations(KEYS, size)],
        [FAIL, REBASE, REVERT],
        [INGESTION, INGESTION, BACKFILL, (INGESTION + BACKFILL) // 2],
        [False, False, True],
    )
)
REVERTING = [upsert for upsert in UPSERTS if upsert[1] is REVERT]
# The places at which an actor may pause, for longer than the others take to archive its file groups.
PLACES = (
    "put_if_absent .hoodie/.heartbeat/",
    "put_if_absent .hoodie/commit_log/0",
    "commit_log/staged/",
    "_if_absent .hoodie/timeline/2",
    ".requested",
    ".inflight",
    ".commit",
    ".replacecommit",
    "delete .hoodie/timeline/2",
    "delete p/",
    "delete .hoodie/.heartbeat/",
    "history/",
)
# More operations than any actor needs: an actor that waits for a paused one reaches no place.
OPERATIONS_TO_A_PLACE = 1000
PAIRS = list(itertools.combinations_with_replacement(sorted(SERVICES), 2))


@cache
def written(kind: str = KINDS[0]) -> Simulation:
    """A table with three commits of one file group each; with non-blocking concurrency all in one bucket."""
    simulation = Simulation(merge_on_read=kind != KINDS[0], non_blocking=kind == KINDS[2])
    for keys in ("a", "b", "c"):
        (add_appender if simulation.non_blocking else add_writer)(simulation, f"first-{keys}", keys)
        simulation.run([])
    return simulation


class Interleaving(RuleBasedStateMachine):
    """Three writers, two of each service and two readers on one table, one storage operation at a time.

    Some writers are in transactions, which abort when their writes have completed.
    """

    moves_atomically = True

    def __init__(self) -> None:
        super().__init__()
        self.simulation = Simulation()
        self._count = dict.fromkeys(("writer", *SERVICES, "life"), 0)
        self._some_count_as_dead = False

    @initialize(upsert=st.sampled_from(UPSERTS), kind=st.sampled_from(KINDS))
    def a_table(self, upsert: Upsert, kind: str) -> None:
        # Hypothesis leaves rules out, each of half of the runs: without a writer a run would show little.
        self.simulation = written(kind).copy()
        self.simulation.moves_atomically = self.moves_atomically
        self._begin_upsert(upsert)

    @precondition(lambda self: self._count["writer"] < 3)
    @rule(upsert=st.sampled_from(UPSERTS), turns=TURNS)
    def upsert_begins(self, upsert: Upsert, turns: bytes) -> None:
        self._begin_upsert(upsert)
        self.go_on(turns)

    @rule(services=st.sampled_from(PAIRS), turns=TURNS)
    def services_begin(self, services: tuple[str, str], turns: bytes) -> None:
        for service in services:
            if self._count[service] < 2:
                of_type = {} if self.simulation.merge_on_read else NOT_OF_COPY_ON_WRITE
                of_type = NOT_OF_BUCKETS if self.simulation.non_blocking else of_type
                of_type.get(service, SERVICES[service])(self.simulation, self._named(service))
        self.go_on(turns)

    @rule(number=st.integers(0, 9), turns=TURNS)
    def is_killed(self, number: int, turns: bytes) -> None:
        for actor in self._chosen(number):
            self.simulation.kill(actor)
        self.go_on(turns)

    @rule(turns=TURNS)
    def heartbeats_expire(self, turns: bytes) -> None:
        self._some_count_as_dead = True
        self.simulation.expire_heartbeats()
        self.go_on(turns)

    @rule(number=st.integers(0, 9), place=st.sampled_from(PLACES), again=st.integers(0, 3))
    def stands_still(self, number: int, place: str, again: int) -> None:
        """One actor goes on to a place, and pauses there."""
        for actor in self._chosen(number):
            for _ in range(again + 1):
                self._go_on_to(actor, place)
                if actor.done:
                    return
            actor.is_parked = True

    @rule(number=st.integers(0, 9), operations=st.integers(0, 3), is_killed=st.booleans(), turns=TURNS)
    def wakes_up(self, number: int, operations: int, is_killed: bool, turns: bytes) -> None:
        parked = [actor for actor in self.simulation.actors if actor.is_parked]
        if parked:
            actor = parked[number % len(parked)]
            actor.is_parked = False
            self.simulation.go_on(actor, operations)
            if is_killed and not actor.done:
                self.simulation.kill(actor)
        self.go_on(turns)

    @precondition(lambda self: self._count["writer"] < 3 and self._count["clusterer"] < 2)
    @precondition(lambda self: not self.simulation.non_blocking)
    @rule(upsert=st.sampled_from(REVERTING), turns=TURNS)
    def clustering_overtakes(self, upsert: Upsert, turns: bytes) -> None:
        """An upsert pauses before its plan until a clustering has completed, which the upsert may revert."""
        self._begin_upsert(upsert)
        self._go_on_to(self.simulation.actors[-1], ".inflight")
        add_clusterer(self.simulation, self._named("clusterer"))
        self.simulation.go_on(self.simulation.actors[-1])
        self.go_on(turns)

    @precondition(lambda self: self._count["life"] < 2)
    @rule(number=st.integers(0, 9))
    def life_goes_on(self, number: int) -> None:
        """Some actors commit, clean and archive, while all others pause."""
        for keys in ("a", "bc")[number % 2 :]:
            name = self._named("life")
            if self.simulation.non_blocking:
                add_appender(self.simulation, name, keys, priority=900)
            else:
                add_writer(self.simulation, name, keys, policy=REBASE, priority=900)
            self.simulation.go_on(self.simulation.actors[-1])
        add_cleaner(self.simulation, "sweeps")
        self.simulation.go_on(self.simulation.actors[-1])
        # Only the wait of archival hides a file that a rolled-back writer writes late.
        wait = {} if self._some_count_as_dead else {"dead_writer_seconds": 0.0}
        add_archiver(self.simulation, "archives", **wait)
        self.simulation.go_on(self.simulation.actors[-1])

    def go_on(self, turns: bytes) -> None:
        """The actors take turns: each byte selects the actor and its number of storage operations."""
        for turn in turns:
            operations, number = divmod(turn, 8)
            # The number of running actors depends on the clock, and the draws must not.
            for actor in self._chosen(number):
                self.simulation.go_on(actor, operations + 1)

    def _go_on_to(self, actor: Actor, place: str) -> None:
        self.simulation.step(actor)
        for _ in range(OPERATIONS_TO_A_PLACE):
            if actor.done or place in actor.at:
                return
            self.simulation.step(actor)

    def _begin_upsert(self, upsert: Upsert) -> None:
        keys, policy, priority, aborted = upsert
        name = self._named("writer")
        txn_id = self._count["writer"] if aborted and self.moves_atomically else None
        if self.simulation.non_blocking:
            add_appender(self.simulation, name, keys, priority=priority, aborted_txn=txn_id)
            return
        fills = self._count["writer"] % 2 == 0
        add_writer(
            self.simulation, name, keys, policy=policy, priority=priority, aborted_txn=txn_id, fills=fills
        )

    def teardown(self) -> None:
        for actor in self.simulation.actors:
            actor.is_parked = False
        self.simulation.bury()
        self.simulation.run([])
        check(self.simulation)

    def _chosen(self, number: int) -> list[Actor]:
        """One of the running actors, if there is one."""
        running = self.simulation.running()
        return running and [running[number % len(running)]]

    def _named(self, kind: str) -> str:
        self._count[kind] += 1
        return f"{kind}{self._count[kind]}"


class OnAnObjectStore(Interleaving):
    """The same on storage that moves no file in one step and may lose answers.

    If an answer is lost, the caller gets an error, or the client sends the request again.
    """

    moves_atomically = False

    @rule(number=st.integers(0, 9), turns=TURNS)
    def loses_an_answer(self, number: int, turns: bytes) -> None:
        for actor in self._chosen(number):
            actor.loses_answer = True
        self.go_on(turns)

    @rule(number=st.integers(0, 9), turns=TURNS)
    def sends_a_put_again(self, number: int, turns: bytes) -> None:
        for actor in self._chosen(number):
            actor.sends_put_again = True
        self.go_on(turns)


class OnManyMachines(Interleaving):
    """The same; each actor has a clock that runs wrongly."""

    _ahead: Iterator[float] = iter(())
    _clocks: WeakKeyDictionary[greenlet, float] = WeakKeyDictionary()

    @initialize(ahead=st.permutations(AHEAD_SECONDS))
    def clocks(self, ahead: list[float]) -> None:
        OnManyMachines._ahead, OnManyMachines._clocks = itertools.cycle(ahead), WeakKeyDictionary()

    @classmethod
    def now(cls, _: tzinfo) -> str:
        """The time by the clock of the actor that asks."""
        asks = getcurrent()
        if asks not in cls._clocks:
            cls._clocks[asks] = next(cls._ahead, 0.0)
        return format_time(datetime.now(UTC) + timedelta(seconds=cls._clocks[asks]))


@pytest.mark.parametrize("share", range(SHARES))
def test_any_interleaving_keeps_the_invariants(share: int) -> None:
    examples = max(1, int(os.environ.get("INTERLEAVINGS", "40")) // SHARES)
    run_state_machine_as_test(
        Interleaving, settings=settings(max_examples=examples, stateful_step_count=STEPS)
    )  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("share", range(SHARES))
def test_any_storage_keeps_the_invariants(share: int) -> None:
    examples = max(1, int(os.environ.get("INTERLEAVINGS", "40")) // SHARES // 2)
    run_state_machine_as_test(
        OnAnObjectStore, settings=settings(max_examples=examples, stateful_step_count=STEPS)
    )  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("share", range(SHARES))
def test_no_clock_is_relied_on(share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = max(1, int(os.environ.get("INTERLEAVINGS", "40")) // SHARES // 10)
    monkeypatch.setattr("airflow_provider.concurrency.log.instant_time.now", OnManyMachines.now)
    run_state_machine_as_test(
        OnManyMachines, settings=settings(max_examples=examples, stateful_step_count=STEPS)
    )  # type: ignore[no-untyped-call]
