"""Archival: the oldest instants leave the active timeline, and the oldest entries leave the commit log.

A listing of the timeline costs time for every instant on it. So archival keeps the timeline between two
numbers of commits (Hudi's ``hoodie.keep.min.commits`` and ``hoodie.keep.max.commits``). Instants move into
the archived timeline, where they can still be read.

A reader takes an instant that is older than the timeline for committed. So instants leave the timeline from
the oldest on, without a gap. Archival stops before the first instant

- that is pending, that a live writer may still need, or that an open transaction may undo;
- that a savepoint keeps, or that a registered consumer has not read;
- whose replaced file groups still have files, on storage or in the index ``files``: readers would show them
  again;
- that was rolled back a short time ago: its writer may be paused, and write one of its files when it
  wakes up. Archival deletes leftover files of dead writers before it passes their instants;
- that was reverted, as long as a cleaner keeps its files for readers.

First an entry of the commit log records how far this archival goes. No later entry undoes or keeps one of
these instants, even if the table lock was lost. Each later step is idempotent, and several processes may take
it at once. An archiver writes the archived timeline and its manifest, deletes the instants' files from the
oldest on, and then trims the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import tenacity

from airflow_provider.concurrency import PRIORITIES, CommitLog
from airflow_provider.concurrency.commit import (
    STAGED_FOLDER,
    Moment,
    clean_up,
    commit,
    find_unlogged_commits,
    publish_head,
)
from airflow_provider.concurrency.conflicts import instants_of_open_transactions
from airflow_provider.concurrency.heartbeats import observe
from airflow_provider.concurrency.indexes import current_indexes
from airflow_provider.concurrency.log import Archival, IndexState, LogEntry
from airflow_provider.concurrency.plans import MAX_FAILURES, Service, stopping_itself
from airflow_provider.concurrency.readers import registered_consumers
from airflow_provider.exceptions import InvalidInputError, NoSuchInstantError, TableServiceError
from airflow_provider.locks import LockProvider, default_lock
from airflow_provider.locks.owner import describe_owner
from airflow_provider.services.orphans import DeadInstant, FilesLeft, dead_on_timeline
from airflow_provider.table.file_groups import FileGroupId
from airflow_provider.table.files import delete_markers_upto, parse_data_file_name
from airflow_provider.table.hudi_options import OPTIONS
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.storage import CLOCK_PREFIX, Storage
from airflow_provider.table.timeline import (
    TIMELINE_FOLDER,
    WRITE_ACTIONS,
    Action,
    ArchivedInstant,
    Instant,
    State,
    Timeline,
    age,
    append_history,
    instant_path,
    keeper_of_schema,
    merge_history,
    newest_archived,
    timeline_zone,
)

log = logging.getLogger(__name__)

KEEP_MIN_COMMITS = "hoodie.keep.min.commits"
KEEP_MAX_COMMITS = "hoodie.keep.max.commits"

DEAD_WRITER_SECONDS = 24 * 3600.0
"""How long a dead writer may be paused before it wakes up."""


@dataclass(frozen=True)
class ArchivalPlan:
    """The instants that leave the active timeline, and the files that are deleted with them.

    :param instants: completed instants, oldest first.
    :param dead: pending instants that dead writers put on the timeline after their archival.
    :param leftovers: data files of dead writers, relative to the table.
    :param trim: sequence of the last entry of the commit log that is not needed any more; 0 for none.
    :param held_by: the reason why instants that are due for archival stay; None where all of them leave.
    :param upto: requested time of the last completed instant that leaves; empty for none.
    """

    instants: tuple[Instant, ...] = ()
    dead: tuple[Instant, ...] = ()
    leftovers: tuple[str, ...] = ()
    trim: int = 0
    held_by: str | None = None
    upto: str = ""

    def __bool__(self) -> bool:
        return bool(self.instants or self.dead or self.trim)

    def to_dict(self) -> dict[str, Any]:
        """The plan as a JSON-able dict: ``archived`` (requested times), ``deleted`` (paths of dead
        writers' files, relative to the table), ``trimmed`` (the last entry that leaves the commit log) and
        ``held_by``."""
        return {
            "archived": [instant.requested_time for instant in self.instants],
            "deleted": list(self.leftovers),
            "trimmed": self.trim,
            "held_by": self.held_by,
        }


def archive(
    table: HudiTable,
    *,
    keep_min: int | None = None,
    keep_max: int | None = None,
    dead_writer_seconds: float = DEAD_WRITER_SECONDS,
    lock: LockProvider | None = None,
    max_failures: int | None = MAX_FAILURES,
) -> ArchivalPlan:
    """Archive the instants that are due. After a crash the next call continues.

    :param table: the table.
    :param keep_min: see :func:`plan_archival`.
    :param keep_max: see :func:`plan_archival`.
    :param dead_writer_seconds: see :func:`plan_archival`.
    :param lock: the table lock, taken only where something is due;
        :func:`~airflow_provider.locks.default_lock` when None.
    :param max_failures: failures in a row after which the table's archival is stopped; None never stops it.
    :return: the plan, as it was executed.
    :raises ServiceStoppedError: when archival failed too often on this table.
    :raises InvalidInputError: when ``keep_min`` and ``keep_max`` contradict each other.
    :raises LockTimeoutError: when the table lock is not acquired in time.
    :raises UnsupportedTableError: when this package does not write such a table.
    """
    planned = partial(
        plan_archival, table, keep_min=keep_min, keep_max=keep_max, dead_writer_seconds=dead_writer_seconds
    )
    with stopping_itself(table, Service.ARCHIVAL, lambda: _input(table), max_failures):
        return _archive(table, planned, lock)


def _input(table: HudiTable) -> str:
    """The input of the next archival, for counting failures in a row: the oldest instant."""
    oldest = table.timeline().instants[:1]
    return f"the timeline from {oldest[0].requested_time} on" if oldest else "an empty timeline"


def _archive(
    table: HudiTable, planned: Callable[[], ArchivalPlan], lock: LockProvider | None
) -> ArchivalPlan:
    plan = planned()
    if not plan:
        return plan
    storage, commit_log = table.storage, CommitLog(table.storage)
    contents = {instant.requested_time: archived_content(storage, instant) for instant in plan.instants}

    def decide(moment: Moment) -> Archival | None:
        # The plan is made again, because a new entry may need one of these instants.
        nonlocal plan
        plan = planned()
        if plan.upto <= moment.archived:
            return None  # an earlier entry already archives as far
        return Archival(archived=plan.upto, priority=PRIORITIES["cleaning"], owner=describe_owner())

    with lock or default_lock(table):
        commit(storage, decide)
        for path in plan.leftovers:
            storage.delete(path)
        found = (
            contents.get(instant.requested_time) or archived_content(storage, instant)
            for instant in plan.instants
        )
        append_history(storage, [each for each in found if each is not None])
        for instant in plan.dead:
            clean_up(storage, instant.requested_time, instant.action)
        take_off(storage, plan.instants)
        commit_log.trim(plan.trim)
        _delete_forgotten(storage)
    merge_history(storage)
    if plan.instants:
        first, last = plan.instants[0].requested_time, plan.instants[-1].requested_time
        log.info("table %s: archived %d instants, %s to %s", table.location, len(plan.instants), first, last)
    return plan


def _delete_forgotten(storage: Storage) -> None:
    """Delete leftovers of dead processes: staged savepoints of archived commits, markers, clock files."""
    upto, now = newest_archived(storage), storage.clock(anew=True)
    for status in storage.list(STAGED_FOLDER):
        is_old = now - status.modified > DEAD_WRITER_SECONDS
        if is_old and status.name.partition(".")[0] <= upto:
            storage.delete(status.path)
    delete_markers_upto(storage, upto)
    for status in storage.list(".hoodie"):
        if status.path.startswith(CLOCK_PREFIX) and now - status.modified > DEAD_WRITER_SECONDS:
            storage.delete(status.path)


def archive_when_due(
    table: HudiTable, sequence: int, *, every: int = 11, lock: LockProvider | None = None
) -> None:
    """Archive after a commit, if instants are due. One commit in ``every`` checks this.

    A failure is only logged, because the commit is done.

    :param table: the table.
    :param sequence: the commit's position in the commit log.
    :param every: entries of the log between two checks. The default is a prime number: if commits and plans
        alternate in the log, the checks do not always fall on plans.
    :param lock: see :func:`archive`.
    """
    if sequence % every:
        return
    try:
        # This costs one listing; a plan costs far more.
        over = len(table.timeline().commits()) - _limit(table, KEEP_MAX_COMMITS, None)
        # With many concurrent writers, an earlier archiver may still work. Far beyond the limit, it was
        # killed.
        if 0 < over <= every or over > 2 * every:
            archive(table, lock=lock)
    except (TableServiceError, OSError) as error:
        log.warning("table %s could not be archived now: %s", table.location, error)


# Another process may archive an instant while this one reads it; then the plan is made again.
@tenacity.retry(
    retry=tenacity.retry_if_exception_type(NoSuchInstantError),
    stop=tenacity.stop_after_attempt(10),
    reraise=True,
)
def plan_archival(
    table: HudiTable,
    *,
    keep_min: int | None = None,
    keep_max: int | None = None,
    dead_writer_seconds: float = DEAD_WRITER_SECONDS,
) -> ArchivalPlan:
    """The instants that would leave the active timeline now. Nothing is archived.

    :param table: the table.
    :param keep_min: number of commits that stay; the table's ``hoodie.keep.min.commits``, or 20, when None.
    :param keep_max: number of commits up to which nothing leaves; the table's ``hoodie.keep.max.commits``, or
        100, when None.
    :param dead_writer_seconds: seconds that the rollback of an instant must be past before archival passes
        it: longer than a process can be paused.
    :raises InvalidInputError: when ``keep_min`` is not between 1 and ``keep_max`` - 1.
    :raises UnsupportedTableError: when this package does not write such a table.
    """
    table.check_writable()
    keep_min, keep_max = _limit(table, KEEP_MIN_COMMITS, keep_min), _limit(table, KEEP_MAX_COMMITS, keep_max)
    if not 1 <= keep_min < keep_max:
        raise InvalidInputError(
            f"{KEEP_MIN_COMMITS} must be at least 1 and below {KEEP_MAX_COMMITS}, not {keep_min} and "
            f"{keep_max}"
        )
    # The log is read first: every write that begins after that has a later requested time than all archived
    # instants.
    storage, commit_log = table.storage, CommitLog(table.storage)
    head = publish_head(storage, commit_log)
    bounds = list(_in_use(storage, commit_log, head))
    archived = commit_log.archived(head)  # read before the timeline, which shows the state of these instants
    timeline = Timeline.load(storage, archived_too=True)
    commits = sorted(instant.requested_time for instant in timeline.commits())
    stays = commits[-keep_min] if len(commits) > keep_max else ""
    if timeline.instants and timeline.instants[0].requested_time <= archived:
        # An archiver died before it had deleted all files, or a dead writer put an instant later.
        stays = max(stays, next((each for each in commits if each > archived), ""))
    if not stays:
        starts = timeline.instants[0].requested_time if timeline.instants else ""
        return ArchivalPlan(trim=_trimmable(storage, commit_log, head, starts))
    dead = dead_on_timeline(storage, timeline)
    indexes = current_indexes(storage, commit_log, head)
    bounds += _bounds(storage, timeline, head, indexes)
    bounds += _late_log_bounds(timeline, archived)
    if (keeper := keeper_of_schema(storage, timeline, table.config)) is not None:
        why = f"no later commit than {keeper.requested_time} has the table's columns"
        bounds.append(_Bound(keeper.requested_time, why))
    left = FilesLeft(storage, timeline)
    bounds += _dead_bounds(storage, dead, dead_writer_seconds, left)
    held_by = None
    for bound in bounds:
        kept = bound.stays
        if bound.may_be_dead:
            kept = next((each for each in reversed(commits) if each < bound.stays), bound.stays)
        if archived < bound.stays and kept < stays:
            stays, held_by = kept, bound.reason
    for bound in _replaced_bounds(timeline, stays, left):
        stays, held_by = bound.stays, bound.reason
    leaving = [instant for instant in timeline.instants if instant.requested_time < stays]
    # An archiver that died after its entry may have left files of dead instants.
    history = newest_archived(storage)
    passed = {time for time in dead if history < time < stays}
    completed = tuple(i for i in leaving if i.state is State.COMPLETED)
    return ArchivalPlan(
        instants=completed,
        dead=tuple(
            i for i in leaving if i.state is not State.COMPLETED and i.action.when_completed in WRITE_ACTIONS
        ),
        leftovers=tuple(_files_of(storage, passed)) if passed else (),
        trim=_trimmable(storage, commit_log, head, stays),
        held_by=held_by,
        upto=completed[-1].requested_time if completed else "",
    )


class _Bound(NamedTuple):
    """An instant that stays on the timeline with all later ones, and the reason.

    :param stays: requested time.
    :param reason: for people.
    :param may_be_dead: whether it has ended, or may end, without a commit. Then the commit before it
        stays too, because readers take files that are older than the timeline for committed.
    """

    stays: str
    reason: str
    may_be_dead: bool = False


def _in_use(storage: Storage, commit_log: CommitLog, head: LogEntry | None) -> Iterator[_Bound]:
    """The instants that live writers and open transactions need."""
    heartbeats = observe(storage)
    for instant, heartbeat in heartbeats.items():
        yield _Bound(instant, f"instant {instant} of {heartbeat.info.owner} is in flight", may_be_dead=True)
    for instant, txn_id in instants_of_open_transactions(storage).items():
        yield _Bound(instant, f"transaction {txn_id}, which wrote {instant}, has not ended", may_be_dead=True)
    if head is not None:
        yield _Bound(head.instant, f"{head.instant} is the newest entry of the commit log")
    if heartbeats:
        # A writer reads every instant that completed after its base, even if it was requested before.
        base = min(heartbeat.info.base for heartbeat in heartbeats.values())
        for entry in commit_log.after(base):
            yield _Bound(entry.instant, f"a writer in flight asks about {entry.instant}")


def _bounds(
    storage: Storage, timeline: Timeline, head: LogEntry | None, indexes: Collection[IndexState]
) -> Iterator[_Bound]:
    """The instants that the timeline shows have to stay: pending and new ones, and those that a savepoint or
    a consumer needs."""
    for instant in timeline.pending():
        why = f"{instant.action} {instant.requested_time} is {instant.state}"
        yield _Bound(instant.requested_time, why, may_be_dead=True)
    if head is not None:
        for instant in timeline.completed():
            if (instant.completion_time or "") > head.completion_time:
                yield _Bound(instant.requested_time, f"{instant.requested_time} completed just now")
    for savepoint in timeline.savepoints():
        # Later commits stay too: a view of the savepoint would show an archived one, and a restore may undo
        # it.
        kept, commit = timeline.kept_moment(savepoint), savepoint.requested_time
        later = (i.requested_time for i in timeline.commits() if (i.completion_time or "") > kept)
        stays = min((commit, *later))
        yield _Bound(stays, f"savepoint {commit} keeps it", may_be_dead=stays < commit)
    for consumer in registered_consumers(storage):
        unread = (i for i in timeline.commits() if (i.completion_time or "") > consumer.checkpoint)
        if not consumer.is_expired and (first := min((i.requested_time for i in unread), default=None)):
            yield _Bound(first, f"consumer {consumer.name} has not read {first}")
    for instant in find_unlogged_commits(storage, indexes, timeline):
        yield _Bound(instant.requested_time, f"no index knows of {instant.requested_time} yet")


def _late_log_bounds(timeline: Timeline, archived: str) -> Iterator[_Bound]:
    """The instants whose log files readers would assign to an older file slice after archival.

    They were requested before a compaction of their file groups, and completed after it. Once they are
    archived, a reader that ignores the archived timeline, such as hudi-rs, knows only their requested times,
    from the names of the log files. A base file that was requested after such an instant completed makes its
    archival safe.
    """
    commits = timeline.commits()
    compactions = [each for each in commits if each.action is Action.COMMIT]
    for late in sorted(commits, key=lambda each: each.requested_time):
        if late.action is not Action.DELTA_COMMIT or late.requested_time <= archived:
            continue
        before, done = late.requested_time, late.completion_time or ""
        over = [each for each in compactions if before < each.requested_time < done]
        if not over:
            continue
        stats = timeline.commit_metadata(late).write_stats
        logged = {stat.file_group for stat in stats if stat.log_files is not None}
        logged &= _with_base_files(timeline, over)
        after = [each for each in commits if each.requested_time > done]
        if logged and not logged <= _with_base_files(timeline, after):
            name = "/".join(min(logged)).lstrip("/")
            yield _Bound(before, f"log files of {before} are on a slice of {name} that was requested later")


def _with_base_files(timeline: Timeline, commits: Iterable[Instant]) -> set[FileGroupId]:
    """The file groups in which these commits wrote base files."""
    stats = (stat for commit in commits for stat in timeline.commit_metadata(commit).write_stats)
    return {stat.file_group for stat in stats if stat.log_files is None}


def _replaced_bounds(timeline: Timeline, stays: str, left: FilesLeft) -> Iterator[_Bound]:
    """The first instant whose replaced file groups readers would show again, because storage or the index
    `files` still has files of them."""
    for instant in sorted(timeline.commits(), key=lambda each: each.requested_time):
        if instant.action is not Action.REPLACE_COMMIT or instant.requested_time >= stays:
            continue
        for partition, file_ids in timeline.commit_metadata(instant).replaced.items():
            if found := left.of_groups(partition, file_ids):
                name = "/".join(found[0]).lstrip("/")
                why = f"file group {name}, which {instant.requested_time} replaced, {found[1]}"
                yield _Bound(instant.requested_time, why)
                return


def _dead_bounds(
    storage: Storage, dead: dict[str, DeadInstant], seconds: float, left: FilesLeft
) -> Iterator[_Bound]:
    """Instants of dead writers: readers must not take their files, even late ones, for committed files."""
    if not dead:
        return
    now, zone = storage.clock(anew=True), timeline_zone(storage)
    for instant, how in dead.items():
        if (ago := age(how.at, now, zone)) < seconds:
            yield _Bound(instant, f"{instant} was rolled back only {ago:.0f} s ago", may_be_dead=True)
        elif any(storage.stat(path) is not None for path in how.kept):
            why = f"{instant} was reverted, and its files are not cleaned yet"
            yield _Bound(instant, why, may_be_dead=True)
        elif left.of_instant(instant):
            why = f"{instant} was undone, and the index `files` may list files of it until the next clean"
            yield _Bound(instant, why, may_be_dead=True)


def _files_of(storage: Storage, instants: Iterable[str]) -> Iterator[str]:
    wanted = set(instants)
    for status in storage.list("", recursive=True):
        parsed = parse_data_file_name(status.name)
        if parsed is not None and parsed[2] in wanted and not status.path.startswith(".hoodie/"):
            yield status.path


def _trimmable(storage: Storage, commit_log: CommitLog, head: LogEntry | None, stays: str) -> int:
    """Sequence of the last entry up to which no process needs an entry, because all instants are archived or
    undone; 0 when there is none."""
    bases = [heartbeat.info.base - 1 for heartbeat in observe(storage).values()]
    end = min([(head.sequence if head else 1) - 1, *bases])
    trimmed = sequence = commit_log.trimmed()
    while sequence < end and (entry := commit_log.read(sequence + 1)) is not None and entry.instant < stays:
        sequence += 1
    # If an earlier archiver deleted all entries that it trimmed, there is nothing to do.
    is_due = sequence > trimmed or commit_log.read(trimmed) is not None
    return sequence if is_due else 0


def archived_content(storage: Storage, instant: Instant) -> ArchivedInstant | None:
    """An instant with its files' content; None when it has left the timeline already.

    :param storage: the table's storage.
    :param instant: a completed instant.
    """
    try:
        metadata = storage.read(instant_path(instant))
    except FileNotFoundError:
        return None
    for action in instant.action.when_pending or (instant.action,):
        with suppress(FileNotFoundError):
            plan = storage.read(instant_path(replace(instant, action=action, state=State.REQUESTED)))
            return ArchivedInstant(instant, metadata or None, plan or None)
    return ArchivedInstant(instant, metadata or None, None)


def take_off(storage: Storage, instants: Iterable[Instant]) -> None:
    """Delete instants' files: the oldest instant first, and for each its plan first and its completion last.

    So no reader finds a gap, or a completed instant pending. A process that executes the plan of such an
    instant cannot begin again, because the plan is gone.

    :param storage: the table's storage.
    :param instants: the instants that leave.
    """
    leaving = {instant.requested_time for instant in instants}
    found, states = [], list(State)  # in the order in which an instant has them
    for name in storage.names(TIMELINE_FOLDER):
        instant = Instant.parse(name)
        if instant is not None and instant.requested_time in leaving:
            found.append((instant.requested_time, states.index(instant.state), name))
    for _, _, name in sorted(found):
        storage.delete(f"{TIMELINE_FOLDER}/{name}")


def _limit(table: HudiTable, name: str, given: int | None) -> int:
    return int(table.hudi_options.values.get(name, OPTIONS[name].default) if given is None else given)
