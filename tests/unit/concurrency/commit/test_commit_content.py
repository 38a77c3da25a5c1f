"""The content of a commit: its remainder after a conflict, and its entry and instant."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from airflow_provider.concurrency.commit.commit_content import REBASED_ONTO, CommitContent, Rebased
from airflow_provider.concurrency.commit.staged_paths import staged_metadata_path
from airflow_provider.concurrency.conflicts import Conflict
from airflow_provider.concurrency.conflicts.rules import Outcome, WriteDescription
from airflow_provider.concurrency.heartbeats import HeartbeatInfo
from airflow_provider.concurrency.log.log_entry import Commit
from airflow_provider.table.file_groups.view import FileGroupId
from airflow_provider.table.file_names import base_file_name
from airflow_provider.table.schema import TableSchema
from airflow_provider.table.timeline.instant import Action, State
from airflow_provider.table.timeline.metadata import WriteStat, decode_commit_metadata

INSTANT = "20240101000000002"
A, B, C, D = (FileGroupId("p", f"{name}-0") for name in "abcd")
SCHEMA = TableSchema('{"type":"record","name":"t","fields":[{"name":"id","type":"long"}]}')


def stat(group: FileGroupId, *, merged_on: FileGroupId | None = None, inserts: int = 0) -> WriteStat:
    before = base_file_name(merged_on.file_id, "0-0-0", "20240101000000000") if merged_on else None
    path = f"{group.partition_path}/{group.file_id}"
    return WriteStat(group.file_id, group.partition_path, path, num_inserts=inserts, prev_base_file=before)


def content(*stats: WriteStat, replaced: tuple[str, ...] = ()) -> CommitContent:
    return CommitContent(stats, {"p": replaced} if replaced else {}, {"priority": "400"})


def conflict(*groups: FileGroupId, instant: str = "20240101000000004") -> Conflict:
    other = WriteDescription(instant, "UPSERT", 400, State.COMPLETED, frozenset(groups), owner="another")
    return Conflict(other, frozenset(groups), Outcome.REBASE)


def written(what: CommitContent | None) -> set[FileGroupId]:
    return set(what.written) if what is not None else set()


# --- what is lost, and what is left ---------------------------------------------------------


@pytest.mark.parametrize("named", [A, C], ids=["the one taken out", "the new one"])
def test_a_merge_into_a_new_file_group_is_lost_with_the_one_it_was_merged_on(named: FileGroupId) -> None:
    write = content(stat(C, merged_on=A), stat(B), stat(D, merged_on=D), replaced=(A.file_id,))
    assert write.lost([conflict(named), conflict(B)]) == {A, B, C}


def test_a_merge_within_its_file_group_is_lost_alone() -> None:
    write = content(stat(A, merged_on=A), stat(C, merged_on=B), replaced=(B.file_id,))
    assert write.lost([conflict(A)]) == {A}
    assert write.lost([conflict(D)]) == {D}
    assert write.merged_into == {B: C}


def test_what_was_merged_on_a_file_group_that_stays_is_not_lost_with_it() -> None:
    write = content(stat(C, merged_on=A), replaced=(B.file_id,))
    assert write.lost([conflict(A)]) == {A}


def test_parts_that_are_lost_leave_the_others() -> None:
    write = replace(
        content(stat(A), stat(C), stat(D), replaced=(B.file_id,)),
        parts=(frozenset({A, B}), frozenset({C}), frozenset({D})),
    )
    left = write.without([conflict(B), conflict(D)])
    assert left is not None
    assert (written(left), left.parts, left.replaced) == ({C}, (frozenset({C}),), {})
    assert write.without([conflict(A), conflict(C), conflict(D)]) is None
    assert write.without([conflict(A), conflict()]) is None, "a restore concerns the whole table"


def test_what_was_merged_again_comes_in_place_of_what_was_lost() -> None:
    write = content(stat(A), stat(B), replaced=("x-0", "y-0"))
    again = Rebased([stat(D)], {"p": ["z-0", "x-0"], "q": ["w-0"]})
    merged = write.with_rebased(frozenset({A, FileGroupId("p", "y-0")}), again)
    assert written(merged) == {B, D}
    assert merged.replaced == {"p": ("x-0", "z-0"), "q": ("w-0",)}
    assert (
        content(stat(A), replaced=("x-0",))
        .with_rebased(frozenset({FileGroupId("p", "x-0")}), Rebased(()))
        .replaced
        == {}
    )


def test_the_share_of_some_file_groups_is_that_of_their_data_files() -> None:
    write = content(stat(A), stat(B), stat(C), stat(D))
    assert write.share_of(frozenset({A})) == 0.25
    assert write.share_of(write.written) == 1.0
    assert content(stat(A)).share_of(frozenset({A})) == 1.0
    assert content().share_of(frozenset({A})) == 0.0


def test_a_commit_names_the_last_writes_because_of_which_it_was_merged_again() -> None:
    once = content(stat(A)).said_to_be_rebased([conflict(A, instant="1")])
    assert once.extra_metadata["priority"] == "400"
    told = [{"instant": "1", "operation": "UPSERT", "owner": "another"}]
    assert json.loads(once.extra_metadata[REBASED_ONTO]) == told
    twice = once.said_to_be_rebased([conflict(A, instant="2")])
    assert [each["instant"] for each in json.loads(twice.extra_metadata[REBASED_ONTO])] == ["1", "2"]
    often = twice.said_to_be_rebased([conflict(A, instant=str(each)) for each in range(3, 23)])
    named = [each["instant"] for each in json.loads(often.extra_metadata[REBASED_ONTO])]
    assert named == [str(each) for each in range(3, 23)]


# --- how it completes -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pending", "replaces", "completes", "renamed"),
    [
        (Action.COMMIT, False, Action.COMMIT, None),
        (Action.COMMIT, True, Action.REPLACE_COMMIT, Action.REPLACE_COMMIT),
        (Action.DELTA_COMMIT, False, Action.DELTA_COMMIT, None),
        (Action.DELTA_COMMIT, True, Action.REPLACE_COMMIT, Action.REPLACE_COMMIT),
        (Action.REPLACE_COMMIT, False, Action.REPLACE_COMMIT, None),
        (Action.REPLACE_COMMIT, True, Action.REPLACE_COMMIT, None),
        (Action.CLUSTERING, True, Action.REPLACE_COMMIT, None),
        (Action.COMPACTION, False, Action.COMMIT, None),
        (Action.CLEAN, True, Action.CLEAN, None),
    ],
)
def test_only_a_replacecommit_takes_file_groups_out(
    pending: Action, replaces: bool, completes: Action, renamed: Action | None
) -> None:
    write = content(stat(A), replaced=(B.file_id,) if replaces else ())
    entry = write.entry(INSTANT, pending, HeartbeatInfo())
    assert (write.completed_action(pending), entry.action) == (completes, completes)
    assert write.renamed_action(pending) == renamed
    assert entry.pending_action == (pending if renamed else None)


def test_the_entry_says_all_that_others_judge_the_write_by() -> None:
    log_file = WriteStat("d-0", "q", "q/.d-0.log.1", log_files=(".d-0.log.1",), num_inserts=3)
    write = replace(content(stat(A, inserts=2), stat(B), log_file, replaced=(C.file_id,)), evolves=True)
    info = HeartbeatInfo("me", Action.COMMIT, "UPSERT", 300, operation_key="mine")
    entry = write.entry(INSTANT, Action.COMMIT, info, seen="20240101000000001")
    assert entry == Commit(
        instant=INSTANT,
        action=Action.REPLACE_COMMIT,
        operation="UPSERT",
        priority=300,
        owner="me",
        written=frozenset({A, B, FileGroupId("q", "d-0")}),
        replaced=frozenset({C}),
        appended=frozenset({FileGroupId("q", "d-0")}),
        inserted_in=frozenset({"p", "q"}),
        metadata_path=staged_metadata_path(INSTANT),
        pending_action=Action.COMMIT,
        operation_key="mine",
        evolves=True,
        seen="20240101000000001",
    )
    assert write.entry(INSTANT, Action.COMMIT, info).seen == "", "under a lock that nobody shares"


def test_the_instant_says_what_is_written_and_the_schema_from_then_on() -> None:
    write = content(stat(A), replaced=(B.file_id,))
    said = decode_commit_metadata(write.encoded("UPSERT", Action.COMMIT))
    assert (said.operation_type, said.replaced) == ("UPSERT", {"p": ("b-0",)})
    assert [each.file_id for each in said.write_stats] == ["a-0"]
    assert dict(said.extra_metadata) == {"priority": "400"}
    evolved = write.with_schema(SCHEMA, True)
    assert (evolved.schema, evolved.evolves) == (SCHEMA, True)
    said = decode_commit_metadata(evolved.encoded("UPSERT", Action.COMMIT))
    assert dict(said.extra_metadata) == {"priority": "400", **SCHEMA.extra_metadata}
    assert replace(write, metadata=b"a clean's").encoded("CLEAN", Action.CLEAN) == b"a clean's"
