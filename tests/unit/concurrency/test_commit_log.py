"""The commit log where its beginning was trimmed while somebody stood still."""

from __future__ import annotations

from pathlib import Path

from airflow_provider.concurrency import CommitLog
from airflow_provider.concurrency.log.commit_log import COMMIT_LOG_FOLDER
from airflow_provider.concurrency.log.log_entry import Commit
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.instant import Action


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
    # Put by one who had stood still, and was killed before it found out; see CommitLog.append.
    Storage(str(tmp_path / "t")).put_if_absent(
        f"{COMMIT_LOG_FOLDER}/{3:020d}.json", entry(3, "the sleeper").to_json()
    )
    assert late.newest() == entry(5)
    assert [each.sequence for each in late.backwards()] == [5]
    assert late.append(6, entry(6))
