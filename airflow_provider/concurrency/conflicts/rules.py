"""The conflict rules and priorities: pure functions over two descriptions of writes.

Source: RFC-22, "Concurrency Control", option 1, step 4. The rules are the functions of :data:`RULES`, called
in their order; the first one that returns an answer decides.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Literal

from airflow_provider.concurrency.log import Commit, LogEntry, Revert, Rollback
from airflow_provider.exceptions import InvalidInputError
from airflow_provider.table.bucket_index import bucket_of
from airflow_provider.table.file_groups import FileGroupId
from airflow_provider.table.timeline import REWRITES, State

PRIORITIES = {"ingestion": 400, "backfill": 300, "table_service": 200, "cleaning": 100}
"""The named priorities; the larger one wins. Any integer may be given."""

CLEANING = frozenset({"CLEAN"})
"""Operations that delete file slices which no snapshot shows any more."""

OVERWRITING = {"INSERT_OVERWRITE": False, "INSERT_OVERWRITE_TABLE": True}
"""Operations that replace all rows of other writes, in the partitions that they write or in the table."""

INDEXING = frozenset({"INDEX"})
"""Operations that plan an index, or complete it."""

COMPACT = "COMPACT"
"""The operation that writes what log files say into new base files of their file groups."""

RESTORE = "RESTORE"
"""The operation that takes a table back to an earlier commit."""


def kind_of(operation: str) -> str:
    """The kind of writer of an operation, for counting conflicts: ingestion, service or undo.

    :param operation: Hudi's operation type; also ``CLEAN``, ``ROLLBACK`` and ``INDEX``.
    """
    if operation in REWRITES | CLEANING | INDEXING:
        return "service"
    return "undo" if operation in {RESTORE, "ROLLBACK", "REVERT"} else "ingestion"


class Outcome(StrEnum):
    """What a committing write does about another one."""

    PROCEED = "proceed"
    YIELD = "yield"
    """Wait for the other one's end, or fail, before more work is done."""
    ROLL_BACK_FIRST = "roll back first"
    """The other one is dead: its rollback goes before."""
    ROLLED_BACK = "rolled back"
    """The other one is the rollback of this write, which is therefore dead."""
    CONFLICT = "conflict"
    """The write is lost."""
    REBASE = "rebase"
    """Merge again, on the new snapshot, the file groups that both touched."""
    REVERT = "revert"
    """Roll the other one back, although it has completed."""
    PLANNED = "planned"
    """The other one is a clustering that another Hudi writer has planned. It ignores what is written while it
    is pending, so nothing may be written to its file groups."""


@dataclass(frozen=True)
class ConflictPolicy:
    """What a write does where the rules leave it a choice.

    :param on_conflict: when a write that completed first touched the same file groups: ``raise``
        :class:`~airflow_provider.exceptions.WriteConflictError`, or ``rebase``.
    :param on_rewrite: when what completed first was a rewrite (clustering, compaction) of lower
        priority: ``rebase`` onto its new file groups, or ``revert`` it (RFC-22's example).
    :param on_higher_priority: when a live writer of higher priority works on the same file
        groups: ``wait`` for its end, or ``fail``.
    :param max_rebases: how often one write is rebased before it raises.
    :param yield_timeout: seconds to wait for writers of higher priority, and for clusterings that other Hudi
        writers have planned, all in all.
    :param on_pending_clustering: when another Hudi writer has planned a clustering of a file group that this
        write touches: ``fail`` (Hudi's ``SparkRejectUpdateStrategy``), or ``wait`` for its end.
    :raises InvalidInputError: when a value is not one of these.
    """

    on_conflict: Literal["raise", "rebase"] = "raise"
    on_rewrite: Literal["rebase", "revert"] = "rebase"
    on_higher_priority: Literal["wait", "fail"] = "wait"
    max_rebases: int = 10
    yield_timeout: float = 3600.0
    on_pending_clustering: Literal["fail", "wait"] = "fail"

    def __post_init__(self) -> None:
        for name, known in _CHOICES.items():
            if (value := getattr(self, name)) not in known:
                raise InvalidInputError(f"{name} must be {' or '.join(map(repr, known))}, not {value!r}")
        for name, kind, what in (
            ("max_rebases", int, "a whole number"),
            ("yield_timeout", int | float, "a number of seconds"),
        ):
            if isinstance(value := getattr(self, name), bool) or not isinstance(value, kind):
                raise InvalidInputError(f"{name} must be {what}, not {value!r}")
        if self.max_rebases < 0:
            raise InvalidInputError(f"max_rebases must be 0 or more, not {self.max_rebases!r}")
        if self.yield_timeout < 0:
            raise InvalidInputError(f"yield_timeout must be 0 seconds or more, not {self.yield_timeout!r}")


_CHOICES = {
    "on_conflict": ("raise", "rebase"),
    "on_rewrite": ("rebase", "revert"),
    "on_higher_priority": ("wait", "fail"),
    "on_pending_clustering": ("fail", "wait"),
}


class _Everything(Container[str]):
    def __contains__(self, _: object) -> bool:
        return True


@dataclass(frozen=True)
class WriteDescription:
    """The properties of a write that the conflict rules look at.

    :param instant: requested time.
    :param operation: Hudi's operation type; also ``CLEAN``, ``ROLLBACK`` and ``INDEX``.
    :param priority: see :data:`PRIORITIES`.
    :param state: the state of its instant.
    :param file_groups: the file groups that it writes, takes out or cleans. Those of a plan are known; a
        requested write has none yet.
    :param appended: the file groups among them that get log files alone.
    :param alive: whether its heartbeat is in time; None when it has none: no process carries out the plan, or
        the writer keeps no heartbeat.
    :param rolls_back: requested time of the instant that it rolls back or reverts.
    :param completion_time: its completion time, once it has completed.
    :param owner: host and process of the writer.
    :param merges_in_any_order: whether its log files merge with those of other writes to the same file group,
        in any order of completion (non-blocking concurrency control).
    :param written_twice: by each bucket that it splits or merges, the buckets that it makes of it.
    """

    instant: str
    operation: str
    priority: int
    state: State
    file_groups: frozenset[FileGroupId] = frozenset()
    appended: frozenset[FileGroupId] = frozenset()
    alive: bool | None = None
    rolls_back: str | None = None
    completion_time: str | None = None
    owner: str = "unknown"
    merges_in_any_order: bool = False
    written_twice: Mapping[FileGroupId, frozenset[FileGroupId]] = field(default_factory=dict, compare=False)

    @cached_property
    def buckets(self) -> dict[FileGroupId, set[FileGroupId]]:
        """The file groups that are buckets of a bucket index, by partition and number of the bucket."""
        found: dict[FileGroupId, set[FileGroupId]] = {}
        for group in self.file_groups:
            if (bucket := bucket_of(group)) is not None:
                found.setdefault(bucket, set()).add(group)
        return found

    @cached_property
    def overwrites(self) -> Container[str]:
        """Partition paths in which this write replaces all rows of other writes."""
        whole_table = OVERWRITING.get(self.operation)
        if whole_table:
            return _Everything()
        return frozenset() if whole_table is None else {group.partition_path for group in self.file_groups}

    @classmethod
    def of_entry(cls, entry: LogEntry) -> WriteDescription:
        """The description of a completed write, from its log entry."""
        return cls(
            instant=entry.instant,
            operation=entry.operation,
            priority=entry.priority,
            state=State.COMPLETED,
            file_groups=entry.touched,
            appended=entry.appended if isinstance(entry, Commit | Revert) else frozenset(),
            rolls_back=entry.rolls_back if isinstance(entry, Rollback | Revert) else None,
            completion_time=entry.completion_time,
            owner=entry.owner,
        )

    def __str__(self) -> str:
        when = f"completed at {self.completion_time}" if self.completion_time else f"is {self.state}"
        return f"{self.operation} {self.instant} by {self.owner}, priority {self.priority}, {when}"


@dataclass(frozen=True)
class Conflict:
    """The reason why a write cannot go on as it is.

    :param other: the other write.
    :param file_groups: the file groups of this write that are in conflict.
    :param outcome: the decision of the rules.
    :param keys: for a conflict about record keys, some of the keys: both writes added them, or a record index
        that became complete already has them.
    :param overwritten: partition paths that this write overwrites, and the other one wrote.
    """

    other: WriteDescription
    file_groups: frozenset[FileGroupId]
    outcome: Outcome
    keys: tuple[str, ...] = ()
    overwritten: tuple[str, ...] = ()

    def __str__(self) -> str:
        shown = ", ".join(
            f"{partition}/{file_id}".lstrip("/") for partition, file_id in sorted(self.file_groups)[:3]
        )
        more = f" and {len(self.file_groups) - 3} more" if len(self.file_groups) > 3 else ""
        if self.keys and self.other.operation in INDEXING:
            named = ", ".join(self.keys)
            return f"{self.other}, and with a record index no key may be there twice, as {named} would be"
        if self.keys:
            return f"{self.other} and added the same new record key {', '.join(self.keys)}"
        if self.other.operation == RESTORE:
            return f"{self.other} and took the table back to an earlier commit"
        if self.overwritten and not self.file_groups:
            where = ", ".join(f"partition {path!r}" if path else "the table" for path in self.overwritten[:3])
            return f"{self.other} and wrote to {where}, which is overwritten"
        return f"{self.other} and touches file group {shown}{more} too"


Rule = Callable[[WriteDescription, WriteDescription, ConflictPolicy], Outcome | None]


def resolve_conflict(
    committing: WriteDescription,
    other: WriteDescription,
    policy: ConflictPolicy,
    *,
    same_new_keys: bool = False,
) -> Outcome:
    """Decide what a write that is about to commit, or to begin writing, does about another one.

    :param committing: the write that is about to commit; its state does not matter.
    :param other: pending, or completed since the committing write's base.
    :param policy: the committing write's decision where the rules leave a choice.
    :param same_new_keys: whether both added the same new record key, which is a conflict
        like a file group that both touched.
    """
    rules = (_completed_first,) if same_new_keys else RULES
    found = (rule(committing, other, policy) for rule in rules)
    return next(answer for answer in found if answer is not None)  # the last rule always has one


def conflicts_with(
    committing: WriteDescription, others: Iterable[WriteDescription], policy: ConflictPolicy
) -> list[Conflict]:
    """The conflicts that keep a write from proceeding, in the order of the other writes.

    :param committing: the write that is about to commit.
    :param others: pending writes, or those that completed since its base.
    :param policy: the write's decision where the rules leave a choice.
    """
    found = []
    for other in others:
        answer = resolve_conflict(committing, other, policy)
        if answer is not Outcome.PROCEED:
            overwritten = tuple(sorted(overwritten_by(committing, other)))
            found.append(Conflict(other, shared_by(committing, other), answer, overwritten=overwritten))
    return found


# --- the rules, in their order --------------------------------------------------------------


def _rollback_of_this_write(
    committing: WriteDescription, other: WriteDescription, _: ConflictPolicy
) -> Outcome | None:
    """A write whose instant was rolled back is dead for good; no other rule makes a write dead."""
    return Outcome.ROLLED_BACK if other.rolls_back == committing.instant else None


def _restored(_: WriteDescription, other: WriteDescription, __: ConflictPolicy) -> Outcome | None:
    """A restore takes the whole table back, so no write that is based on an undone commit may commit."""
    return Outcome.CONFLICT if other.operation == RESTORE else None


def _nothing_shared(
    committing: WriteDescription, other: WriteDescription, _: ConflictPolicy
) -> Outcome | None:
    """Writes of different file groups never meet, unless one overwrites what the other wrote since its base.
    An index build touches none."""
    if shared_by(committing, other) or overwritten_by(committing, other):
        return None
    return Outcome.PROCEED


def shared_by(committing: WriteDescription, other: WriteDescription) -> frozenset[FileGroupId]:
    """The file groups in which two writes meet.

    A compaction reads the log files of instants that had completed when it was planned. Log files of later
    instants belong to the next file slice, so a compaction and a write that appends them never meet. A
    compaction and a revert do, because the compaction may have read files that the revert takes away.

    A bucket has one file group. Two writes that have different file groups for a bucket meet in the bucket
    (``BucketIndexConcurrentFileWritesConflictResolutionStrategy``).

    :param committing: the write that is about to commit.
    :param other: another write.
    """
    shared = committing.file_groups & other.file_groups
    if committing.buckets and not {committing.operation, other.operation} & CLEANING:
        for bucket, groups in committing.buckets.items():
            if other.buckets.get(bucket, groups) != groups:
                shared |= groups
    if committing.operation == COMPACT and other.rolls_back is None:
        shared -= other.appended
    if other.operation == COMPACT:
        shared -= committing.appended
    for bucket, made in committing.written_twice.items():
        # As ``SparkConsistentBucketDuplicateUpdateStrategy`` does.
        if bucket in other.appended and made & other.appended:
            shared -= {bucket, *made}
    if committing.merges_in_any_order:
        shared -= committing.appended & other.appended
    return shared


def overwritten_by(committing: WriteDescription, other: WriteDescription) -> set[str]:
    """Partition paths that the committing write overwrites, and in which the other one has completed a write.

    The opposite case is no conflict: a write that commits after an overwrite adds its rows to it.

    :param committing: the write that is about to commit.
    :param other: another write.
    """
    if other.state is not State.COMPLETED:
        return set()
    wrote = {group.partition_path for group in other.file_groups}
    return {path for path in wrote if path in committing.overwrites}


def _rollback_goes_on(
    committing: WriteDescription, other: WriteDescription, _: ConflictPolicy
) -> Outcome | None:
    """A rollback always goes on, because readers have never seen the instant that it undoes."""
    return Outcome.PROCEED if committing.rolls_back is not None else None


def _dead_writer(committing: WriteDescription, other: WriteDescription, _: ConflictPolicy) -> Outcome | None:
    """If the other write is in flight and its heartbeat has expired, it is rolled back first."""
    pending = other.state is not State.COMPLETED
    return Outcome.ROLL_BACK_FIRST if pending and other.alive is False else None


def _live_writer(committing: WriteDescription, other: WriteDescription, _: ConflictPolicy) -> Outcome | None:
    """If the other write is in flight, this one yields only to a live writer of higher priority.

    If the priority of the other write is lower, it finds this one at its own commit or next early check.
    """
    if other.state is State.COMPLETED:
        return None
    return Outcome.YIELD if other.alive and other.priority > committing.priority else Outcome.PROCEED


def _cleaning(committing: WriteDescription, other: WriteDescription, _: ConflictPolicy) -> Outcome | None:
    """A clean deletes file slices that no snapshot shows any more, and no later commit needs them. Only a
    revert can make such a slice visible again."""
    if other.operation in CLEANING:
        return Outcome.PROCEED
    if committing.operation in CLEANING:
        return Outcome.PROCEED if other.rolls_back is None else Outcome.CONFLICT
    return None


def _rewrite_of_lower_priority(
    committing: WriteDescription, other: WriteDescription, policy: ConflictPolicy
) -> Outcome | None:
    """If the other write is a completed rewrite of lower priority, rebase onto it, or revert it."""
    if other.operation not in REWRITES or committing.operation in REWRITES:
        return None
    if committing.priority <= other.priority:
        return None
    return Outcome.REVERT if policy.on_rewrite == "revert" else Outcome.REBASE


def _completed_first(
    committing: WriteDescription, other: WriteDescription, policy: ConflictPolicy
) -> Outcome | None:
    """The first committer wins between equals, and against a commit that cannot be undone."""
    return Outcome.REBASE if policy.on_conflict == "rebase" else Outcome.CONFLICT


RULES: tuple[Rule, ...] = (
    _rollback_of_this_write,
    _restored,
    _nothing_shared,
    _rollback_goes_on,
    _dead_writer,
    _live_writer,
    _cleaning,
    _rewrite_of_lower_priority,
    _completed_first,
)
"""All rules; the first one that has an answer decides."""
