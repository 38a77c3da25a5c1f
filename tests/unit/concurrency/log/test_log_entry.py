"""The kinds of entries, and the files of earlier versions, which had only one kind of entry."""

from __future__ import annotations

import json

import pytest

from airflow_provider.concurrency.log.log_entry import (
    Archival,
    Commit,
    IndexState,
    LogEntry,
    Plan,
    Restore,
    Revert,
    Rollback,
    Savepoint,
    without_reverted,
)
from airflow_provider.table.file_groups.view import FileGroupId
from airflow_provider.table.timeline.instant import Action

GROUPS = frozenset({FileGroupId("p", "f-0")})
FILES = (IndexState("files", "20240101000000002", 1, True),)
FILES_TEXT = '"indexes":[["files","20240101000000002",1,true,""]]'

WRITTEN_BEFORE: dict[str, tuple[str, LogEntry]] = {
    "commit": (
        '{"instant":"20240101000000010","action":"replacecommit","completion_time":"20240101000000011",'
        '"operation":"UPSERT","priority":400,"written":[["p","f-0"]],"replaced":[["p","r-0"]],'
        '"inserted_in":["p"],"metadata_path":"staged","pending_action":"commit","operation_key":"k",'
        f'"owner":"h",{FILES_TEXT}}}',
        Commit(
            instant="20240101000000010",
            action=Action.REPLACE_COMMIT,
            operation="UPSERT",
            priority=400,
            completion_time="20240101000000011",
            owner="h",
            indexes=FILES,
            written=GROUPS,
            replaced=frozenset({FileGroupId("p", "r-0")}),
            inserted_in=frozenset({"p"}),
            metadata_path="staged",
            pending_action=Action.COMMIT,
            operation_key="k",
        ),
    ),
    "plan": (
        '{"instant":"20240101000000012","action":"clustering","completion_time":"20240101000000013",'
        '"operation":"CLUSTER","priority":200,"written":[["p","f-0"]],"metadata_path":"staged","plans":true,'
        '"owner":"h","indexes":[]}',
        Plan(
            instant="20240101000000012",
            action=Action.CLUSTERING,
            operation="CLUSTER",
            priority=200,
            completion_time="20240101000000013",
            owner="h",
            indexes=(),
            file_groups=GROUPS,
            metadata_path="staged",
        ),
    ),
    "plan on the metadata table": (
        '{"instant":"20240101000000014","action":"compaction","completion_time":"20240101000000015",'
        '"operation":"COMPACT","priority":200,"written":[["p","f-0"]],"metadata_path":"staged","plans":true,'
        '"on_metadata_table":true,"owner":"h"}',
        Plan(
            instant="20240101000000014",
            action=Action.COMPACTION,
            operation="COMPACT",
            priority=200,
            completion_time="20240101000000015",
            owner="h",
            file_groups=GROUPS,
            metadata_path="staged",
            on_metadata_table=True,
        ),
    ),
    "rollback": (
        '{"instant":"20240101000000016","action":"rollback","completion_time":"20240101000000017",'
        '"operation":"ROLLBACK","priority":0,"rolls_back":"20240101000000012",'
        f'"rolled_back_action":"clustering","owner":"h","reason":"why",{FILES_TEXT},'
        '"archived":"20240101000000002"}',
        Rollback(
            instant="20240101000000016",
            priority=0,
            completion_time="20240101000000017",
            owner="h",
            indexes=FILES,
            archived="20240101000000002",
            rolls_back="20240101000000012",
            rolled_back_action=Action.CLUSTERING,
            reason="why",
        ),
    ),
    "revert": (
        '{"instant":"20240101000000018","action":"rollback","completion_time":"20240101000000019",'
        '"operation":"ROLLBACK","priority":400,"written":[["p","f-0"]],"inserted_in":["p"],'
        '"rolls_back":"20240101000000010","rolled_back_action":"commit","reverts":1,"owner":"h"}',
        Revert(
            instant="20240101000000018",
            priority=400,
            completion_time="20240101000000019",
            owner="h",
            written=GROUPS,
            inserted_in=frozenset({"p"}),
            rolls_back="20240101000000010",
            reverts=1,
        ),
    ),
    "restore": (
        '{"instant":"20240101000000020","action":"restore","completion_time":"20240101000000021",'
        '"operation":"RESTORE","priority":400,"metadata_path":"staged","undoes":["20240101000000010"],'
        '"owner":"h"}',
        Restore(
            instant="20240101000000020",
            priority=400,
            completion_time="20240101000000021",
            owner="h",
            undoes=frozenset({"20240101000000010"}),
            metadata_path="staged",
        ),
    ),
    "savepoint": (
        '{"instant":"20240101000000010","action":"savepoint","completion_time":"20240101000000023",'
        '"operation":"SAVEPOINT","priority":400,"metadata_path":"staged","owner":"h"}',
        Savepoint(
            instant="20240101000000010",
            priority=400,
            completion_time="20240101000000023",
            owner="h",
            metadata_path="staged",
        ),
    ),
    "archival": (
        '{"instant":"","action":"archive","completion_time":"20240101000000025","operation":"ARCHIVE",'
        f'"priority":100,"owner":"h",{FILES_TEXT},"archived":"20240101000000010"}}',
        Archival(
            priority=100,
            completion_time="20240101000000025",
            owner="h",
            indexes=FILES,
            archived="20240101000000010",
        ),
    ),
}


@pytest.mark.parametrize("kind", WRITTEN_BEFORE)
def test_what_an_earlier_version_has_written_is_read(kind: str) -> None:
    text, entry = WRITTEN_BEFORE[kind]
    found = LogEntry.from_json(7, text.encode())
    assert (found, type(found), found.sequence) == (entry, type(entry), 7)


@pytest.mark.parametrize("kind", WRITTEN_BEFORE)
def test_what_is_written_now_is_read_again(kind: str) -> None:
    entry = WRITTEN_BEFORE[kind][1]
    found = LogEntry.from_json(7, entry.to_json())
    assert (found, type(found)) == (entry, type(entry))


@pytest.mark.parametrize("kind", WRITTEN_BEFORE)
def test_the_files_look_as_before(kind: str) -> None:
    """An entry without the field stands for the action that is usually rolled back."""
    text, entry = WRITTEN_BEFORE[kind]
    before = {name: value for name, value in json.loads(text).items() if (name, value) != _USUAL}
    assert json.loads(entry.to_json()) == before


_USUAL = ("rolled_back_action", "commit")


def test_fields_of_later_versions_are_left_aside() -> None:
    text, entry = WRITTEN_BEFORE["savepoint"]
    assert LogEntry.from_json(1, text.replace("{", '{"colour":"blue",', 1).encode()) == entry


def test_what_was_done_and_undone_is_left_out_and_a_restore_stays() -> None:
    commit, revert, restore = (WRITTEN_BEFORE[kind][1] for kind in ("commit", "revert", "restore"))
    first = LogEntry.from_json(1, commit.to_json())
    assert without_reverted([first, revert]) == []
    assert without_reverted([revert]) == [revert], "of what was there before the base"
    assert without_reverted([first, restore]) == [restore]
