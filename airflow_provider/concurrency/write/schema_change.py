"""Changes of a table's schema: a commit that writes no row (Hudi's operation ``ALTER_SCHEMA``).

Like any other commit, it goes through :func:`~airflow_provider.concurrency.commit.commit`, and takes all
entries before it into account. So of two schema changes at once, the later one changes the schema that the
earlier one has made. Its requested time is taken at the moment of its decision, because readers take the
schema of the commit that was requested last.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from airflow_provider.concurrency.commit import CommitContent, Moment, StagedWrite, commit
from airflow_provider.concurrency.conflicts import OWNER, check_no_unfinished_write
from airflow_provider.concurrency.heartbeats import HeartbeatInfo
from airflow_provider.concurrency.log import Commit, LogEntry, Restore, Revert
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.schema import TableSchema, history_path
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import (
    CommitMetadata,
    Instant,
    State,
    encode_commit_metadata,
    instant_path,
)

log = logging.getLogger(__name__)

ALTER_SCHEMA = "ALTER_SCHEMA"
"""Hudi's operation type."""


def may_change_schema(entry: LogEntry) -> bool:
    """Whether an entry may have changed the table's schema.

    :param entry: an entry of the log, or the entry that stands for a commit of another Hudi writer.
    """
    if isinstance(entry, Commit):
        return entry.evolves or entry.owner == OWNER
    return isinstance(entry, Restore | Revert)


def change_schema(
    table: HudiTable,
    evolve: Callable[[TableSchema], TableSchema],
    info: HeartbeatInfo,
    *,
    shared: bool,
) -> Commit | None:
    """Commit a change of a table's schema.

    If other Hudi writers share the table lock, the caller holds it.

    :param table: the table.
    :param evolve: makes the new schema from the present one. An error that it raises ends the commit.
    :param info: the writer and its priority.
    :param shared: whether other Hudi writers share the table lock.
    :return: the entry of the log; None when the schema stays the same.
    :raises UnfinishedWriteError: when an unfinished write of another Hudi writer forbids later commits.
    """
    storage = table.storage
    action = table.write_action
    info = replace(info, operation=ALTER_SCHEMA)
    decided: list[CommitContent] = []

    def decide(moment: Moment) -> Commit | None:
        timeline = moment.timeline
        check_no_unfinished_write(storage, timeline)
        before = table.schema_on(timeline)
        schema = evolve(before)
        if schema == before:
            return None
        instant = moment.request_instant(action, ALTER_SCHEMA, priority=info.priority)
        extra = {"priority": str(info.priority)}
        decided[:] = [CommitContent((), {}, extra, schema=schema.of_version(instant), evolves=True)]
        staged_write = StagedWrite(storage, instant, action, info)
        staged_write.stage(decided[0])
        staged_write.log_to(moment.indexes, decided[0], moment.view)
        seen = timeline.newest_completion if shared else ""
        return decided[0].entry(instant, action, info, seen=seen)

    def once_put(entry: Commit) -> None:
        plan = encode_commit_metadata(CommitMetadata(ALTER_SCHEMA), action)
        for state, content in ((State.REQUESTED, b""), (State.INFLIGHT, plan)):
            path = instant_path(Instant(entry.instant, action, state))
            storage.put_if_absent(path, content)
        keep_history(storage, entry, decided[0])

    entry = commit(storage, decide, once_put=once_put)
    if entry is not None:
        log.info("table %s: schema changed by %s", storage.root, entry.instant)
    return entry


def keep_history(storage: Storage, entry: Commit, content: CommitContent) -> None:
    """Put the schema history of a table with schema on read; each of its commits has one.

    The history is put before the commit is shown. If it is missing, readers take the schema from the commit's
    own metadata.

    :param storage: the table's storage.
    :param entry: the commit's entry.
    :param content: the commit's content.
    """
    if content.schema is not None and content.schema.ids is not None:
        path = history_path(entry.instant, entry.completion_time)
        storage.put(path, content.schema.ids.history().encode())
