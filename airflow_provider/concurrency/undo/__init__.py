"""Undoing: the rollback of writes that did not commit, and the revert of commits that did."""

from airflow_provider.concurrency.undo.reverts import revert, revert_rewrite
from airflow_provider.concurrency.undo.rollbacks import rollback, rollback_dead_writers

__all__ = ["revert", "revert_rewrite", "rollback", "rollback_dead_writers"]
