"""An empty commit before a dead first write, so that none of its files can become visible.

Readers take a data file that is older than the timeline for a file of an archived commit (Hudi's
``containsOrBeforeTimelineStarts``). A dead writer may still write such a file after its rollback. A
completed commit that was requested earlier hides the file. If the first write of a table dies, there is no
such commit, so an empty one is put before the rollback.
"""

from __future__ import annotations

import logging

from airflow_provider.concurrency.commit import CommitContent, Moment, StagedWrite, clean_up, commit
from airflow_provider.concurrency.heartbeats import HeartbeatInfo, heartbeat_path
from airflow_provider.concurrency.log import Commit, CommitLog, requested_times_before
from airflow_provider.table.file_groups import FileSystemView
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.schema import TableSchema
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import (
    Instant,
    State,
    Timeline,
    instant_path,
    newest_archived,
    requested_metadata,
)

log = logging.getLogger(__name__)


def ensure_commit_before(storage: Storage, dead: str) -> None:
    """Put an empty commit that is older than an instant, unless the timeline has an older one.

    If no millisecond between the last archived instant and this one is free, no such commit can be put. Then
    files that the dead writer puts after its rollback are visible until the next clean.

    :param storage: the table's storage.
    :param dead: requested time of an instant that is about to be rolled back.
    """
    while not _has_commit_before(storage, dead):
        if not _put_commit_before(storage, dead):
            log.warning("table %s: no commit can be put between the archive and %s", storage.root, dead)
            return


def _put_commit_before(storage: Storage, dead: str) -> bool:
    """Put the commit, unless another process does; False where no requested time is free for it."""
    table = HudiTable.at(storage)
    action, text = table.write_action, table.config.create_schema
    info = HeartbeatInfo.of_this_process(action, "INSERT")
    instant = _take_instant_before(storage, dead, info)
    if instant is None:
        return False
    extra = {"priority": str(info.priority)}
    content = CommitContent((), {}, extra, schema=TableSchema(text) if text else None)
    staged_write = StagedWrite(storage, instant, action, info)
    requested = Instant(instant, action, State.REQUESTED)
    storage.put_if_absent(instant_path(requested), requested_metadata(action))
    staged_write.plan((), ())
    staged_write.stage(content)

    def decide(moment: Moment) -> Commit | None:
        # Other processes may have taken this paused process for dead, or may have put such a commit.
        if moment.fate_of(instant) is not None or _has_commit_before(storage, dead):
            return None
        view = FileSystemView(storage, lambda: Timeline.load(storage))
        staged_write.log_to(moment.indexes, content, lambda: view)
        return content.entry(instant, action, info)

    if commit(storage, decide) is None:
        clean_up(storage, instant, action)
    return True


def _has_commit_before(storage: Storage, instant: str) -> bool:
    starts = Timeline.load(storage).starts
    return bool(starts) and starts < instant


def _take_instant_before(storage: Storage, instant: str, info: HeartbeatInfo) -> str | None:
    """A requested time in the past that no other instant has or will have. Only this function takes such
    times.

    As in :func:`~airflow_provider.concurrency.log.request_instant`, the heartbeat claims the time, and then
    this function checks that no other instant has used it. The time has to be later than all archived
    instants, because an earlier commit would count as dead.
    """
    for candidate in requested_times_before(instant, newest_archived(storage)):
        if storage.put_if_absent(heartbeat_path(candidate), info.to_json()):
            entries = CommitLog(storage).backwards()
            used = {time for entry in entries for time in (entry.instant, *entry.undone)}
            if candidate not in used and Timeline.load(storage).find(candidate) is None:
                return candidate
            storage.delete(heartbeat_path(candidate))
    return None
