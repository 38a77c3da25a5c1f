"""Undoing: the rollback of writes that did not commit, and the revert of commits that did.

Both put an entry of the log first, and delete files only after that. ``first_commit`` puts the empty commit
that hides late files of a table's first write. A new guard of a revert belongs in ``reverts``.
"""

from airflow_provider.concurrency.undo.first_commit import ensure_commit_before
from airflow_provider.concurrency.undo.reverts import revert, revert_rewrite
from airflow_provider.concurrency.undo.rollbacks import rollback, rollback_dead_writers

__all__ = ["ensure_commit_before", "revert", "revert_rewrite", "rollback", "rollback_dead_writers"]
