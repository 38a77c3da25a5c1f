"""The writes of other Hudi writers, which know no commit log, such as the JVM's.

Their instants on the timeline are the truth as much as the log's entries. A commit of such a writer counts as
an entry at its completion time; its rollbacks and restores are final.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from airflow_provider.concurrency.conflicts.rules import (
    PRIORITIES,
    WriteDescription,
    overwritten_by,
    shared_by,
)
from airflow_provider.concurrency.heartbeats import heartbeat_path
from airflow_provider.concurrency.log import Commit, CommitLog, LogEntry, Plan, Restore, Rollback, fate_of
from airflow_provider.exceptions import UnfinishedWriteError
from airflow_provider.locks import LockProvider
from airflow_provider.table.file_groups import FileGroupId
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import (
    REWRITES,
    UNDOING,
    WRITE_ACTIONS,
    Action,
    Instant,
    State,
    Timeline,
    WriteStat,
    decode,
    decode_commit_metadata,
    find_undoing,
    read_completed,
    undone_instants,
)

log = logging.getLogger(__name__)


def is_lost(storage: Storage, commit: Commit) -> bool:
    """Whether a commit of the log must not be shown, because another Hudi writer was faster.

    The other writer has rolled the instant back, or restored the table. Or it has completed a conflicting
    instant while the committing process was paused and no longer had the lock.

    :param storage: the table's storage.
    :param commit: the log's newest entry.
    """
    timeline = Timeline.load(storage)
    if find_undoing(timeline, commit.instant) is not None:
        return True
    if commit.seen == "":
        return False
    clusterings = (timeline.find(each.instant) for each in planned_clusterings(storage, timeline))
    later = (*timeline.completed(), *(each for each in clusterings if each is not None))
    return any(_overtakes(storage, commit, each) and not _has_read(timeline, each, commit) for each in later)


def _has_read(timeline: Timeline, instant: Instant, commit: Commit) -> bool:
    """Whether a foreign instant that seems to overtake a commit was merged on it, because it was shown."""
    if instant.action not in (*WRITE_ACTIONS, Action.CLUSTERING):
        return False
    plan = timeline.plan(instant) or {}
    compacted = (name for each in plan.get("operations") or () for name in each["deltaFilePaths"] or ())
    if any(commit.instant in name for name in compacted):
        return True
    groups = (plan.get("clusteringPlan") or {}).get("inputGroups") or ()
    if any(commit.instant in (each["dataFilePath"] or "") for group in groups for each in group["slices"]):
        return True
    if instant.state is not State.COMPLETED:
        return False
    stats = timeline.commit_metadata(instant).write_stats
    return any(stat.prev_commit == commit.instant for stat in stats)


def _overtakes(storage: Storage, commit: Commit, instant: Instant) -> bool:
    if instant.state is not State.COMPLETED:  # a clustering plan, which completes without a conflict check
        return bool(commit.touched & clustered(Timeline.load(storage), instant))
    if (instant.completion_time or "") <= commit.seen or instant.requested_time == commit.instant:
        return False
    if not changes_something(instant) or any(CommitLog(storage).about(instant.requested_time)):
        return False
    other = as_entry(storage, instant)
    if isinstance(other, Restore):
        return True
    return bool(
        shared_by(WriteDescription.of_entry(commit), WriteDescription.of_entry(other))
        # Both may have added the same keys: to run the load again costs less than to compare the keys.
        or commit.inserted_in & other.adds_records_in
        or overwritten_by(WriteDescription.of_entry(commit), WriteDescription.of_entry(other))
    )


def planned_clusterings(storage: Storage, timeline: Timeline) -> list[WriteDescription]:
    """The pending clusterings that other Hudi writers have planned or carry out.

    :param storage: the table's storage.
    :param timeline: the active timeline.
    """
    found = []
    for instant in timeline.pending():
        if instant.action is not Action.CLUSTERING:
            continue
        is_ours = _is_planned_here(storage, instant)
        # Other Hudi writers may carry out a plan of this package. An executor of this package has a heartbeat
        # under the plan's instant.
        if is_ours and (instant.state is State.REQUESTED or _beats(storage, instant.requested_time)):
            continue
        if is_ours and _has_ended(storage, instant):
            continue  # it has ended since the timeline was loaded
        found.append(
            WriteDescription(
                instant=instant.requested_time,
                operation="CLUSTER",
                priority=PRIORITIES["table_service"],
                state=instant.state,
                file_groups=clustered(timeline, instant),
                owner=OWNER,
            )
        )
    return found


def note_other_writers(storage: Storage, timeline: Timeline, completed_until: str) -> list[Instant]:
    """Record for good that another Hudi writer commits to a table, if one has done so lately.

    :param storage: the table's storage.
    :param timeline: the active timeline.
    :param completed_until: a completion time; later instants are looked up in the log.
    :return: the instants of other writers that completed later, in the order of completion.
    """
    if timeline.newest_completion <= completed_until:
        return []  # the usual case
    commit_log = CommitLog(storage)
    later = (each for each in timeline.completed() if (each.completion_time or "") > completed_until)
    found = [each for each in later if not any(commit_log.about(each.requested_time))]
    if found:
        storage.put_if_absent(_OTHER_WRITERS, b"")
    return sorted(found, key=_completion)


def warn_of_other_writers(
    storage: Storage, timeline: Timeline, completed_until: str, lock: LockProvider
) -> None:
    """Log what other Hudi writers have completed since the newest entry of the log, if they share no lock.

    Each instant is logged once, by one process. Before the first entry there is nobody beside whom they could
    have written.

    :param storage: the table's storage.
    :param timeline: the active timeline.
    :param completed_until: completion time of the newest entry; empty when the log has none.
    :param lock: the table lock.
    """
    found = note_other_writers(storage, timeline, completed_until)
    if not found or not completed_until or lock.excludes_hudi:
        return
    told = storage.read(_OTHER_WRITERS).decode()
    new = [each for each in found if _completion(each) > told and changes_something(each)]
    if not new:
        return
    storage.put(_OTHER_WRITERS, _completion(new[-1]).encode())
    named = ", ".join(f"{each.action} {each.requested_time}" for each in new[-_NAMED:])
    if len(new) > _NAMED:
        named = f"{named} and {len(new) - _NAMED} earlier instants"
    log.warning(
        "table %s: another Hudi writer has completed %s since the newest entry of the commit log, and %s "
        "does not keep it out: if both write at once, rows of either may get lost; give both engines the "
        "same lock (hoodie.write.lock.provider; docs/connections.md)",
        *(storage.root, named, type(lock).__name__),
    )


def _completion(instant: Instant) -> str:
    return instant.completion_time or ""


def has_other_writers(storage: Storage) -> bool:
    """Whether another Hudi writer has ever been seen to commit to a table."""
    return storage.stat(_OTHER_WRITERS) is not None


def clusterings_to_withdraw(
    storage: Storage, timeline: Timeline, touched: Collection[FileGroupId]
) -> list[str]:
    """The clustering plans of this package that must not outlive a commit to their file groups.

    Another Hudi writer carries out any plan that it finds, on the file slices that the plan names, whatever
    was written since. An executor of this package leaves such file groups out.

    :param storage: the storage of a table that has other writers.
    :param timeline: the active timeline.
    :param touched: the file groups that the commit touches.
    :return: the requested times of the plans.
    """
    return [
        instant.requested_time
        for instant in timeline.pending()
        if instant.action is Action.CLUSTERING
        and _is_planned_here(storage, instant)
        and not clustered(timeline, instant).isdisjoint(touched)
    ]


def _is_planned_here(storage: Storage, clustering: Instant) -> bool:
    return any(isinstance(entry, Plan) for entry in CommitLog(storage).about(clustering.requested_time))


def clustered(timeline: Timeline, instant: Instant) -> frozenset[FileGroupId]:
    """The file groups that a clustering plan names; none where the instant is no clustering, or gone.

    :param timeline: the active timeline.
    :param instant: a pending instant.
    """
    plan = timeline.plan(instant) if instant.action is Action.CLUSTERING else None
    groups = ((plan or {}).get("clusteringPlan") or {}).get("inputGroups") or ()
    slices = (each for group in groups for each in group.get("slices") or ())
    return frozenset(FileGroupId(each.get("partitionPath") or "", each["fileId"]) for each in slices)


def compacted(timeline: Timeline, instant: Instant) -> frozenset[FileGroupId]:
    """The file groups that a compaction plan names; none where the instant is no compaction, or gone.

    :param timeline: the active timeline.
    :param instant: a pending instant.
    """
    plan = timeline.plan(instant) if instant.action is Action.COMPACTION else None
    operations = (plan or {}).get("operations") or ()
    return frozenset(FileGroupId(each["partitionPath"] or "", each["fileId"]) for each in operations)


def check_no_unfinished_write(
    storage: Storage, timeline: Timeline, *, before: str = "", since: Timeline | None = None
) -> None:
    """Make sure that no write of another Hudi writer is pending without a heartbeat.

    Such a writer has died, or it cleans up eagerly, and so assumes that it is alone. It rolls the write back
    when it begins its next one. If a write that was requested later has completed by then, the rollback fails
    for good (Hudi's ``BaseRollbackActionExecutor#validateRollbackCommitSequence``: "Found commits after
    time").

    :param storage: the table's storage.
    :param timeline: the active timeline.
    :param before: only writes that were requested before this instant count; every write when empty.
    :param since: an earlier timeline on which the caller has looked already.
    :raises UnfinishedWriteError: when there is such a write.
    """
    commit_log = CommitLog(storage)
    for instant in timeline.pending():
        if before and instant.requested_time >= before:
            break
        if since is not None and since.find(instant.requested_time) is not None:
            continue
        if instant.action not in WRITE_ACTIONS or _beats(storage, instant.requested_time):
            continue
        if fate_of(storage, commit_log, instant.requested_time) is not None:
            continue  # a write of this package, which has ended
        if not _has_ended(storage, instant):  # since the timeline was loaded
            raise _unfinished(storage, instant)


def _has_ended(storage: Storage, instant: Instant) -> bool:
    # The instant was pending on an earlier timeline, and has completed since, or is gone.
    now = Timeline.load(storage).find(instant.requested_time)
    return now is None or now.state is State.COMPLETED


def _unfinished(storage: Storage, write: Instant) -> UnfinishedWriteError:
    return UnfinishedWriteError(
        f"table {storage.root}: {write.action} {write.requested_time} of another Hudi writer is pending "
        "without a heartbeat: it has died, or counts on being alone. After a later commit that engine could "
        "neither roll it back nor write any more. Wait for its end, write once with that engine, which rolls "
        "it back, or roll it back here (table-services rollback, with the instant); then give both engines "
        "the same lock",
        instant=write.requested_time,
    )


def _beats(storage: Storage, instant: str) -> bool:
    return storage.stat(heartbeat_path(instant)) is not None


def changes_something(instant: Instant) -> bool:
    """Whether an instant of another Hudi writer can be in conflict with a write."""
    if instant.action in UNDOING:
        return instant.state is not State.INFLIGHT  # it deletes files as soon as its plan exists
    return instant.state is State.COMPLETED and instant.action in WRITE_ACTIONS


def as_entry(storage: Storage, instant: Instant) -> LogEntry:
    """The entry that stands for an instant of another Hudi writer.

    :param storage: the table's storage.
    :param instant: on the timeline.
    """
    content = read_completed(storage, Timeline(storage, ()), instant)
    completion_time = instant.completion_time or instant.requested_time
    if instant.action is Action.RESTORE:
        return Restore(
            instant=instant.requested_time,
            completion_time=completion_time,
            priority=PRIORITIES["ingestion"],
            owner=OWNER,
        )
    if instant.action is Action.ROLLBACK:
        return Rollback(
            instant=instant.requested_time,
            completion_time=completion_time,
            priority=PRIORITIES["cleaning"],
            rolls_back=min(undone_instants(decode(content)), default=""),
            owner=OWNER,
        )
    metadata = decode_commit_metadata(content)
    operation = metadata.operation_type
    return Commit(
        instant=instant.requested_time,
        action=instant.action,
        completion_time=completion_time,
        operation=operation,
        priority=PRIORITIES["table_service" if operation in REWRITES else "ingestion"],
        written=frozenset(s.file_group for s in metadata.write_stats),
        replaced=metadata.replaced_groups,
        appended=_appended_in(metadata.write_stats),
        inserted_in=frozenset(s.partition_path for s in metadata.write_stats if s.num_inserts),
        owner=OWNER,
    )


def _appended_in(write_stats: Sequence[WriteStat]) -> frozenset[FileGroupId]:
    """The file groups that got log files alone."""
    groups = {each: each.file_group for each in write_stats}
    with_base = {group for stat, group in groups.items() if stat.log_files is None}
    return frozenset(groups.values()) - with_base


OWNER = "another Hudi writer"

_OTHER_WRITERS = ".hoodie/.other_writers"
"""Exists once another Hudi writer has committed; holds the completion time up to which that was logged."""

_NAMED = 5  # instants that one line of the log names
