"""Appending to the commit log, and the steps right before and after it.

``commit_point`` appends an entry; ``publish`` derives from the log what readers see; ``concurrent_changes``
tells what completed since a writer's base; ``undone_files`` removes what was undone. Every
change of a table's history goes through :func:`commit`.
"""

from airflow_provider.concurrency.commit.commit_content import (
    REBASED_ONTO,
    CommitContent,
    CommitResult,
    Rebase,
    Rebased,
)
from airflow_provider.concurrency.commit.commit_point import commit
from airflow_provider.concurrency.commit.concurrent_changes import CompletedEntry, Moment
from airflow_provider.concurrency.commit.index_entries import (
    IndexChange,
    Indexes,
    change_indexes,
    drop_indexes,
)
from airflow_provider.concurrency.commit.publish import completed_instant, publish_head
from airflow_provider.concurrency.commit.replayed_commit import is_there, replay_commit, undo_replayed
from airflow_provider.concurrency.commit.staged_metadata import StagedWrite
from airflow_provider.concurrency.commit.staged_paths import (
    STAGED_FOLDER,
    staged_metadata_path,
    staged_plan_path,
)
from airflow_provider.concurrency.commit.undo_entry import revert_entry, view_without
from airflow_provider.concurrency.commit.undone_files import clean_up, files_in, take_off_pending
from airflow_provider.concurrency.commit.unlogged_commits import find_unlogged_commits, log_unlogged_commits

__all__ = [
    "REBASED_ONTO",
    "STAGED_FOLDER",
    "CommitContent",
    "CommitResult",
    "CompletedEntry",
    "IndexChange",
    "Indexes",
    "Moment",
    "Rebase",
    "Rebased",
    "StagedWrite",
    "change_indexes",
    "clean_up",
    "commit",
    "completed_instant",
    "drop_indexes",
    "files_in",
    "find_unlogged_commits",
    "is_there",
    "log_unlogged_commits",
    "publish_head",
    "replay_commit",
    "revert_entry",
    "staged_metadata_path",
    "staged_plan_path",
    "take_off_pending",
    "undo_replayed",
    "view_without",
]
