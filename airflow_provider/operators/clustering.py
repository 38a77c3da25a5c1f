"""Clustering of a table: a task rewrites file groups, packed or in an order that lets queries skip files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider.concurrency.plans import MAX_FAILURES
from airflow_provider.hooks.table import TableHook
from airflow_provider.hooks.task_errors import fail_unless_retryable
from airflow_provider.jobs import PlanJob
from airflow_provider.operators._base import (
    NO_TRANSACTION,
    PlanService,
    RunPlanOperator,
    TableOperator,
    TaskOperation,
    byte_size,
    count,
    priority_number,
    texts,
)
from airflow_provider.services.clustering import (
    ClusteringJob,
    ClusteringSettings,
    pending_clusterings,
    pending_plan,
    result_of,
    schedule_clustering,
)
from airflow_provider.table.hudi_options import EffectiveOptions, Topic
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.timeline import Action

if TYPE_CHECKING:
    from airflow.sdk import Context


class _PlansClustering(TableOperator):
    """Base of the operators that plan a clustering.

    :param sort_by: columns to order the rows by, the most important first. An empty list packs small files
        without an order. When None, Hudi's options decide, by default without an order (templated).
    :param layout: how to order by several columns: ``linear``, ``z-order`` or ``hilbert``. When None, Hudi's
        options decide, by default ``linear`` (templated).
    :param partitions: patterns of partition paths, such as ``year=2013/*``; all when empty. When None, Hudi's
        options decide, by default all (templated).
    :param small_file_limit: bytes, or a text such as ``100 MB``; only smaller file groups are clustered
        (templated).
    :param target_file_size: approximate size of a new file group, as bytes or such a text (templated).
    :param min_age: time since the last write to a file group; a plan leaves out younger file groups; a
        timedelta or seconds.
    :param max_groups: number of clustering groups in one plan.
    :param max_group_size: bytes, or a text such as ``1 GB``, of the file groups that are ordered together.
    :param priority: decides who yields when two writes meet: a name or a number (templated).
    :param max_failures: failures in a row after which the table's clustering is stopped; None never stops it.
    """

    template_fields: Sequence[str] = (
        *TableOperator.template_fields,
        "sort_by",
        "layout",
        "partitions",
        "priority",
        "small_file_limit",
        "target_file_size",
        "max_group_size",
    )

    def __init__(
        self,
        *,
        sort_by: str | Sequence[str] | None = None,
        layout: str | None = None,
        partitions: str | Sequence[str] | None = None,
        small_file_limit: int | str | None = None,
        target_file_size: int | str | None = None,
        min_age: timedelta | float | None = None,
        max_groups: int | None = None,
        max_group_size: int | str | None = None,
        priority: str | int = "table_service",
        max_failures: int | None = MAX_FAILURES,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.sort_by = sort_by
        self.layout = layout
        self.partitions = partitions
        self.small_file_limit = small_file_limit
        self.target_file_size = target_file_size
        self.min_age = min_age
        self.max_groups = max_groups
        self.max_group_size = max_group_size
        self.priority = priority
        self.max_failures = max_failures

    def _schedule(self, table: HudiTable, operation: TaskOperation) -> str | None:
        options = self._options(table)
        settings = ClusteringSettings(
            **options.arguments(
                Topic.CLUSTERING,
                sort_by=texts(self.sort_by, "sort_by"),
                layout=self.layout,
                partitions=texts(self.partitions, "partitions"),
                small_file_limit=byte_size(self.small_file_limit, "small_file_limit"),
                target_file_size=byte_size(self.target_file_size, "target_file_size"),
                min_age=self.min_age.total_seconds() if isinstance(self.min_age, timedelta) else self.min_age,
                max_groups=self.max_groups,
                max_group_size=byte_size(self.max_group_size, "max_group_size"),
            )
        )
        instant = schedule_clustering(
            table,
            settings,
            priority=priority_number(self.priority),
            lock=self._lock(table, options),
            max_failures=count(self.max_failures, "max_failures"),
            operation_key=operation.key,
        )
        self.log.info("%s", f"planned clustering {instant}" if instant else "nothing to cluster")
        return instant


class ScheduleClusteringOperator(_PlansClustering):
    """Plans a clustering that :class:`RunClusteringOperator` executes. The operator starts no Spark.

    ::

        plan = ScheduleClusteringOperator(task_id="plan", table="lake.flights", sort_by=["dest"])
        run = RunClusteringOperator(
            task_id="run", table="lake.flights", instant="{{ ti.xcom_pull('plan')['instant'] }}"
        )
        plan >> run

    The result is ``table``, ``instant`` (None when there is nothing to do), ``action``, ``groups``,
    ``file_groups`` and ``bytes``, and ``txn_id``, ``write_id`` and ``event_id``, which are None: a
    clustering changes no rows and needs no transaction.

    Arguments beside those of the plan (``sort_by``, ``layout``, ``partitions``, ``small_file_limit``,
    ``target_file_size``, ``min_age``, ``max_groups``, ``max_group_size``, ``priority`` and
    ``max_failures``; see docs/clustering.md): those of
    :class:`~airflow_provider.operators._base.TableOperator`.
    """

    ui_color = "#dcefd8"

    @fail_unless_retryable
    def execute(self, context: Context) -> dict[str, Any]:
        """Plan.

        :raises AirflowFailException: for input that no retry can make work, and when clustering of this
            table is stopped; caused by the typed error.
        :raises LockTimeoutError: when the table lock is not acquired in time.
        """
        table = TableHook(self.metastore_conn_id, self.storage_conn_id).get_table(self.table)
        operation = TaskOperation(context)
        operation.end_earlier_try(table)
        instant = self._schedule(table, operation)
        groups = pending_plan(table, instant).groups if instant else ()
        return {
            "table": self.table,
            "instant": instant,
            "action": str(Action.CLUSTERING),
            "groups": len(groups),
            "file_groups": sum(len(group.slices) for group in groups),
            "bytes": sum(group.size for group in groups),
            **NO_TRANSACTION,
        }


def _told(summary: Mapping[str, Any]) -> str:
    return (
        "clustering {instant} completed at {completion_time}: {groups_done} of {groups_planned} groups, "
        "{files_replaced} file groups became {files_written}, {rows:,} rows, {bytes_written:,} bytes"
    ).format_map(summary)


_SERVICE = PlanService(
    parts="clustering groups",
    result_keys=(
        "instant",
        "completion_time",
        "action",
        "operation",
        "groups_planned",
        "groups_done",
        "groups_left_out",
        "files_replaced",
        "files_written",
        "rows",
    ),
    sizes=lambda table, instant: [group.size for group in pending_plan(table, instant).groups],
    idle_plans=lambda table: pending_clusterings(table, idle=True),
    summary=lambda job, table, instant: result_of(job, table, instant, already_committed=True),
    told=_told,
)


def _job(
    operator: RunPlanOperator,
    parallel_groups: int | None,
    location: str,
    options: EffectiveOptions,
    common: Mapping[str, Any],
) -> ClusteringJob:
    """The job of an operator; ``common`` are the fields of any job."""
    arguments = options.arguments(
        Topic.HEARTBEAT,
        Topic.CLUSTERING,
        heartbeat_interval=operator.heartbeat_interval,
        tolerable_misses=operator.tolerable_misses,
        parallel_groups=count(parallel_groups, "parallel_groups"),
    )
    return ClusteringJob.of(location, **common, **arguments)


class RunClusteringOperator(RunPlanOperator):
    """Executes a clustering plan, as a Spark job.

    The commit leaves out a clustering group that another write has changed since the plan, or on which a
    writer of higher priority works; the next plan contains that group again. When no group is left, the task
    fails with :class:`~airflow_provider.exceptions.WriteConflictError`, and is retried.

    A retried task first looks for its last try's commit, like an ingestion. A plan whose execution failed is
    rolled back, and is not executed again: a retry with ``instant`` then fails at once, and the task that
    scheduled the plan has to be cleared. Without a plan, the operator starts no Spark.

    The result is ``table``, ``instant`` (None without a plan), ``completion_time``, ``action``,
    ``operation``, ``groups_planned``, ``groups_done``, ``groups_left_out``, ``files_replaced``,
    ``files_written``, ``rows``, ``bytes``; ``txn_id``, ``write_id`` and ``event_id`` are None.

    Arguments beside ``instant``, ``heartbeat_interval``, ``tolerable_misses`` and ``deferrable`` of
    :class:`~airflow_provider.operators._base.RunPlanOperator`, and those of
    :class:`~airflow_provider.operators._base.SparkOperator`:

    :param parallel_groups: number of clustering groups that are written at the same time; the number of the
        session's cores when None.
    """

    ui_color = "#dcefd8"
    service = _SERVICE

    def __init__(self, *, parallel_groups: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.parallel_groups = parallel_groups

    def _job(self, location: str, options: EffectiveOptions, **common: Any) -> PlanJob:
        return _job(self, self.parallel_groups, location, options, common)


class ClusteringOperator(_PlansClustering, RunPlanOperator):
    """Plans a clustering and executes it.

    ::

        ClusteringOperator(
            task_id="cluster", table="lake.flights", sort_by=["dest", "carrier"], layout="z-order", retries=3
        )

    If there is a pending plan that nobody executes, for example of a killed task, the operator executes that
    plan instead of a new one. When there is nothing to cluster, the operator starts no Spark.

    Arguments: those of :class:`ScheduleClusteringOperator` and :class:`RunClusteringOperator`.
    """

    template_fields: Sequence[str] = tuple(
        dict.fromkeys((*_PlansClustering.template_fields, *RunPlanOperator.template_fields))
    )
    ui_color = "#dcefd8"
    service = _SERVICE

    def __init__(self, *, parallel_groups: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.parallel_groups = parallel_groups

    def _job(self, location: str, options: EffectiveOptions, **common: Any) -> PlanJob:
        return _job(self, self.parallel_groups, location, options, common)

    def _plan(self, table: HudiTable, operation: TaskOperation) -> str | None:
        return super()._plan(table, operation) or self._schedule(table, operation)
