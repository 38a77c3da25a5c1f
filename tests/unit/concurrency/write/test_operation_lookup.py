"""The outcome of an operation's earlier try: a commit, a pending instant, or nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider.concurrency import (
    CommitLog,
    CommitResult,
    PendingInstant,
    begin_write,
    find_operation,
    find_operations,
    settle_operation,
)
from airflow_provider.concurrency.log.log_entry import Rollback
from airflow_provider.concurrency.undo.reverts import revert
from airflow_provider.concurrency.write import operation_lookup
from airflow_provider.exceptions import TableError
from airflow_provider.services.archival import archive
from airflow_provider.services.restore import restore
from airflow_provider.table import HudiTable

LONG_AGO, FAR_OFF = "20200101000000000", "29990101000000000"


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    schema = pa.schema({"id": pa.int64()})
    return HudiTable.create(str(tmp_path / "t"), name="t", schema=schema, record_key=["id"])


def commit(table: HudiTable, key: str | None) -> CommitResult:
    with begin_write(table, operation="UPSERT", operation_key=key) as writer:
        writer.plan(())
        return writer.commit([])


def test_a_commit_is_found_by_its_key_from_its_completion_on(table: HudiTable) -> None:
    first, second, _ = commit(table, "a/1"), commit(table, "a/2"), commit(table, None)
    for since in (None, LONG_AGO, first.completion_time):
        assert find_operation(table, "a/1", since=since) == first
        assert find_operations(table, "a/", since=since) == {"a/1": first, "a/2": second}
    assert find_operations(table, "a/", since=second.completion_time) == {"a/2": second}
    assert find_operation(table, "a/1", since=second.completion_time) is None
    assert find_operation(table, "a/3") is None
    assert find_operations(table, "b/") == {}


def test_of_several_commits_and_of_several_pending_ones_the_newest_counts(table: HudiTable) -> None:
    pending = [begin_write(table, operation="UPSERT", operation_key="a") for _ in range(3)]
    other = begin_write(table, operation="UPSERT", operation_key="b")
    found = find_operation(table, "a")
    assert isinstance(found, PendingInstant)
    assert found.instant == pending[-1].instant
    committed = [writer.commit([]) for writer in pending]
    assert find_operation(table, "a") == committed[-1]
    other.abort()


def test_what_was_reverted_or_restored_away_is_nowhere_and_what_stays_is_found(table: HudiTable) -> None:
    kept = commit(table, "kept")
    reverted = commit(table, "reverted")
    revert(table, reverted.instant, reason="its transaction was aborted")
    between = commit(table, "between")
    assert set(find_operations(table, "")) == {"kept", "between"}
    for key in ("gone/1", "gone/2"):
        commit(table, key)
    assert set(find_operations(table, "gone/")) == {"gone/1", "gone/2"}
    restore(table, between.instant)
    assert find_operations(table, "") == {"kept": kept, "between": between}
    assert [find_operation(table, key) for key in ("reverted", "gone/1", "gone/2")] == [None] * 3


def test_what_was_archived_is_found_behind_what_is_in_the_log(table: HudiTable) -> None:
    commit(table, None)
    begin_write(table, operation="UPSERT", operation_key="a/3").abort()
    first, second = commit(table, "a/1"), commit(table, "a/2")
    for _ in range(4):
        commit(table, None)
    assert archive(table, keep_min=1, keep_max=2, dead_writer_seconds=0).instants
    assert CommitLog(table.storage).trimmed() >= second.sequence
    archived = [replace(each, sequence=0) for each in (first, second)]
    assert find_operation(table, "a/1") == archived[0]
    assert find_operations(table, "a/") == {"a/1": archived[0], "a/2": archived[1]}
    assert find_operation(table, "a/3") is None
    assert find_operation(table, "a/1", since=second.completion_time) is None


def test_what_is_pending_is_rolled_back_and_the_log_says_why(table: HudiTable) -> None:
    writer = begin_write(table, operation="UPSERT", operation_key="a")
    assert settle_operation(table, "a", reason="the task is tried again") is None
    newest = CommitLog(table.storage).newest()
    assert isinstance(newest, Rollback)
    assert (newest.rolls_back, newest.reason) == (writer.instant, "the task is tried again")
    assert settle_operation(table, "a", since=FAR_OFF, reason="once more") is None
    writer.abort()
    committed = commit(table, "a")
    assert settle_operation(table, "a", reason="once more") == committed


def test_who_commits_in_the_moment_of_the_rollback_has_committed(
    table: HudiTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = begin_write(table, operation="UPSERT", operation_key="a")

    def too_late(*args: object, **kwargs: object) -> None:
        writer.commit([])
        raise TableError("it has committed")

    monkeypatch.setattr(operation_lookup, "rollback", too_late)
    settled = settle_operation(table, "a", reason="the task is tried again")
    assert settled is not None
    assert settled.instant == writer.instant


def test_what_cannot_be_rolled_back_is_told(table: HudiTable, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[bool] = []

    def refuses(*args: object, **kwargs: object) -> None:
        assert not tried, "it is tried for ever"
        tried.append(True)
        raise TableError("not now")

    with begin_write(table, operation="UPSERT", operation_key="a"):
        monkeypatch.setattr(operation_lookup, "rollback", refuses)
        with pytest.raises(TableError, match="not now"):
            settle_operation(table, "a", reason="the task is tried again")
