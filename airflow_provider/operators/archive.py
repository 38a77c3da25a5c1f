"""Archival of a table's timeline."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider.concurrency.plans import MAX_FAILURES
from airflow_provider.hooks.table import TableHook
from airflow_provider.hooks.task_errors import fail_unless_retryable
from airflow_provider.operators._base import TableOperator, count, flag, seconds
from airflow_provider.services.archival import DEAD_WRITER_SECONDS, archive, plan_archival
from airflow_provider.table.hudi_options import Topic

if TYPE_CHECKING:
    from airflow.sdk import Context


class ArchiveTimelineOperator(TableOperator):
    """Moves the oldest instants of a table from the active timeline to the archived one.

    ::

        ArchiveTimelineOperator(task_id="archive", table="lake.flights")

    Loads archive a table themselves when an archival is due. Use this operator for other numbers of commits,
    and for tables whose archival was blocked. It starts no Spark, and may run at any time, beside any writer.

    The result is ``table``, ``archived`` (requested times), ``deleted`` (data files that dead writers had
    left, relative to the table), ``trimmed`` (the last entry that has left the commit log; 0 for none),
    ``held_by`` (the reason why instants stay although they are due, or None) and ``dry_run``.

    Arguments beside those of :class:`~airflow_provider.operators._base.TableOperator`:

    :param keep_min_commits: number of commits that stay; the table's ``hoodie.keep.min.commits``, or 20, when
        None (templated).
    :param keep_max_commits: number of commits up to which nothing leaves; the table's
        ``hoodie.keep.max.commits``, or 100, when None (templated).
    :param dead_writers_after: the age of a rollback from which archival passes the rolled-back instant. It
        must be longer than a process can be paused; a timedelta or seconds (templated).
    :param max_failures: failures in a row after which the table's archival is stopped; None never stops it.
    :param dry_run: only reports the instants that would leave (templated).
    """

    template_fields: Sequence[str] = (
        *TableOperator.template_fields,
        "keep_min_commits",
        "keep_max_commits",
        "dead_writers_after",
        "only_tell",
    )
    ui_color = "#e0e7f5"

    def __init__(
        self,
        *,
        keep_min_commits: int | str | None = None,
        keep_max_commits: int | str | None = None,
        dead_writers_after: timedelta | float | str = timedelta(seconds=DEAD_WRITER_SECONDS),
        max_failures: int | None = MAX_FAILURES,
        dry_run: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.keep_min_commits = keep_min_commits
        self.keep_max_commits = keep_max_commits
        self.dead_writers_after = dead_writers_after
        self.max_failures = max_failures
        # BaseOperator has a method dry_run.
        self.only_tell = dry_run

    @fail_unless_retryable
    def execute(self, context: Context) -> dict[str, Any]:
        """Archive.

        :raises AirflowFailException: for input that no retry can make work, and for a table that this package
            cannot archive; caused by the typed error.
        :raises LockTimeoutError: when the table lock is not acquired in time.
        """
        only_tell = flag(self.only_tell, "dry_run")
        after = seconds(self.dead_writers_after, "dead_writers_after")
        after = DEAD_WRITER_SECONDS if after is None else after
        keep_min = count(self.keep_min_commits, "keep_min_commits")
        keep_max = count(self.keep_max_commits, "keep_max_commits")
        table = TableHook(self.metastore_conn_id, self.storage_conn_id).get_table(self.table)
        options = self._options(table)
        kept = options.arguments(Topic.ARCHIVAL, keep_min_commits=keep_min, keep_max_commits=keep_max)
        keep_min, keep_max = kept.get("keep_min_commits"), kept.get("keep_max_commits")
        if only_tell:
            plan = plan_archival(table, keep_min=keep_min, keep_max=keep_max, dead_writer_seconds=after)
        else:
            lock = self._lock(table, options)
            plan = archive(
                table,
                keep_min=keep_min,
                keep_max=keep_max,
                dead_writer_seconds=after,
                lock=lock,
                max_failures=count(self.max_failures, "max_failures"),
            )
        self.log.info(
            "%s %d instants%s",
            "to be archived:" if only_tell else "archived:",
            len(plan.instants),
            f"; others stay, because {plan.held_by}" if plan.held_by else "",
        )
        return {"table": self.table, **plan.to_dict(), "dry_run": only_tell}
