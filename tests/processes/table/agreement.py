"""The check after any run: readers, log, timeline and storage agree with the model."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping

import pyarrow as pa
from hudi import HudiTableBuilder

from airflow_provider.concurrency import CommitLog, LogEntry, rollback_dead_writers
from airflow_provider.concurrency.commit.publish import publish_head
from airflow_provider.concurrency.heartbeats.heartbeat import HEARTBEAT_FOLDER
from airflow_provider.concurrency.log.log_entry import Commit, Plan, Restore, Revert, Rollback
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.file_names import parse_base_file_name
from airflow_provider.table.timeline import decode, read_completed
from airflow_provider.table.timeline.archived_timeline import archived, archived_instants
from airflow_provider.table.timeline.instant import WRITE_ACTIONS, Action
from tests.processes.table.services import SCHEMA, Rows, carry_out_plans, clean
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild


def recover(table: HudiTable) -> None:
    """Run the next writer and the next round of services, after all processes have ended."""
    silence(table)
    publish_head(table.storage, CommitLog(table.storage))
    rollback_dead_writers(table)
    carry_out_plans(table)
    if _some_files_stayed(table):
        clean(table)


def _some_files_stayed(table: HudiTable) -> bool:
    """Whether a clean reported files that it could not delete. The index lists them until the next clean,
    although another process that executed the same plan may have deleted them since."""
    timeline = table.timeline()
    cleans = (each for each in timeline.completed() if each.action is Action.CLEAN)
    told = (decode(read_completed(table.storage, timeline, each)) for each in cleans)
    return any(each["failedDeleteFiles"] for one in told for each in one["partitionMetadata"].values())


def silence(table: HudiTable, seconds: float = 3600.0) -> None:
    """Make every heartbeat this old; no process may be alive that renews one."""
    for status in table.storage.list(HEARTBEAT_FOLDER):
        path = f"{table.location}/{status.path}"
        os.utime(path, (status.modified - seconds, status.modified - seconds))


def by_log(table: HudiTable, writes: Mapping[str, Rows]) -> dict[str, tuple[int, str]]:
    """The rows of the model: the writes in the commit log, applied one after the other.

    :param writes: rows upserted, by operation key.
    """
    expected: dict[str, tuple[int, str]] = {}
    for _, operation_key in committed(table):
        expected |= writes.get(operation_key, {})
    return expected


def committed(table: HudiTable) -> list[tuple[str, str]]:
    """Instants and operation keys of all commits that were not undone, one after the other.

    The oldest commits are only in the archive.
    """
    entries = _entries(table)
    known = {entry.instant for entry in entries}
    past = sorted(
        archived(table.storage, actions=WRITE_ACTIONS), key=lambda each: each.instant.completion_time or ""
    )
    found = [
        (e.instant.requested_time, e.commit_metadata.extra_metadata.get("operation_key", "")) for e in past
    ]
    undone = _undone(entries)
    return [commit for commit in found if commit[0] not in known | undone] + [
        (e.instant, e.operation_key or "")
        for e in entries
        if isinstance(e, Commit) and e.instant not in undone
    ]


def _undone(entries: Iterable[LogEntry]) -> frozenset[str]:
    """The commits that a restore has undone."""
    return frozenset[str]().union(*(entry.undoes for entry in entries if isinstance(entry, Restore)))


def _entries(table: HudiTable) -> list[LogEntry]:
    log = CommitLog(table.storage)
    return list(log.after(log.trimmed()))


def agree(table: HudiTable, expected: Rows) -> None:
    """Check that both readers see these rows, each key once."""
    assert read_ours(table.location) == expected
    assert read_theirs(table.location) == expected


def check(table: HudiTable, writes: Mapping[str, Rows], acknowledged: Collection[str]) -> None:
    """Check a table after the last process has ended.

    :param writes: rows upserted, by operation key, of all writes that were tried.
    :param acknowledged: operation keys of the writes whose commits were acknowledged.
    """
    entries, commits = _entries(table), committed(table)
    keys = [operation_key for _, operation_key in commits if operation_key in writes]
    assert len(set(keys)) == len(keys), "a write is in the log twice"
    restored = _undone(entries)
    undone = {e.operation_key for e in entries if isinstance(e, Commit) and e.instant in restored}
    assert set(acknowledged) - undone <= set(keys), "an acknowledged commit is lost"
    agree(table, by_log(table, writes))

    # Log and timeline agree, and no instant is pending.
    timeline = table.timeline()
    reverted = {entry.rolls_back for entry in entries if isinstance(entry, Revert)}
    gone = reverted | _undone(entries)
    # An index build leaves no instant on the timeline, and an archival is no instant.
    instants = (each for each in entries if each.action not in (Action.ARCHIVE, Action.INDEXING))
    ended = [entry for entry in instants if not isinstance(entry, Plan) and entry.instant not in gone]
    archive = {instant.requested_time for instant in archived_instants(table.storage)}
    assert {
        (each.requested_time, each.completion_time)
        for each in timeline.completed()
        if each.requested_time not in archive  # an archiver that was killed has not removed it yet
    } == {(entry.instant, entry.completion_time) for entry in ended if entry.instant not in archive}
    times = [entry.completion_time for entry in entries]
    assert times == sorted(set(times))
    dead = {entry.rolls_back for entry in entries if isinstance(entry, Rollback | Revert)}
    assert not dead & {entry.instant for entry in ended}
    assert timeline.pending() == ()
    assert table.storage.list(HEARTBEAT_FOLDER) == []
    # A savepoint's goes with the archived commit, as does what a cleaner staged that was killed when somebody
    # else had finished its clean.
    cleans = {each.requested_time for each in timeline.completed() if each.action is Action.CLEAN}
    staged = table.storage.names(".hoodie/commit_log/staged")
    assert [n for n in staged if ".savepoint." not in n and n.partition(".")[0] not in cleans] == []

    assert_indexes_equal_a_rebuild(table)

    # Files of rolled-back writes are deleted; files of reverted rewrites are deleted later.
    known = {instant for instant, _ in commits}
    for status in table.storage.list("", recursive=True):
        parsed = parse_base_file_name(status.name)
        assert parsed is None or parsed[2] in known, f"{status.path} is of a dead instant"


def read_ours(location: str) -> dict[str, tuple[int, str]]:
    return _by_id(snapshot(HudiTable.open(location)).to_table())


def read_theirs(location: str) -> dict[str, tuple[int, str]]:
    batches = HudiTableBuilder.from_base_uri(location).build().read()
    return _by_id(pa.Table.from_batches(batches)) if batches else {}


def _by_id(rows: pa.Table) -> dict[str, tuple[int, str]]:
    found = {row["id"]: (row["value"], row["part"]) for row in rows.select(SCHEMA.names).to_pylist()}
    assert len(found) == rows.num_rows, "a record key lives in two file groups"
    return found
