"""The commit log after its beginning was trimmed beside a paused writer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from airflow_provider.concurrency import CommitLog
from airflow_provider.concurrency.log.commit_log import COMMIT_LOG_FOLDER, TRIMMED_FOLDER
from airflow_provider.concurrency.log.log_entry import Commit, LogEntry, Rollback, Savepoint
from airflow_provider.exceptions import InstantRolledBackError
from airflow_provider.table import HudiTable
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.instant import Action
from tests.unit.concurrency.log.test_fate import SCHEMA, commit, forget


def entry(sequence: int, owner: str = "") -> Commit:
    time = f"2024010100000000{sequence}"
    return Commit(
        instant=time,
        action=Action.COMMIT,
        operation="UPSERT",
        priority=400,
        completion_time=time,
        owner=owner,
        sequence=sequence,
    )


def test_what_a_sleeper_left_in_the_trimmed_part_is_not_taken_for_the_head(tmp_path: Path) -> None:
    log, late = (CommitLog(Storage(str(tmp_path / "t"))) for _ in range(2))
    for sequence in range(1, 4):
        assert log.append(sequence, entry(sequence))
    assert late.head() == 3
    for sequence in range(4, 6):
        assert log.append(sequence, entry(sequence))
    log.trim(4)
    # A process that had been paused has put it, and was killed before it found that out; see
    # CommitLog.append.
    for place in (3, 4):
        Storage(str(tmp_path / "t")).put_if_absent(
            f"{COMMIT_LOG_FOLDER}/{place:020d}.json", entry(place, "the sleeper").to_json()
        )
    assert late.newest() == entry(5)
    assert [each.sequence for each in late.backwards()] == [5]
    assert late.append(6, entry(6))


def rollback_of(instant: str, sequence: int) -> Rollback:
    return Rollback(
        instant=f"2024010100000000{sequence}",
        priority=100,
        completion_time=f"2024010100000000{sequence}",
        rolls_back=instant,
        sequence=sequence,
    )


def test_of_a_log_without_entries(tmp_path: Path) -> None:
    log = CommitLog(Storage(str(tmp_path / "t")))
    assert (log.head(), log.newest(), log.trimmed(), log.archived(None)) == (0, None, 0, "")
    assert (list(log.after(0)), list(log.backwards()), list(log.about("20240101000000001"))) == ([], [], [])


def log_of(tmp_path: Path, entries: int) -> CommitLog:
    log = CommitLog(Storage(str(tmp_path / "t")))
    for sequence in range(1, entries + 1):
        assert log.append(sequence, entry(sequence))
    return log


def kept_files(log: CommitLog, tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "t" / COMMIT_LOG_FOLDER).glob("*.json"))


def test_the_newest_entry_is_never_trimmed(tmp_path: Path) -> None:
    log = log_of(tmp_path, 3)
    log.trim(7)
    assert log.trimmed() == 2
    assert log.newest() == entry(3)
    assert kept_files(log, tmp_path) == [f"{3:020d}.json"]


def test_a_log_is_never_trimmed_less_than_it_was(tmp_path: Path) -> None:
    log = log_of(tmp_path, 6)
    for up_to in (2, 4, 3):
        log.trim(up_to)
    assert log.trimmed() == 4
    assert list(Storage(str(tmp_path / "t")).names(TRIMMED_FOLDER)) == [f"{4:020d}"]
    assert kept_files(log, tmp_path) == [f"{5:020d}.json", f"{6:020d}.json"]


def test_what_is_about_an_instant_ends_where_the_log_came_before_it(tmp_path: Path) -> None:
    log = log_of(tmp_path, 4)
    read: list[int] = []

    class Watched(CommitLog):
        def read(self, sequence: int) -> LogEntry | None:
            read.append(sequence)
            return super().read(sequence)

    watched = Watched(Storage(str(tmp_path / "t")))
    assert list(watched.about(entry(3).instant)) == [entry(3)]
    assert min(read) == 2, "entry 2 completed before the instant was requested"
    assert log.append(5, rollback_of(entry(4).instant, 5))
    assert [each.sequence for each in watched.about(entry(4).instant)] == [5, 4]


def test_an_entry_is_read_no_earlier_than_the_first(tmp_path: Path) -> None:
    log = log_of(tmp_path, 1)
    assert [log.read(sequence) for sequence in (0, 1, 2)] == [None, entry(1), None]


class Late(Storage):
    """A storage whose process pauses before it puts a log entry, while others go on and trim the log."""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if path.endswith(f"{3:020d}.json"):
            log = CommitLog(Storage(self.root))
            for sequence in range(3, 6):
                log.append(sequence, entry(sequence, "another"))
            log.trim(4)
        return super().put_if_absent(path, data)


def test_who_put_an_entry_into_the_trimmed_part_of_the_log_has_not_committed(tmp_path: Path) -> None:
    log_of(tmp_path, 2)
    late = CommitLog(Late(str(tmp_path / "t")))
    with pytest.raises(InstantRolledBackError, match="its place 3 and was trimmed"):
        late.append(3, entry(3, "the sleeper"))
    assert kept_files(late, tmp_path) == [f"{5:020d}.json"]


def test_who_finds_its_entry_archived_has_committed(tmp_path: Path) -> None:
    table = HudiTable.create(str(tmp_path / "t"), name="t", schema=SCHEMA, record_key=["id"])
    log, instant = CommitLog(table.storage), commit(table)
    mine = log.newest()
    assert isinstance(mine, Commit)
    forget(table, instant)  # all this happens while the writer is paused
    assert log.append(1, mine)
    with pytest.raises(InstantRolledBackError):  # another cleaner's entry completed it
        log.append(2, replace(mine, sequence=2, completion_time=instant))
    # The archived instant with a savepoint's requested time is the savepoint's commit.
    savepoint = Savepoint(instant=instant, priority=100, completion_time=mine.completion_time, sequence=2)
    with pytest.raises(InstantRolledBackError):
        log.append(2, savepoint)


def test_of_a_table_that_was_made_anew_nothing_older_is_known(tmp_path: Path) -> None:
    log = log_of(tmp_path, 3)
    assert list(log.after(0)) == [entry(1), entry(2), entry(3)]
    Storage(str(tmp_path / "t")).delete_folder(COMMIT_LOG_FOLDER)
    anew = entry(1, "made anew")
    assert CommitLog(Storage(str(tmp_path / "t"))).append(1, anew)
    assert (log.newest(), list(log.after(0))) == (anew, [anew])


class Unanswered(Storage):
    """A storage that loses the answer to each put, and maybe the put."""

    arrives = True

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if self.arrives:
            super().put_if_absent(path, data)
        raise OSError("no answer")


def test_an_entry_whose_put_is_not_answered_counts_if_it_is_there(tmp_path: Path) -> None:
    storage = Unanswered(str(tmp_path / "t"))
    assert CommitLog(storage).append(1, entry(1))
    with pytest.raises(OSError, match="no answer"):
        CommitLog(storage).append(1, entry(1, "another"))
    storage.arrives = False
    with pytest.raises(OSError, match="no answer"):
        CommitLog(storage).append(2, entry(2))
