"""A deterministic scheduler over the storage seam.

Every actor (writer, sweeper, reader) has a stack of its own, but only one of them runs at a time. Each
storage operation is a yield point, at which the schedule decides which actor continues, which is killed, and
whose heartbeat has expired. The same schedule gives the same run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self, TypeVar

import pyarrow as pa
from greenlet import getcurrent, greenlet

from airflow_provider.concurrency.heartbeats.heartbeat import HEARTBEAT_FOLDER
from airflow_provider.concurrency.log.commit_log import COMMIT_LOG_FOLDER
from airflow_provider.concurrency.log.log_entry import LogEntry
from airflow_provider.exceptions import CommitError
from airflow_provider.locks import LockHolder
from airflow_provider.table.files.partition_metadata import PARTITION_METADATA
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.properties import PROPERTIES_PATH, TableConfig, dump_properties
from airflow_provider.table.schema.arrow_avro import arrow_to_avro
from tests.unit.concurrency.simulation.memory_storage import MemoryStorage
from tests.unit.concurrency.simulation.rows import PARTITION

T = TypeVar("T")


class Killed(BaseException):
    """SIGKILL: raised at every operation of a killed actor, so that it can do nothing more."""


class LostAnswerError(OSError):
    """Raised for a storage operation whose caller does not learn whether it took effect."""


class NoLock:
    """No mutual exclusion at all: a promise that holds with it holds with any lock, lost or held."""

    fencing_token = 0
    excludes_hudi = False

    def acquire(self, timeout: float | None = None) -> None: ...

    def release(self) -> None: ...

    def is_held(self) -> bool:
        return True

    def holder(self) -> LockHolder | None:
        return None

    def waiters(self) -> list[str]:
        return []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class SteppedStorage(MemoryStorage):
    """One actor's access to the shared storage; the actor waits for its turn before each operation."""

    def __init__(self, simulation: Simulation, actor: Actor) -> None:
        super().__init__(simulation.files, simulation.clock, moves_atomically=simulation.moves_atomically)
        self._actor = actor
        self._simulation = simulation

    def put_if_absent(self, path: str, data: bytes) -> bool:
        put = self._answered(lambda: super(SteppedStorage, self).put_if_absent(path, data))
        if put and self._actor.sends_put_again:
            self._actor.sends_put_again = False
            return super().put_if_absent(path, data)
        return put

    def put(self, path: str, data: bytes) -> None:
        self._answered(lambda: super(SteppedStorage, self).put(path, data))

    def delete(self, path: str) -> bool:
        return self._answered(lambda: super(SteppedStorage, self).delete(path))

    def _answered(self, operation: Callable[[], T]) -> T:
        answer = operation()
        if self._actor.loses_answer:
            self._actor.loses_answer = False
            self._actor.has_lost_answer = True
            raise LostAnswerError(f"{self._actor.name} lost the answer of {self._actor.at}")
        return answer

    def at(self, operation: str, path: str) -> None:
        self._actor.wait_for_turn(f"{operation} {path}")

    def created(self, path: str, data: bytes) -> None:
        if _is_entry(path):
            self._simulation.logged.setdefault(path, data)
        elif path.startswith(f"{HEARTBEAT_FOLDER}/"):
            self._actor.heartbeats.append(path)


def _is_entry(path: str) -> bool:
    return path.startswith(COMMIT_LOG_FOLDER) and path.endswith(".json")


class Actor:
    """An actor, which moves one storage operation at a time.

    :ivar loses_answer: whether its next write takes effect, but returns an error instead of the answer.
    :ivar sends_put_again: whether its storage client sends the next put-if-absent again after it was done, as
        the clients of object stores do when no answer comes.
    """

    def __init__(self, simulation: Simulation, name: str, work: Callable[[HudiTable, Actor], None]) -> None:
        self.name = name
        self.killed = False
        self.done = False
        self.is_parked = False
        self.loses_answer = False
        self.has_lost_answer = False
        self.sends_put_again = False
        self.heartbeats: list[str] = []
        self.failure: BaseException | None = None
        self.at = "start"
        table = HudiTable(SteppedStorage(simulation, self), simulation.config)

        def run() -> None:
            try:
                self.wait_for_turn("start")
                work(table, self)
            except (Killed, CommitError):
                pass
            except BaseException as error:
                if self.has_lost_answer and not isinstance(error, AssertionError):
                    self.killed = True  # like an actor that was killed there: others find the outcome
                else:
                    self.failure = error
            finally:
                self.done = True

        self._scheduler = getcurrent()
        self._greenlet = greenlet(run)
        self._greenlet.switch()

    def wait_for_turn(self, at: str) -> None:
        if getcurrent() is not self._greenlet:
            return  # heartbeat threads do not beat within a simulation
        if self.killed:
            raise Killed
        self.at = at
        self._scheduler.switch()
        if self.killed:
            raise Killed

    def step(self) -> None:
        """Let the actor do the operation before which it waits."""
        self._greenlet.switch()


_CONFIG = TableConfig(
    name="t",
    database="",
    record_key_fields=("k",),
    partition_fields=(),
    ordering_fields=(),
    hive_style=True,
    url_encode=True,
    create_schema=arrow_to_avro(pa.schema({"history": pa.string()}), "t"),
)
_MERGE_ON_READ = replace(_CONFIG, table_type="MERGE_ON_READ")
_NON_BLOCKING = replace(
    _MERGE_ON_READ,
    raw=_MERGE_ON_READ.to_properties()
    | {
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": "2",
        "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
    },
)


@dataclass(frozen=True)
class Write:
    """A writer's instant, as the model knows it.

    :param writer: the writer's name, which it adds to the history of each of its keys.
    :param keys: the record keys that it upserts.
    """

    writer: str
    keys: frozenset[str]


@dataclass(frozen=True)
class Read:
    """A snapshot that a reader took.

    :param after: the commits that were acknowledged when the read began.
    :param rows: every key's history.
    """

    after: frozenset[str]
    rows: dict[str, list[str]]


@dataclass
class Simulation:
    """Shared state of one run.

    :ivar writes: all writes that began, by instant.
    :ivar acknowledged: instants whose commits, or restores, were acknowledged.
    :ivar unpublished: acknowledged instants that may wait for the next writer to publish them, because the
        storage lost an answer: until then no reader sees them.
    :ivar restored: by a restore's instant, the commit that it went back to.
    :ivar kept: commits whose savepoints were acknowledged.
    :ivar let_go: commits whose savepoints an actor began to delete.
    :ivar logged: the commit log, including trimmed entries.
    :ivar observed: by reader, its reads one after the other.
    :ivar moves_atomically: whether the storage moves a file in one step.
    :ivar merge_on_read: whether upserts append log files.
    :ivar non_blocking: whether they append them to the buckets of a bucket index, beside each other.
    """

    files: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    writes: dict[str, Write] = field(default_factory=dict)
    acknowledged: set[str] = field(default_factory=set)
    unpublished: set[str] = field(default_factory=set)
    logged: dict[str, bytes] = field(default_factory=dict)
    restored: dict[str, str] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    let_go: set[str] = field(default_factory=set)
    observed: dict[str, list[Read]] = field(default_factory=dict)
    actors: list[Actor] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    moves_atomically: bool = True
    merge_on_read: bool = False
    non_blocking: bool = False

    def __post_init__(self) -> None:
        self.config = _MERGE_ON_READ if self.merge_on_read else _CONFIG
        self.config = _NON_BLOCKING if self.non_blocking else self.config
        properties = dump_properties(self.config.to_properties()).encode()
        self.files.setdefault(PROPERTIES_PATH, (properties, 0.0))
        self.files[f"{PARTITION}/{PARTITION_METADATA}"] = (b"", 0.0)

    def copy(self) -> Simulation:
        """A copy of the table and of the run's state, for other actors."""
        return Simulation(
            dict(self.files),
            dict(self.writes),
            set(self.acknowledged),
            set(self.unpublished),
            dict(self.logged),
            dict(self.restored),
            set(self.kept),
            set(self.let_go),
            moves_atomically=self.moves_atomically,
            merge_on_read=self.merge_on_read,
            non_blocking=self.non_blocking,
        )

    def clock(self) -> float:
        return time.time()

    def table(self) -> HudiTable:
        """Direct access, without yield points."""
        storage = MemoryStorage(self.files, self.clock, moves_atomically=self.moves_atomically)
        return HudiTable(storage, self.config)

    def entries(self) -> list[LogEntry]:
        """All entries of the commit log, including trimmed ones."""
        content = {**{p: data for p, (data, _) in self.files.items() if _is_entry(p)}, **self.logged}
        return [LogEntry.from_json(int(path[-25:-5]), data) for path, data in sorted(content.items())]

    def expire_heartbeats(self, folder: str = HEARTBEAT_FOLDER) -> None:
        """Make every heartbeat expire; the writers do not notice it."""
        self.trace.append("heartbeats expire")
        for path, (data, _) in list(self.files.items()):
            if path.startswith(folder + "/"):
                self.files[path] = (data, 0.0)

    def bury(self) -> None:
        """The heartbeats of killed writers expire at once, so that no actor waits for real time."""
        for path in (path for actor in self.actors if actor.killed for path in actor.heartbeats):
            if path in self.files:
                self.files[path] = (self.files[path][0], 0.0)

    def add(self, name: str, work: Callable[[HudiTable, Actor], None]) -> None:
        """Add an actor.

        :param work: the actor's work, on its own view of the storage.
        """
        self.actors.append(Actor(self, name, work))

    def committed(self) -> set[str]:
        """Names of the writers whose commit has returned."""
        return {self.writes[instant].writer for instant in self.acknowledged}

    def run(self, schedule: Iterable[int]) -> None:
        """Run all actors to their end.

        :param schedule: one number a step: which of the running actors moves; from 900 on,
            the actor is killed before its operation; from 950 on, all heartbeats expire.
        """
        choices: Iterator[int] = iter(schedule)
        position = 0
        while running := self.running():
            choice = next(choices, None)
            if choice is None:
                choice, position = position, position + 1
            actor = running[choice % len(running)]
            if choice >= 950:
                self.expire_heartbeats()
            elif choice >= 900:
                self.kill(actor)
            else:
                self.step(actor)

    def running(self) -> list[Actor]:
        """The actors that have not ended and do not pause."""
        return [actor for actor in self.actors if not actor.done and not actor.is_parked]

    def step(self, actor: Actor) -> None:
        """Let an actor do its next operation."""
        self.trace.append(f"{actor.name}: {actor.at}")
        actor.step()

    def go_on(self, actor: Actor, operations: int | None = None) -> None:
        """Let an actor do its next operations.

        :param operations: the number of operations, or fewer if it ends before; all of them when None.
        """
        while not actor.done and operations != 0:
            self.step(actor)
            operations = None if operations is None else operations - 1

    def go_on_to(self, actor: Actor, operation: str) -> None:
        """Let an actor go on until it stands before a certain operation.

        :param operation: part of its name and path.
        """
        while operation not in actor.at:
            assert not actor.done, f"{actor.name} has ended before any {operation}: {actor.failure}"
            self.step(actor)

    def go_on_to_any(self, actor: Actor, *operations: str) -> None:
        """Let an actor go on until it stands before one of some operations, or has ended.

        :param operations: the beginnings of their names and paths.
        """
        while not actor.done and not actor.at.startswith(operations):
            self.step(actor)

    def kill(self, actor: Actor) -> None:
        """Kill an actor before its next operation."""
        self.trace.append(f"{actor.name} killed before {actor.at}")
        actor.killed = True
        actor.step()
