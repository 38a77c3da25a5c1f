"""Cleaning of a table: a task deletes files that no reader and no writer needs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider.concurrency.plans import MAX_FAILURES
from airflow_provider.exceptions import InvalidInputError
from airflow_provider.hooks.table import TableHook
from airflow_provider.hooks.task_errors import fail_unless_retryable
from airflow_provider.operators._base import TableOperator, count, flag, seconds
from airflow_provider.services.cleaning import CleanPlan, Retention, clean, plan_clean
from airflow_provider.table.hudi_options import Topic

if TYPE_CHECKING:
    from airflow.sdk import Context


class CleanOperator(TableOperator):
    """Deletes data files that no snapshot shows, and that no reader or writer needs.

    ::

        CleanOperator(task_id="clean", table="lake.flights", policy="KEEP_LATEST_BY_HOURS", retained=48)

    The task starts no Spark, and may run at any time, beside any writer. A file stays as long as a writer in
    flight, a reader with a lease, a savepoint, a registered consumer, a plan or an open transaction needs it.
    The next clean finishes a clean that was killed.

    The result is ``table``, ``instant`` and ``completion_time`` (None when there was nothing to delete),
    ``action``, ``files_deleted``, ``files_failed``, ``bytes``, ``earliest_commit_to_retain``,
    ``held`` (files that somebody needs: ``by``, ``files``, ``bytes``), ``expired_consumers`` and ``dry_run``.

    Arguments beside those of :class:`~airflow_provider.operators._base.TableOperator`:

    :param policy: ``KEEP_LATEST_COMMITS``, ``KEEP_LATEST_FILE_VERSIONS`` or ``KEEP_LATEST_BY_HOURS``; the
        table's ``hoodie.clean.policy``, or ``KEEP_LATEST_COMMITS``, when None (templated).
    :param retained: number of commits, slices of a file group, or hours; the table's
        ``hoodie.clean.commits.retained`` and so on, or Hudi's default, 10, 3 or 24, when None (templated).
    :param reverted_after: the age of a revert from which a clean deletes the files of the reverted rewrite.
        It must be longer than any query runs; a timedelta or seconds (templated).
    :param max_failures: failures in a row after which the table's cleaning is stopped; None never stops it.
    :param dry_run: only reports what would be deleted; each file is in the task's log (templated).
    """

    template_fields: Sequence[str] = (
        *TableOperator.template_fields,
        "policy",
        "retained",
        "reverted_after",
        "only_tell",
    )
    ui_color = "#e0eaf5"

    def __init__(
        self,
        *,
        policy: str | None = None,
        retained: float | str | None = None,
        reverted_after: timedelta | float | str = timedelta(days=1),
        max_failures: int | None = MAX_FAILURES,
        dry_run: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.policy = policy
        self.retained = retained
        self.reverted_after = reverted_after
        self.max_failures = max_failures
        # BaseOperator has a method dry_run.
        self.only_tell = dry_run

    @fail_unless_retryable
    def execute(self, context: Context) -> dict[str, Any]:
        """Clean.

        :raises AirflowFailException: for input that no retry can make work; caused by the typed error.
        """
        reverted_after = seconds(self.reverted_after, "reverted_after")
        policy = None if self.policy in (None, "None") else str(self.policy).upper()
        retained = _number(self.retained)
        only_tell = flag(self.only_tell, "dry_run")
        table = TableHook(self.metastore_conn_id, self.storage_conn_id).get_table(self.table)
        options = self._options(table)
        retention = Retention(
            **options.arguments(
                Topic.CLEANING, policy=policy, retained=retained, reverted_after=reverted_after
            )
        )
        result: dict[str, Any] = {"table": self.table, **_NOTHING}
        plans: list[CleanPlan] = []
        if only_tell:
            plans = [plan_clean(table, retention)]
            result |= {"files_deleted": len(plans[0].files), "bytes": plans[0].size}
        else:
            lock, most = self._lock(table, options), count(self.max_failures, "max_failures")
            cleaned = clean(table, retention, lock=lock, on_plan=plans.append, max_failures=most)
            if done := [each.to_dict() for each in cleaned]:
                counts = ("files_deleted", "files_failed", "bytes")
                result |= done[-1] | {count: sum(each[count] for each in done) for count in counts}
        self._tell(plans[-1], each_file=only_tell)
        plan = plans[-1].to_dict()
        return {
            **result,
            "held": plan["held"],
            "expired_consumers": plan["expired_consumers"],
            "dry_run": only_tell,
        }

    def _tell(self, plan: CleanPlan, *, each_file: bool) -> None:
        for file in plan.files if each_file else ():
            self.log.info("%s, %s bytes, %s", file.path, f"{file.size:,}", file.reason)
        self.log.info("planned to be deleted: %d files, %s bytes", len(plan.files), f"{plan.size:,}")
        for kept in plan.kept:
            self.log.info("kept for %s: %d files, %s bytes", kept.by, kept.files, f"{kept.size:,}")
        for name in plan.expired_consumers:
            self.log.warning("consumer %s has not come back; nothing is kept for it any more", name)


_NOTHING = {
    "instant": None,
    "completion_time": None,
    "action": "clean",
    "files_deleted": 0,
    "files_failed": 0,
    "bytes": 0,
    "earliest_commit_to_retain": None,
}


def _number(given: float | str | None) -> float | None:
    if given is None or given in ("None", ""):
        return None
    try:
        return float(given)
    except (TypeError, ValueError):
        raise InvalidInputError(f"retained must be a number, not {given!r}") from None
