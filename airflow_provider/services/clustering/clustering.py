"""Clustering: it rewrites file groups, packed or in an order that lets queries skip files.

Scheduling and execution are separate: :func:`schedule_clustering` puts a plan on the timeline, and
:func:`run_clustering` executes one, now or later, in this process or another one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from airflow_provider.concurrency import (
    PRIORITIES,
    Writer,
    begin_planned,
    rollback_dead_writers,
    schedule,
)
from airflow_provider.concurrency.conflicts import has_other_writers
from airflow_provider.concurrency.heartbeats import progress_of
from airflow_provider.concurrency.plans import MAX_FAILURES, check_not_stopped, end_of_plan, pending_plans
from airflow_provider.exceptions import NoSuchInstantError, UnfinishedWriteError, WriteConflictError
from airflow_provider.jobs import PlanJob
from airflow_provider.locks import LockProvider, default_lock
from airflow_provider.services.clustering.clustering_job import ClusteringJob
from airflow_provider.services.clustering.clustering_plan import (
    LAYOUT_KEY,
    ClusteringGroup,
    ClusteringPlan,
    ClusteringSettings,
    as_service_plan,
    plan_clustering,
)
from airflow_provider.services.clustering.clustering_task import ClusteringTask
from airflow_provider.services.clustering.resized_buckets import ResizedBuckets
from airflow_provider.table.file_groups import FileGroupId
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.schema import TableSchema
from airflow_provider.table.timeline import Action, Instant, State, WriteStat, instant_path

log = logging.getLogger(__name__)

WriteGroup = Callable[[Sequence[ClusteringTask]], list[WriteStat]]
"""Writes the new file groups of one clustering group."""


# --- scheduling -----------------------------------------------------------------------------


def schedule_clustering(
    table: HudiTable,
    settings: ClusteringSettings,
    *,
    priority: int = PRIORITIES["table_service"],
    lock: LockProvider | None = None,
    max_failures: int | None = MAX_FAILURES,
    operation_key: str | None = None,
) -> str | None:
    """Plan a clustering, as an instant of its own that any process can execute later. This reads no data.

    :param table: the table.
    :param settings: which file groups to cluster, and their layout.
    :param priority: decides which writer yields; see :data:`~airflow_provider.concurrency.PRIORITIES`.
    :param lock: the table lock; :func:`~airflow_provider.locks.default_lock` when None.
    :param max_failures: see :func:`~airflow_provider.concurrency.plans.check_not_stopped`.
    :param operation_key: see :func:`~airflow_provider.concurrency.schedule`.
    :return: the plan's requested time; None when no file group would gain from clustering.
    :raises InvalidInputError: when a setting is out of range.
    :raises ServiceStoppedError: when clustering failed too often on this table.
    :raises LockTimeoutError: when the table lock is not acquired in time.
    """
    table.check_writable()
    settings.validate(table)
    check_not_stopped(table, max_failures)
    return schedule(
        table,
        lambda view, taken: as_service_plan(plan_clustering(table, settings, view, taken), table.storage),
        action=Action.CLUSTERING,
        operation="CLUSTER",
        priority=priority,
        lock=lock or default_lock(table),
        operation_key=operation_key,
    )


def preview_clustering(table: HudiTable, settings: ClusteringSettings) -> ClusteringPlan | None:
    """The plan that :func:`schedule_clustering` would make now without other writers; writes nothing.

    :param table: the table.
    :param settings: which file groups to cluster, and their layout.
    :return: None when there is nothing to do.
    :raises InvalidInputError: when a setting is out of range.
    :raises UnsupportedTableError: when this package does not write such a table.
    """
    table.check_writable()
    settings.validate(table)
    taken = (pending_plan(table, instant).file_groups for instant in pending_clusterings(table))
    return plan_clustering(table, settings, table.view(), frozenset[FileGroupId]().union(*taken))


def pending_clusterings(table: HudiTable, *, idle: bool = False) -> list[str]:
    """Clustering plans of this package that have neither completed nor been rolled back, oldest first.

    :param table: the table.
    :param idle: True for plans that no process executes now, False for all.
    """
    return pending_plans(table, Action.CLUSTERING, idle=idle)


def pending_plan(table: HudiTable, instant: str) -> ClusteringPlan:
    """The plan of a clustering that is pending, or has completed.

    :param table: the table.
    :param instant: the plan's requested time.
    :raises NoSuchInstantError: when the plan does not exist.
    """
    try:
        content = table.storage.read(instant_path(Instant(instant, Action.CLUSTERING, State.REQUESTED)))
    except FileNotFoundError:
        raise NoSuchInstantError(
            f"table {table.location}: there is no clustering plan {instant}: {end_of_plan(table, instant)}; "
            "schedule another one (in a DAG: clear the task that has scheduled it, with the tasks after it)",
            instant=instant,
        ) from None
    return ClusteringPlan.from_avro(content)


def clustering_progress(table: HudiTable) -> dict[str, str]:
    """The progress of the clusterings that are being executed now, for people.

    :param table: the table.
    :return: by requested time, for example ``3 of 7 groups done``.
    """
    told = {instant: progress_of(table.storage, instant) for instant in pending_clusterings(table)}
    return {instant: progress for instant, progress in told.items() if progress is not None}


# --- execution ------------------------------------------------------------------------------


def cluster_in_process(
    table: HudiTable, instant: str | None = None, **settings: Any
) -> dict[str, Any] | None:
    """Execute a clustering plan in this process, without Spark, one file group after the other.

    :param table: the table.
    :param instant: see :class:`ClusteringJob`.
    :param settings: further fields of :class:`ClusteringJob`.
    :return: see :func:`run_clustering`.
    """
    job = ClusteringJob.of(table.location, instant=instant, storage_options=table.storage.options, **settings)

    return run_clustering(job, table, write_group)


def write_group(tasks: Sequence[ClusteringTask]) -> list[WriteStat]:
    """Write the new file groups of a clustering group in this process, one after the other.

    :param tasks: one task for each new file group.
    """
    written = (task.run(f"{number}-0-0") for number, task in enumerate(tasks))
    return [stat for stat in written if stat is not None]


def run_clustering(
    job: ClusteringJob,
    table: HudiTable,
    write_group: WriteGroup,
    *,
    parallel_groups: int = 1,
    lock: LockProvider | None = None,
    is_alive: Callable[[], bool] | None = None,
    around: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> dict[str, Any] | None:
    """Execute a clustering plan, as one commit of all clustering groups that no other writer has touched.

    A group stays as it is if another writer has written to it since the plan, or if a writer of higher
    priority works on it. The next plan contains it again.

    :param job: the execution.
    :param table: the table.
    :param write_group: writes the new file groups of a clustering group; threads may call it.
    :param parallel_groups: number of groups that are written at the same time.
    :param lock: the table lock; by ``job.lock``, or the table's options, when None.
    :param is_alive: called before every heartbeat; False gives the clustering up.
    :param around: a context manager for the instant. It is entered before any file is written. It is left
        after the last group, or as soon as a group fails, even if other groups are still being written.
    :return: see :func:`result_of`; None when the job names no plan, and none is pending.
    :raises NoSuchInstantError: when the plan that the job names does not exist, or was rolled back.
    :raises WriteConflictError: when another process executes the plan, or every group is in conflict.
    :raises CommitError: when the clustering ended otherwise without a commit.
    :raises UnsupportedTableError: when this package does not write such a table.
    """
    table.check_writable()
    if (earlier := earlier_clustering(job, table)) is not None:
        return earlier
    lock = lock or job.open_lock(table)
    writer = _begin(job, table, lock, is_alive)
    if writer is None:
        return None
    with writer:
        plan = pending_plan(table, writer.instant)
        if plan.resizes:
            made = ResizedBuckets(table, writer, plan.groups)
            writer.written_twice, writer.before_entry = made.written_twice, made.put
        clustering = Clustering(job, table, writer, plan, write_group)
        clustering.write(parallel_groups, around)
        result = clustering.commit()
        if plan.resizes:
            made.committed()
        return result


def earlier_clustering(job: PlanJob, table: HudiTable) -> dict[str, Any] | None:
    """The result of a clustering that has completed, by an earlier try or by another process.

    :param job: the execution.
    :param table: its table.
    :return: None when the plan has not been executed.
    """
    instant = job.executed(table)
    return None if instant is None else result_of(job, table, instant, already_committed=True)


def result_of(
    job: PlanJob, table: HudiTable, instant: str, *, already_committed: bool = False
) -> dict[str, Any]:
    """The result of a clustering, for people and for machines.

    :param job: the execution.
    :param table: its table.
    :param instant: requested time of the completed clustering.
    :param already_committed: whether an earlier execution completed it.
    :return: JSON-able dict: table, location, instant, completion_time, action, operation,
        groups_planned, groups_done, groups_left_out, files_replaced, files_written, rows,
        bytes_written, partitions, already_committed.
    :raises NoSuchInstantError: when the clustering is no longer on the active timeline.
    """
    timeline = table.timeline()
    completed = timeline.find(instant)
    if completed is None:
        raise NoSuchInstantError(
            f"table {table.location}: clustering {instant} is not on the timeline any more: it was archived, "
            "or reverted by a write of higher priority",
            instant=instant,
        )
    metadata = timeline.commit_metadata(completed)
    stats = metadata.write_stats
    planned = pending_plan(table, instant).groups
    replaced = metadata.replaced_groups
    done = sum(group.file_groups <= replaced for group in planned)
    return {
        "table": job.table_name or table.config.name,
        "location": table.location,
        "instant": instant,
        "completion_time": completed.completion_time,
        "action": str(completed.action),
        "operation": job.operation,
        "groups_planned": len(planned),
        "groups_done": done,
        "groups_left_out": len(planned) - done,
        "files_replaced": len(replaced),
        "files_written": len(stats),
        "rows": sum(stat.num_writes for stat in stats),
        "bytes_written": sum(stat.total_write_bytes for stat in stats),
        "partitions": sorted({stat.partition_path for stat in stats}),
        "already_committed": already_committed,
    }


@dataclass
class Clustering:
    """The execution of a clustering, from its beginning to its commit.

    :param job: the execution.
    :param table: the table.
    :param writer: the write, already begun.
    :param plan: the plan to execute.
    :param write_group: writes the new file groups of a clustering group.
    """

    job: ClusteringJob
    table: HudiTable
    writer: Writer
    plan: ClusteringPlan
    write_group: WriteGroup
    _written: dict[ClusteringGroup, list[WriteStat]] = field(default_factory=dict, init=False)
    _conflict: WriteConflictError | None = field(default=None, init=False)
    _ended: int = field(default=0, init=False)
    _telling: threading.Lock = field(default_factory=threading.Lock, init=False)

    def write(self, parallel_groups: int, around: Callable[[str], AbstractContextManager[None]]) -> None:
        """Write the new file groups of every clustering group that no other writer has touched.

        :param parallel_groups: see :func:`run_clustering`.
        :param around: see :func:`run_clustering`.
        """
        groups = sorted(self.plan.groups, key=lambda group: -group.size)  # the longest work first
        if parallel_groups == 1:
            with around(self.writer.instant):
                for group in groups:
                    self._write(group)
            return
        with ThreadPoolExecutor(parallel_groups) as pool:
            futures: list[Future[None]] = []
            try:
                with around(self.writer.instant):
                    futures += [pool.submit(self._write, group) for group in groups]
                    for future in as_completed(futures):
                        future.result()
            finally:
                for future in futures:
                    future.cancel()

    def commit(self) -> dict[str, Any]:
        """Commit the groups that are written.

        :return: see :func:`result_of`.
        :raises WriteConflictError: when no group is left, or the commit was reverted at once.
        """
        if not self._written and self._conflict is not None:
            raise self._conflict
        replaced: dict[str, list[str]] = {}
        for partition, file_id in sorted(each for group in self._written for each in group.file_groups):
            replaced.setdefault(partition, []).append(file_id)
        committed = self.writer.commit(
            [stat for stats in self._written.values() for stat in stats],
            replaced=replaced,
            extra_metadata={
                LAYOUT_KEY: self.plan.settings.described_layout,
                **self.job.extra_metadata,
            },
            parts=[
                group.file_groups | {stat.file_group for stat in stats}
                for group, stats in self._written.items()
            ]
            if self._may_leave_out
            else (),
        )
        try:
            return result_of(self.job, self.table, committed.instant)
        except NoSuchInstantError as error:
            raise WriteConflictError(
                f"table {self.table.location}: clustering {committed.instant} was reverted right after its "
                "commit, by a write of higher priority; run it again",
                instant=committed.instant,
            ) from error

    def _write(self, group: ClusteringGroup) -> None:
        try:
            self.writer.check(group.file_groups)
            self._check_slices(group)
        except WriteConflictError as error:
            if not self._may_leave_out:
                raise
            self._conflict = error
            self._end(group, f"left out: {error}")
            return
        table, settings, schema = self.table, self.plan.settings, self._schema
        tasks = [
            ClusteringTask(table.storage, table.config, schema, self.writer.instant, settings, group, number)
            for number in range(group.outputs)
        ]
        self._written[group] = self.write_group(tasks)
        self._end(group, "done")

    def _check_slices(self, group: ClusteringGroup) -> None:
        """Make sure that the plan names the slices that were the newest when it was put.

        If the planner lost the lock between its look at the table and its entry, another Hudi writer may have
        committed to a file group in between. Such a commit is older than the plan, so it is no conflict.

        :param group: a clustering group.
        :raises WriteConflictError: when a file group has another newest slice.
        """
        if not self._is_shared:
            return
        view, partition = self.writer.view, group.partition_path
        files = (*view.base_files(partition), *view.log_files(partition))
        newest = {each.path for each in files if FileGroupId(partition, each.file_id) in group.file_groups}
        planned = {path for each in group.slices for path in (each.base_path, *each.log_paths) if path}
        if newest != planned:
            raise WriteConflictError(
                f"table {self.table.location}: clustering plan {self.writer.instant} names "
                f"{sorted(planned)}, but when it was put, {sorted(newest)} were the newest files "
                "there: another Hudi writer has committed meanwhile; plan again",
                instant=self.writer.instant,
            )

    @cached_property
    def _is_shared(self) -> bool:
        """Whether other Hudi writers write to the table."""
        return self.writer.lock.excludes_hudi or has_other_writers(self.table.storage)

    @cached_property
    def _may_leave_out(self) -> bool:
        """Whether the clustering can commit without some of its groups.

        Other Hudi writers append to a bucket that is split or merged, and also to the new buckets. If such a
        group were left out, readers would see only one of the two log files.
        """
        return not (self._is_shared and self.plan.resizes)

    @cached_property
    def _schema(self) -> TableSchema:
        return self.table.schema_on(self.writer.schema_timeline)

    def _end(self, group: ClusteringGroup, outcome: str) -> None:
        with self._telling:
            self._ended += 1
            done = len(self._written)
            left_out = f", {self._ended - done} left out" if self._ended > done else ""
            progress = f"{done} of {len(self.plan.groups)} groups done{left_out}"
            self.writer.tell(progress)
        log.info(
            "clustering %s: %d file groups of partition %r %s; %s",
            *(self.writer.instant, len(group.slices), group.partition_path, outcome, progress),
        )


def _begin(
    job: ClusteringJob, table: HudiTable, lock: LockProvider, is_alive: Callable[[], bool] | None
) -> Writer | None:
    def begin(instant: str) -> Writer:
        return begin_planned(
            table,
            instant,
            lock=lock,
            heartbeat=job.heartbeat,
            operation_key=job.operation_key,
            is_alive=is_alive,
        )

    if job.instant is not None:
        return begin(job.instant)
    rollback_dead_writers(table)  # this includes the plans of dead executors
    for instant in pending_clusterings(table, idle=True):
        try:
            return begin(instant)
        except UnfinishedWriteError:
            raise
        except (NoSuchInstantError, WriteConflictError) as error:
            log.info("%s", error)  # another process took the plan first
    return None
