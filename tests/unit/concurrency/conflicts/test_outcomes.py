"""The full table of the conflict rules: the outcome of each write for each other write."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider.concurrency import PRIORITIES, ConflictPolicy, Outcome
from airflow_provider.concurrency.conflicts.rules import (
    Conflict,
    WriteDescription,
    conflicts_with,
    kind_of,
    resolve_conflict,
)
from airflow_provider.concurrency.log.log_entry import Commit, Rollback
from airflow_provider.exceptions import InvalidInputError
from airflow_provider.table.file_groups.view import FileGroupId
from airflow_provider.table.timeline.instant import Action, State

A, B, C = (FileGroupId("p", f"{name}-0") for name in "abc")

# Hudi's operation type and the usual priority of every kind of write.
KINDS = {
    "ingestion": ("UPSERT", PRIORITIES["ingestion"]),
    "backfill": ("UPSERT", PRIORITIES["backfill"]),
    "insert-overwrite": ("INSERT_OVERWRITE", PRIORITIES["ingestion"]),
    "delete": ("DELETE", PRIORITIES["ingestion"]),
    "clustering": ("CLUSTER", PRIORITIES["table_service"]),
    "compaction": ("COMPACT", PRIORITIES["table_service"]),
    "cleaning": ("CLEAN", PRIORITIES["cleaning"]),
    "rollback": ("ROLLBACK", PRIORITIES["cleaning"]),
    "index build": ("INDEX", PRIORITIES["table_service"]),
}
CHANGES_ROWS = ("ingestion", "backfill", "insert-overwrite", "delete")
REWRITES = ("clustering", "compaction")

# The states of the other write, as the committing write sees them.
STATES = {
    "requested": (State.REQUESTED, True),
    "inflight, alive": (State.INFLIGHT, True),
    "inflight, dead": (State.INFLIGHT, False),
    "scheduled": (State.REQUESTED, None),
    "completed": (State.COMPLETED, None),
}
RELATIONS = {"lower": -1, "equal": 0, "higher": 1}

COLUMNS = list(itertools.product(KINDS, STATES, (True, False), RELATIONS))


def write(kind: str, instant: str, groups: set[FileGroupId], priority: int, state: str) -> WriteDescription:
    operation, _ = KINDS[kind]
    found, alive = STATES[state]
    # A requested write has not named its file groups yet; a plan has.
    known = groups if state != "requested" and kind != "index build" else set()
    return WriteDescription(
        instant,
        operation,
        priority,
        found,
        frozenset(known),
        alive=alive,
        rolls_back="20260101000000000" if kind == "rollback" else None,
        completion_time="20260101000009000" if found is State.COMPLETED else None,
    )


def expected(committing: str, other: str, state: str, overlapping: bool, relation: str) -> Outcome:
    """The outcome by the table in docs/commit-protocol.md ("Who wins"), with the default policy."""
    # It is in the same partition, and the overwrite replaces it only if it has seen it.
    overlapping = overlapping or (committing == "insert-overwrite" and state == "completed")
    never_meets = "index build" in (committing, other) or not overlapping or state == "requested"
    if never_meets or committing == "rollback":
        return Outcome.PROCEED
    if state == "inflight, dead":
        return Outcome.ROLL_BACK_FIRST
    if state == "inflight, alive":
        return Outcome.YIELD if relation == "higher" else Outcome.PROCEED
    if state == "scheduled" or other == "cleaning":
        return Outcome.PROCEED
    if committing == "cleaning":
        # Of completed rollbacks only a revert has file groups, and it shows them again.
        return Outcome.CONFLICT if other == "rollback" else Outcome.PROCEED
    if other in REWRITES and committing not in REWRITES and relation == "lower":
        return Outcome.REBASE
    return Outcome.CONFLICT


@pytest.mark.parametrize("committing", KINDS)
def test_outcome(committing: str) -> None:
    priority = KINDS[committing][1]
    this = write(committing, "20260101000005000", {A}, priority, "inflight, alive")
    for other, state, overlapping, relation in COLUMNS:
        groups = {A, B} if overlapping else {B}
        that = write(other, "20260101000004000", groups, priority + RELATIONS[relation], state)
        found = resolve_conflict(this, that, ConflictPolicy())
        wanted = expected(committing, other, state, overlapping, relation)
        assert found is wanted, (other, state, overlapping, relation)


@pytest.mark.parametrize("committing", CHANGES_ROWS)
def test_who_may_revert_does_so_to_lower_rewrites_only(committing: str) -> None:
    policy = ConflictPolicy(on_rewrite="revert")
    priority = KINDS[committing][1]
    this = write(committing, "20260101000005000", {A}, priority, "inflight, alive")
    for other, relation in itertools.product(KINDS, RELATIONS):
        that = write(other, "20260101000004000", {A}, priority + RELATIONS[relation], "completed")
        reverted = resolve_conflict(this, that, policy) is Outcome.REVERT
        assert reverted == (other in REWRITES and relation == "lower"), (other, relation)


@pytest.mark.parametrize("committing", [kind for kind in KINDS if kind not in ("rollback", "index build")])
def test_who_may_rebase_rebases_where_it_would_have_lost(committing: str) -> None:
    this = write(committing, "20260101000005000", {A}, 400, "inflight, alive")
    wanted = Outcome.PROCEED if committing == "cleaning" else Outcome.REBASE
    for other in CHANGES_ROWS:
        that = write(other, "20260101000004000", {A}, 400, "completed")
        assert resolve_conflict(this, that, ConflictPolicy(on_conflict="rebase")) is wanted, other


@pytest.mark.parametrize("committing", KINDS)
def test_the_rollback_of_a_write_is_its_end_whatever_the_file_groups(committing: str) -> None:
    this = write(committing, "20260101000005000", {A}, 400, "inflight, alive")
    that = replace(write("rollback", "20260101000006000", set(), 100, "completed"), rolls_back=this.instant)
    assert resolve_conflict(this, that, ConflictPolicy(on_conflict="rebase")) is Outcome.ROLLED_BACK


@pytest.mark.parametrize(("policy", "wanted"), [("raise", Outcome.CONFLICT), ("rebase", Outcome.REBASE)])
def test_the_same_new_key_is_a_conflict_without_a_shared_file_group(policy: str, wanted: Outcome) -> None:
    this = write("ingestion", "20260101000005000", {A}, 400, "inflight, alive")
    that = write("backfill", "20260101000004000", {B}, 300, "completed")
    assert resolve_conflict(this, that, ConflictPolicy(on_conflict=policy)) is Outcome.PROCEED  # type: ignore[arg-type]
    assert resolve_conflict(this, that, ConflictPolicy(on_conflict=policy), same_new_keys=True) is wanted  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("operation", "partition", "wanted"),
    [
        ("INSERT_OVERWRITE", "p", Outcome.CONFLICT),
        ("INSERT_OVERWRITE", "q", Outcome.PROCEED),
        ("INSERT_OVERWRITE_TABLE", "p", Outcome.CONFLICT),
        ("INSERT_OVERWRITE_TABLE", "q", Outcome.CONFLICT),
    ],
)
def test_an_overwrite_loses_against_what_it_has_not_seen(
    operation: str, partition: str, wanted: Outcome
) -> None:
    this = replace(
        write("insert-overwrite", "20260101000005000", {A}, 400, "inflight, alive"), operation=operation
    )
    that = write("ingestion", "20260101000004000", {FileGroupId(partition, "new-0")}, 500, "completed")
    assert resolve_conflict(this, that, ConflictPolicy()) is wanted
    assert resolve_conflict(that, this, ConflictPolicy()) is Outcome.PROCEED
    assert resolve_conflict(this, replace(that, state=State.INFLIGHT), ConflictPolicy()) is Outcome.PROCEED


def test_a_conflict_says_who_and_where() -> None:
    this = write("ingestion", "20260101000005000", {A}, 400, "inflight, alive")
    that = replace(write("ingestion", "20260101000004000", {A, B}, 400, "completed"), owner="host:17")
    (conflict,) = conflicts_with(this, [that], ConflictPolicy())
    assert conflict.file_groups == {A}
    for told in ("UPSERT 20260101000004000", "host:17", "priority 400", "p/a-0"):
        assert told in str(conflict)


@pytest.mark.parametrize(
    ("operations", "kind"),
    [
        (("UPSERT", "INSERT_OVERWRITE", "DELETE", "ALTER_SCHEMA"), "ingestion"),
        (("CLUSTER", "COMPACT", "CLEAN", "INDEX"), "service"),
        (("RESTORE", "ROLLBACK", "REVERT"), "undo"),
    ],
)
def test_conflicts_are_counted_by_what_a_writer_is(operations: tuple[str, ...], kind: str) -> None:
    assert {kind_of(each) for each in operations} == {kind}


THEIRS = WriteDescription(
    "4", "UPSERT", 400, State.COMPLETED, frozenset({A}), completion_time="5", owner="me"
)
SAID = "UPSERT 4 by me, priority 400, completed at 5"


@pytest.mark.parametrize(
    ("conflict", "said"),
    [
        (Conflict(THEIRS, frozenset({A}), Outcome.CONFLICT), f"{SAID} and touches file group p/a-0 too"),
        (
            Conflict(replace(THEIRS, completion_time=None, state=State.INFLIGHT), frozenset(), Outcome.YIELD),
            "UPSERT 4 by me, priority 400, is inflight and touches file group  too",
        ),
        (
            Conflict(THEIRS, frozenset(FileGroupId("", each) for each in "abcd"), Outcome.CONFLICT),
            f"{SAID} and touches file group a, b, c and 1 more too",
        ),
        (
            Conflict(THEIRS, frozenset({A}), Outcome.CONFLICT, ("k", "l")),
            f"{SAID} and added the same new record key k, l",
        ),
        (
            Conflict(replace(THEIRS, operation="INDEX"), frozenset({A}), Outcome.CONFLICT, ("k", "l")),
            f"{SAID.replace('UPSERT', 'INDEX')}, and with a record index no key may be there twice, as "
            "k, l would be",
        ),
        (
            Conflict(replace(THEIRS, operation="RESTORE"), frozenset(), Outcome.CONFLICT),
            "RESTORE 4 by me, priority 400, completed at 5 and took the table back to an earlier commit",
        ),
        (
            Conflict(THEIRS, frozenset(), Outcome.CONFLICT, overwritten=("p", "", "q", "r")),
            f"{SAID} and wrote to partition 'p', the table, partition 'q', which is overwritten",
        ),
        (
            Conflict(THEIRS, frozenset({A}), Outcome.CONFLICT, overwritten=("p",)),
            f"{SAID} and touches file group p/a-0 too",
        ),
    ],
)
def test_a_conflict_in_words(conflict: Conflict, said: str) -> None:
    assert str(conflict) == said


def test_a_conflict_of_an_overwrite_says_which_partitions_it_would_overwrite_unseen() -> None:
    this = write(
        "insert-overwrite", "20260101000005000", {A, FileGroupId("q", "c-0")}, 400, "inflight, alive"
    )
    new = {FileGroupId("q", "new-1"), FileGroupId("p", "new-0"), FileGroupId("r", "new-2")}
    (conflict,) = conflicts_with(
        this, [write("ingestion", "20260101000004000", new, 400, "completed")], ConflictPolicy()
    )
    assert (conflict.file_groups, conflict.overwritten) == (frozenset(), ("p", "q"))
    assert "wrote to partition 'p', partition 'q', which is overwritten" in str(conflict)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("on_conflict", "retry"),
        ("on_rewrite", "raise"),
        ("on_higher_priority", "rebase"),
        ("max_rebases", -1),
        ("max_rebases", True),
        ("yield_timeout", -0.5),
    ],
)
def test_a_policy_that_cannot_work_is_refused(name: str, value: object) -> None:
    with pytest.raises(InvalidInputError, match=f"{name} must be .*{value}"):
        ConflictPolicy(**{name: value})  # type: ignore[arg-type]


def test_a_policy_may_allow_no_rebase_and_no_wait() -> None:
    policy = ConflictPolicy(max_rebases=0, yield_timeout=0.0)
    assert (policy.max_rebases, policy.yield_timeout) == (0, 0.0)


def test_a_write_that_completed_is_what_its_entry_says() -> None:
    done: dict[str, Any] = {
        "instant": "20260101000004000",
        "priority": 300,
        "completion_time": "20260101000009001",
        "owner": "host:17",
    }
    commit = Commit(
        **done,
        action=Action.COMMIT,
        operation="UPSERT",
        written=frozenset({A}),
        replaced=frozenset({B}),
    )
    assert WriteDescription.of_entry(commit) == WriteDescription(
        **done, operation="UPSERT", state=State.COMPLETED, file_groups=frozenset({A, B})
    )
    rollback = Rollback(**done, rolls_back="20260101000003000")
    assert WriteDescription.of_entry(rollback) == WriteDescription(
        **done, operation="ROLLBACK", state=State.COMPLETED, rolls_back="20260101000003000"
    )


@pytest.mark.parametrize("policy", ["raise", "rebase"])
@pytest.mark.parametrize("state", ["inflight, alive", "completed"])
def test_a_compaction_and_who_appends_log_files_are_in_nobodys_way(policy: str, state: str) -> None:
    compaction = write("compaction", "20260101000004000", {A, B}, 400, state)
    appends = replace(write("ingestion", "20260101000005000", {A, C}, 500, state), appended=frozenset({A, C}))
    for this, other in ((compaction, appends), (appends, compaction)):
        assert resolve_conflict(this, other, ConflictPolicy(on_conflict=policy)) is Outcome.PROCEED  # type: ignore[arg-type]
    (met,) = conflicts_with(
        compaction,
        [replace(write("ingestion", "20260101000005000", {A, B}, 500, state), appended=frozenset({A}))],
        ConflictPolicy(),
    )
    assert met.file_groups == {B}
    (met,) = conflicts_with(
        appends, [replace(appends, instant="20260101000006000", priority=600)], ConflictPolicy()
    )
    assert met.file_groups == {A, C}


def test_a_revert_of_log_files_meets_a_compaction_and_no_writer_that_appends_in_any_order() -> None:
    """The compaction may have read the log files."""
    revert = replace(write("rollback", "20260101000005000", {A}, 400, "completed"), appended=frozenset({A}))
    (met,) = conflicts_with(
        write("compaction", "20260101000004000", {A}, 400, "inflight, alive"), [revert], ConflictPolicy()
    )
    assert (met.outcome, met.file_groups) == (Outcome.CONFLICT, {A})
    appends = replace(
        write("ingestion", "20260101000004000", {A}, 400, "inflight, alive"), appended=frozenset({A})
    )
    assert conflicts_with(replace(appends, merges_in_any_order=True), [revert], ConflictPolicy()) == []
    (met,) = conflicts_with(appends, [revert], ConflictPolicy())
    assert met.outcome is Outcome.CONFLICT


BUCKET, SAME_BUCKET = (FileGroupId("p", f"00000007-{rest}-0") for rest in "ab")


@pytest.mark.parametrize("policy", ["raise", "rebase"])
@pytest.mark.parametrize("state", ["inflight, alive", "completed"])
def test_writers_that_append_in_any_order_do_not_meet(policy: str, state: str) -> None:
    theirs = replace(
        write("backfill", "20260101000004000", {A, BUCKET}, 900, state), appended=frozenset({A, BUCKET})
    )
    mine = replace(theirs, instant="20260101000005000", priority=400, merges_in_any_order=True)
    assert resolve_conflict(mine, theirs, ConflictPolicy(on_conflict=policy)) is Outcome.PROCEED  # type: ignore[arg-type]
    # It conflicts with writes that write or replace base files, and with writes of another concurrency mode.
    for other, me in (
        (replace(theirs, appended=frozenset({BUCKET})), mine),
        (theirs, replace(mine, appended=frozenset({BUCKET}))),
    ):
        (met,) = conflicts_with(me, [other], ConflictPolicy())
        assert met.file_groups == {A}
    (met,) = conflicts_with(replace(mine, merges_in_any_order=False), [theirs], ConflictPolicy())
    assert met.file_groups == {A, BUCKET}


@pytest.mark.parametrize("other", ["insert-overwrite", "clustering"])
def test_writers_that_append_in_any_order_meet_who_takes_file_groups_out(other: str) -> None:
    mine = replace(
        write("ingestion", "20260101000005000", {A}, 400, "inflight, alive"),
        appended=frozenset({A}),
        merges_in_any_order=True,
    )
    theirs = write(other, "20260101000004000", {A}, 400, "completed")
    assert resolve_conflict(mine, theirs, ConflictPolicy()) is Outcome.CONFLICT
    restored = replace(theirs, operation="RESTORE", file_groups=frozenset())
    assert resolve_conflict(mine, restored, ConflictPolicy(on_conflict="rebase")) is Outcome.CONFLICT


def test_a_bucket_in_two_file_groups_is_where_two_writes_meet() -> None:
    mine = replace(
        write("ingestion", "20260101000005000", {BUCKET, A}, 400, "inflight, alive"),
        appended=frozenset({BUCKET, A}),
        merges_in_any_order=True,
    )
    theirs = replace(
        write("ingestion", "20260101000004000", {SAME_BUCKET}, 400, "completed"),
        appended=frozenset({SAME_BUCKET}),
    )
    (met,) = conflicts_with(mine, [theirs], ConflictPolicy(on_conflict="rebase"))
    assert (met.outcome, met.file_groups) == (Outcome.REBASE, {BUCKET})
    elsewhere = replace(theirs, file_groups=frozenset({FileGroupId("q", SAME_BUCKET.file_id)}))
    assert conflicts_with(mine, [elsewhere], ConflictPolicy()) == []
    clean = write("cleaning", "20260101000004000", {SAME_BUCKET}, 900, "inflight, alive")
    assert conflicts_with(mine, [clean], ConflictPolicy()) == []


def test_who_writes_to_both_sides_of_a_split_bucket_is_not_in_its_way() -> None:
    """``SparkConsistentBucketDuplicateUpdateStrategy`` writes to both sides."""
    made = frozenset({FileGroupId("p", "made-1"), FileGroupId("p", "made-2")})
    resizing = replace(
        write("clustering", "20260101000005000", {A, B}, 200, "inflight, alive"),
        file_groups=frozenset({A, B, *made}),
        written_twice={A: made},
    )
    one, _ = sorted(made)
    twice = replace(
        write("ingestion", "20260101000004000", {A, one}, 400, "completed"), appended=frozenset({A, one})
    )
    assert conflicts_with(resizing, [twice], ConflictPolicy()) == []
    once = replace(twice, file_groups=frozenset({A}), appended=frozenset({A}))
    (met,) = conflicts_with(resizing, [once], ConflictPolicy())
    assert met.file_groups == {A}
    rewritten = replace(twice, appended=frozenset({one}))  # a new base file is no second copy
    (met,) = conflicts_with(resizing, [rewritten], ConflictPolicy())
    assert met.file_groups == {A, one}
    elsewhere = replace(twice, file_groups=frozenset({A, B, one}), appended=frozenset({A, B, one}))
    (met,) = conflicts_with(resizing, [elsewhere], ConflictPolicy())
    assert met.file_groups == {B}
