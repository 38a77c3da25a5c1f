"""Heartbeats: which writers there are, and whether they are alive.

``.hoodie/.heartbeat/<instant>`` as in Hudi: the file's modification time is the beat. The writer creates the
file by put-if-absent, under a name that all actions share. So its creation also makes a requested time unique
(RFC-22, "Unique instant times", option 1). The file's content tells other processes who the writer is, and
how long it may be silent.

A heartbeat decides only *when* another process tries to roll a writer back. The rollback's entry in the
commit log decides whether the writer is dead.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from airflow_provider.concurrency.heartbeats.settings import HeartbeatSettings
from airflow_provider.exceptions import HeartbeatExpiredError, InstantRolledBackError
from airflow_provider.locks.owner import describe_owner
from airflow_provider.locks.recurring import Recurring
from airflow_provider.table.storage import FileStatus, Storage

HEARTBEAT_FOLDER = ".hoodie/.heartbeat"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HeartbeatInfo:
    """The content of a heartbeat file: a description of its writer.

    :param owner: host and process.
    :param action: the instant's action.
    :param operation: Hudi's operation type.
    :param priority: the writer's priority.
    :param interval: seconds between two beats.
    :param tolerable_misses: beats that may be missed before the writer counts as dead
        (Hudi's ``hoodie.client.heartbeat.tolerable.misses``).
    :param operation_key: the caller's key for finding this write again.
    :param base: sequence of a commit log entry; the write is based on it or a later one, so a cleaner must
        keep every file that is visible from there on.
    :param progress: how far the write is, for people.
    """

    owner: str = "unknown"
    action: str = ""
    operation: str = ""
    priority: int = 0
    interval: float = 60.0
    tolerable_misses: int = 10
    operation_key: str | None = None
    base: int = 0
    progress: str | None = None

    @classmethod
    def of_this_process(
        cls,
        action: str,
        operation: str,
        priority: int = 0,
        settings: HeartbeatSettings | None = None,
        *,
        operation_key: str | None = None,
        base: int = 0,
    ) -> HeartbeatInfo:
        """The content of this process's own heartbeat file. Arguments beside those of the class:

        :param settings: how this process shows that it is alive; the defaults when None.
        """
        settings = settings or HeartbeatSettings()
        return cls(
            *(describe_owner(), action, operation, priority),
            *(settings.heartbeat_interval, settings.tolerable_misses),
            operation_key,
            base,
        )

    @property
    def tolerance(self) -> float:
        """Seconds of silence after which the writer counts as dead."""
        return self.interval * self.tolerable_misses

    def to_json(self) -> bytes:
        """The heartbeat file's content."""
        return json.dumps(vars(self)).encode()

    @classmethod
    def from_json(cls, data: bytes) -> HeartbeatInfo:
        """Read a heartbeat file; the JVM's is empty, and gives the defaults."""
        try:
            content = json.loads(data)
        except ValueError:
            return cls()
        return cls(**{name: content[name] for name in cls.__dataclass_fields__ if name in content})


@dataclass(frozen=True)
class ObservedHeartbeat:
    """A heartbeat as another process sees it.

    :param instant: requested time of the writer's instant.
    :param info: the writer's description of itself.
    :param age_seconds: since the last beat, by the storage's clock.
    """

    instant: str
    info: HeartbeatInfo
    age_seconds: float

    @property
    def alive(self) -> bool:
        """Whether the last beat is within the writer's own tolerance."""
        return self.age_seconds <= self.info.tolerance


def observe(storage: Storage, folder: str = HEARTBEAT_FOLDER) -> dict[str, ObservedHeartbeat]:
    """All heartbeats of a table, by instant.

    :param storage: the table's storage.
    :param folder: the folder of the heartbeats: writers' or readers'.
    """
    if not storage.names(folder):
        return {}
    found = _observed(storage, folder, storage.clock())
    if all(heartbeat.alive for heartbeat in found.values()):
        return found
    # A cached clock is not enough to call a writer dead. The clock is read before the heartbeats: a beat in
    # between only makes its writer look younger.
    return _observed(storage, folder, storage.clock(anew=True))


def _observed(storage: Storage, folder: str, now: float) -> dict[str, ObservedHeartbeat]:
    known = _known.setdefault(storage, {})
    infos = known.get(folder, {})
    observed = (_observe(storage, status, infos, now) for status in storage.list(folder))
    found = {heartbeat.instant: heartbeat for heartbeat in observed if heartbeat is not None}
    known[folder] = {instant: heartbeat.info for instant, heartbeat in found.items()}
    return found


def observe_above(storage: Storage, priority: int) -> dict[str, ObservedHeartbeat]:
    """The heartbeats of writers above a priority, by instant. The times of the other beats are not read.

    :param storage: the table's storage.
    :param priority: the caller's priority.
    """
    infos = _known.setdefault(storage, {}).setdefault(HEARTBEAT_FOLDER, {})
    found = {}
    for name in storage.names(HEARTBEAT_FOLDER):
        path = heartbeat_path(name)
        info = _info(storage, name, path, infos)
        if info is None or info.priority <= priority:
            continue
        for anew in (False, True):
            now = storage.clock(anew=anew)
            if (status := storage.stat(path)) is None:
                break
            found[name] = ObservedHeartbeat(name, info, max(0.0, now - status.modified))
            if found[name].alive:
                break
    return found


_known: WeakKeyDictionary[Storage, dict[str, dict[str, HeartbeatInfo]]] = WeakKeyDictionary()


def _observe(
    storage: Storage, status: FileStatus, known: dict[str, HeartbeatInfo], now: float
) -> ObservedHeartbeat | None:
    name = status.name
    info = _info(storage, name, status.path, known)
    return None if info is None else ObservedHeartbeat(name, info, max(0.0, now - status.modified))


def _info(storage: Storage, name: str, path: str, known: dict[str, HeartbeatInfo]) -> HeartbeatInfo | None:
    if not name.isdigit():
        return None
    if (info := known.get(name)) is None:  # a writer's description never changes
        try:
            info = known[name] = HeartbeatInfo.from_json(storage.read(path))
        except FileNotFoundError:
            return None  # its writer finished just now
    return info


def heartbeat_path(instant: str) -> str:
    """The path of an instant's heartbeat, relative to the table."""
    return f"{HEARTBEAT_FOLDER}/{instant}"


def progress_of(storage: Storage, instant: str) -> str | None:
    """The progress that a write reports; None when it reports none, or has ended.

    :param storage: the table's storage.
    :param instant: requested time of the write.
    """
    try:
        return HeartbeatInfo.from_json(storage.read(heartbeat_path(instant))).progress
    except FileNotFoundError:
        return None


def check_wanted(storage: Storage, instant: str, written: Iterable[str] = ()) -> None:
    """Make sure that a task that outlives its driver leaves no file after the write's rollback.

    :param storage: the table's storage.
    :param instant: requested time of the write.
    :param written: paths of the files that the task has written; deleted when the write was rolled back.
    :raises InstantRolledBackError: when the instant was rolled back.
    """
    if storage.stat(heartbeat_path(instant)) is not None:
        return
    for path in written:
        storage.delete(path)
    raise InstantRolledBackError(
        f"table {storage.root}: instant {instant} was rolled back while it was written; run the write again",
        instant=instant,
    )


class Heartbeat:
    """A live writer's or reader's heartbeat; beats from a thread until stopped or lost.

    :param storage: the table's storage.
    :param instant: the writer's instant, or the reader's name; its heartbeat file exists already.
    :param info: the description of the writer.
    :param is_alive: called before every beat; False gives the heartbeat up, for example because the JVM that
        the writer drives is gone.
    :param folder: the folder of the heartbeat's file.
    """

    def __init__(
        self,
        storage: Storage,
        instant: str,
        info: HeartbeatInfo,
        is_alive: Callable[[], bool] | None = None,
        folder: str = HEARTBEAT_FOLDER,
    ) -> None:
        self._storage = storage
        self._instant = instant
        self._path = f"{folder}/{instant}"
        self._info = info
        self._is_alive = is_alive or (lambda: True)
        self._beaten = time.monotonic()
        self._lost: str | None = None
        _known.setdefault(storage, {}).setdefault(folder, {})[instant] = info
        self._recurring = Recurring(self._run, info.interval, f"heartbeat-{instant}")

    def check(self) -> None:
        """Make sure that this writer is still alive.

        :raises HeartbeatExpiredError: when it missed too many beats, or its heartbeat file is gone; a lost
            heartbeat stays lost.
        """
        silent = time.monotonic() - self._beaten
        if self._lost is None and silent > self._info.tolerance:
            self._lost = f"no beat for {silent:.1f} s, more than {self._info.tolerance:.1f} s"
        if self._lost is not None:
            raise HeartbeatExpiredError(
                f"table {self._storage.root}: heartbeat of instant {self._instant} is lost: {self._lost}; "
                "the write was given up, run it again",
                instant=self._instant,
            )

    def tell(self, progress: str) -> None:
        """Beat now, and report the write's progress.

        :param progress: the writer's progress, for people.
        """
        self._info = replace(self._info, progress=progress)
        self._run()

    def stop(self) -> None:
        """Stop beating; the file stays until the end of its instant is published."""
        self._recurring.stop(timeout=self._info.interval)

    def _run(self) -> bool:
        try:
            self.check()
            self._beat()
        except HeartbeatExpiredError:
            log.warning("heartbeat of instant %s is lost: %s", self._instant, self._lost)
            return False
        except OSError as error:
            log.warning("heartbeat of instant %s missed: %s", self._instant, error)
        return True

    def _beat(self) -> None:
        if not self._is_alive():
            self._lost = "the process that this writer belongs to is gone"
            raise HeartbeatExpiredError(self._lost, instant=self._instant)
        if self._storage.stat(self._path) is None:
            self._lost = "its file was taken away, others took it for dead"
            raise HeartbeatExpiredError(self._lost, instant=self._instant)
        self._storage.put(self._path, self._info.to_json())
        self._beaten = time.monotonic()
