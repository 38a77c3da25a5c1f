"""Clustering: file groups are written anew, packed or in an order that queries can skip by.

Scheduling and execution are separate: :func:`schedule_clustering` leaves a plan on the timeline, and
:func:`run_clustering` carries one out, now or later, in this process or another one.
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
    CommitResult,
    Writer,
    begin_planned,
    find_operation,
    rollback_dead_writers,
    schedule,
)
from airflow_provider.concurrency.heartbeats import progress_of
from airflow_provider.concurrency.plans import MAX_FAILURES, check_not_stopped, pending_plans
from airflow_provider.exceptions import NoSuchInstantError, WriteConflictError
from airflow_provider.locks import LockProvider, default_lock, open_lock
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
) -> str | None:
    """Plan a clustering, as an instant of its own that anybody can carry out later. Reads no data.

    :param table: the table.
    :param settings: what to cluster, and how.
    :param priority: who yields to whom; see :data:`~airflow_provider.concurrency.PRIORITIES`.
    :param lock: the table lock; :func:`~airflow_provider.locks.default_lock` when None.
    :param max_failures: see :func:`~airflow_provider.concurrency.plans.check_not_stopped`.
    :return: the plan's requested time; None when there is nothing that clustering would make better.
    :raises InvalidInputError: when the settings cannot work.
    :raises ServiceStoppedError: when clustering failed too often on this table.
    :raises LockTimeoutError: when the table lock could not be had in time.
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
    )


def preview_clustering(table: HudiTable, settings: ClusteringSettings) -> ClusteringPlan | None:
    """What :func:`schedule_clustering` would plan now if nobody else were at work; writes nothing.

    :param table: the table.
    :param settings: what to cluster, and how.
    :return: None when there is nothing to do.
    :raises InvalidInputError: when the settings cannot work.
    :raises UnsupportedTableError: when this package does not write such a table.
    """
    table.check_writable()
    settings.validate(table)
    taken = (pending_plan(table, instant).file_groups for instant in pending_clusterings(table))
    return plan_clustering(table, settings, table.view(), frozenset[FileGroupId]().union(*taken))


def pending_clusterings(table: HudiTable, *, idle: bool = False) -> list[str]:
    """Clustering plans of this package that have neither completed nor been rolled back, oldest first.

    :param table: the table.
    :param idle: only those that nobody carries out.
    """
    return pending_plans(table, Action.CLUSTERING, idle=idle)


def pending_plan(table: HudiTable, instant: str) -> ClusteringPlan:
    """What a clustering is going to do, or has done.

    :param table: the table.
    :param instant: the plan's requested time.
    :raises NoSuchInstantError: when there is no such plan any more.
    """
    try:
        content = table.storage.read(instant_path(Instant(instant, Action.CLUSTERING, State.REQUESTED)))
    except FileNotFoundError:
        raise NoSuchInstantError(
            f"table {table.location}: there is no clustering plan {instant}: it was rolled back or never "
            "was; schedule one",
            instant=instant,
        ) from None
    return ClusteringPlan.from_avro(content)


def clustering_progress(table: HudiTable) -> dict[str, str]:
    """How far the clusterings are that are carried out now, for people.

    :param table: the table.
    :return: by requested time, for example ``3 of 7 groups done``.
    """
    told = {instant: progress_of(table.storage, instant) for instant in pending_clusterings(table)}
    return {instant: progress for instant, progress in told.items() if progress is not None}


# --- execution ------------------------------------------------------------------------------


def cluster_in_process(
    table: HudiTable, instant: str | None = None, **settings: Any
) -> dict[str, Any] | None:
    """Carry a clustering plan out in this process, without Spark, one file group after the other.

    :param table: the table.
    :param instant: see :class:`ClusteringJob`.
    :param settings: further fields of :class:`ClusteringJob`.
    :return: see :func:`run_clustering`.
    """
    job = ClusteringJob.of(table.location, instant=instant, storage_options=table.storage.options, **settings)

    return run_clustering(job, table, write_group)


def write_group(tasks: Sequence[ClusteringTask]) -> list[WriteStat]:
    """Write the new file groups of a clustering group in this process, one after the other.

    :param tasks: one a file group.
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
    """Carry a clustering plan out, as one commit of all groups that nobody else has written to.

    A group that was written to since the plan, or that a writer of higher priority works on, is left
    as it is; the next plan has it again.

    :param job: what to do.
    :param table: the table.
    :param write_group: writes the new file groups of a clustering group; may be called by threads.
    :param parallel_groups: groups that are written at the same time.
    :param lock: the table lock; by ``job.lock``, or the table's options, when None.
    :param is_alive: asked before every heartbeat; False gives the clustering up.
    :param around: entered with the instant before anything is written; left after the last group, or when
        one has failed, before the end of the others is waited for.
    :return: see :func:`result_of`; None when no plan was named, and there is none to carry out.
    :raises NoSuchInstantError: when the plan that was named does not exist, or was rolled back.
    :raises WriteConflictError: when somebody else is carrying it out, or every group was hit.
    :raises CommitError: when the clustering ended otherwise without a commit.
    :raises UnsupportedTableError: when this package does not write such a table.
    """
    table.check_writable()
    if (earlier := earlier_clustering(job, table)) is not None:
        return earlier
    lock = lock or open_lock(job.lock or table.hudi_options.lock, table.storage)
    writer = _begin(job, table, lock, is_alive)
    if writer is None:
        return None
    with writer:
        plan = pending_plan(table, writer.instant)
        clustering = Clustering(job, table, writer, plan, write_group)
        clustering.write(parallel_groups, around)
        return clustering.commit()


def earlier_clustering(job: ClusteringJob, table: HudiTable) -> dict[str, Any] | None:
    """The result of a clustering that has completed: of an earlier try, or of whoever was first.

    :param job: the execution.
    :param table: its table.
    :return: None when the work is to be done.
    """
    if job.operation_key is not None:
        found = find_operation(table, job.operation_key, since=job.operation_since)
        if isinstance(found, CommitResult):
            return result_of(job, table, found.instant, already_committed=True)
    completed = table.timeline().find(job.instant) if job.instant is not None else None
    if completed is None or completed.state is not State.COMPLETED:
        return None
    return result_of(job, table, completed.requested_time, already_committed=True)


def result_of(
    job: ClusteringJob, table: HudiTable, instant: str, *, already_committed: bool = False
) -> dict[str, Any]:
    """What a person wants to know of a clustering.

    :param job: the execution.
    :param table: its table.
    :param instant: requested time; completed.
    :param already_committed: whether an earlier execution did it.
    :return: JSON-able dict: table, location, instant, completion_time, action, operation,
        groups_planned, groups_done, groups_left_out, files_replaced, files_written, rows,
        bytes_written, partitions, already_committed.
    :raises NoSuchInstantError: when it is no longer on the active timeline.
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
    replaced = {FileGroupId(path, each) for path, ids in metadata.replaced.items() for each in ids}
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
    """The part between the begin of a clustering and its commit.

    :param job: what to do.
    :param table: the table.
    :param writer: the write, begun.
    :param plan: what it carries out.
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
        """Write the new file groups of every clustering group that nobody else has written to.

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
        """Commit what was written.

        :return: see :func:`result_of`.
        :raises WriteConflictError: when nothing is left of it, or it was reverted at once.
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
                group.file_groups | {FileGroupId(stat.partition_path, stat.file_id) for stat in stats}
                for group, stats in self._written.items()
            ],
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
        except WriteConflictError as error:
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
            *(self.writer.instant, len(group.paths), group.partition_path, outcome, progress),
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
    rollback_dead_writers(table)  # plans of dead executors are no plans any more
    for instant in pending_clusterings(table, idle=True):
        try:
            return begin(instant)
        except (NoSuchInstantError, WriteConflictError) as error:
            log.info("%s", error)  # somebody else was faster
    return None
