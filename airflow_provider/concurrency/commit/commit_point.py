"""The only function that appends to the commit log: every change of a table's history goes through it.

It is one optimistic loop. The caller looks at a moment of the table and decides on the entry that follows
from it. The loop puts that entry right after the moment, unless another entry has taken the place. Then
the caller decides again, on the new moment. So every entry takes all entries before it into account, even
if a lock was lost.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from airflow_provider import metrics
from airflow_provider.concurrency.commit.concurrent_changes import Moment
from airflow_provider.concurrency.commit.publish import publish
from airflow_provider.concurrency.commit.undo_entry import next_undone
from airflow_provider.concurrency.log import (
    Commit,
    CommitLog,
    LogEntry,
    Plan,
    Revert,
    Rollback,
    completion_time_after,
)
from airflow_provider.exceptions import InstantRolledBackError, NoSuchInstantError, TableServiceError
from airflow_provider.table.storage import Storage

log = logging.getLogger(__name__)

Entry = TypeVar("Entry", bound=LogEntry)

_COUNTED = {Commit: "commits", Rollback: "rollbacks", Revert: "reverts"}


def commit(
    storage: Storage,
    decide: Callable[[Moment], Entry | None],
    *,
    since: Moment | None = None,
    tries: int | None = None,
    once_put: Callable[[Entry], object] = lambda _: None,
) -> Entry | None:
    """Put an entry into the commit log, and publish it.

    This function sets the fields that follow from the moment: the entry's sequence, completion time and
    archival bound, and its indexes unless the entry changes them. A requested time that ``decide`` took from
    the moment (:meth:`~airflow_provider.concurrency.commit.concurrent_changes.Moment.request_instant`) holds
    for that moment only. If the entry loses its place, the requested time and all files staged under it are
    deleted.

    The put of the entry is the commit. If its publication fails, this is logged, and the next writer
    publishes the entry. If another Hudi writer has undone a commit by a rollback or a restore, an entry that
    says so is put first.

    :param storage: the table's storage.
    :param decide: decides on the entry that follows a moment; None for no entry. It is called again when
        another entry has taken the place. An error that it raises ends the commit without an entry.
    :param since: a moment that the caller knows; the log is read from there on only.
    :param tries: how many times the entry may lose its place; no limit when None.
    :param once_put: called with the entry, before it is published.
    :return: the entry; None when ``decide`` returned none, or the entry lost its place at every try.
    :raises OSError: when it is not known whether the entry was put.
    :raises InstantRolledBackError: when this process was paused while the log was trimmed past its place, or
        while another Hudi writer rolled the entry's instant back.
    """
    commit_log, moment = CommitLog(storage), since
    for _ in itertools.repeat(None) if tries is None else range(tries):
        moment = Moment.now(storage) if moment is None else moment.following()
        if _say_undone(storage, moment):
            continue
        try:
            decided = decide(moment)
        except Exception as error:
            with suppress(OSError):  # the caller needs the decision's error
                moment.give_up_requested()
            # Another process has undone or archived an instant that the decision needed.
            is_late = isinstance(error, FileNotFoundError | NoSuchInstantError)
            if is_late and (commit_log.head() > moment.sequence or _say_undone(storage, moment.published())):
                if commit_log.trimmed() <= moment.sequence:
                    continue
                if since is None:  # the log was trimmed past this moment, so the loop begins with a new one
                    moment = None
                    continue
            raise
        if _say_undone(storage, moment):  # the decision may have loaded the timeline
            continue
        if decided is not None and (entry := _put(storage, moment, decided, once_put)) is not None:
            return entry
        moment.give_up_requested()
        if decided is None:
            return None
    return None


def _say_undone(storage: Storage, moment: Moment) -> bool:
    """Put an entry for a commit that another Hudi writer has undone; False when the log has them all."""
    undone = next_undone(storage, moment)
    if undone is None:
        return False
    moment.give_up_requested()
    if _put(storage, moment, undone, lambda _: None) is not None:
        told = "table %s: %s was undone, because another Hudi writer was faster, or has undone it by %s"
        log.warning(told, storage.root, undone.rolls_back, undone.instant)
    return True


def _put(
    storage: Storage, moment: Moment, decided: Entry, once_put: Callable[[Entry], object]
) -> Entry | None:
    """Put the entry right after the moment, and publish it; None where another entry has the place."""
    entry = _following(storage, moment, decided)
    try:
        is_put = CommitLog(storage).append(entry.sequence, entry)
    except InstantRolledBackError:  # the log was trimmed past the entry's place, so the entry is not in it
        with suppress(OSError):
            moment.give_up_requested()
        raise
    if not is_put:
        return None
    once_put(entry)
    tags = {"table": storage.root, "action": entry.action, "priority": entry.priority}
    if name := _COUNTED.get(type(entry)):
        metrics.count(name, **tags)
    with metrics.timed("publish", **tags):
        is_published = _publish(storage, moment, entry)
    if not is_published:
        _say_undone(storage, Moment(storage, entry).published())
        raise InstantRolledBackError(
            f"table {storage.root}: {entry.operation} {entry.instant} was paused, and another Hudi writer "
            "has rolled it back, or written to its file groups; run it again",
            instant=entry.instant,
        )
    return entry


def _following(storage: Storage, moment: Moment, decided: Entry) -> Entry:
    newest, there = moment.newest, moment.table_indexes
    bound = max(moment.newest_completion, decided.shown_completion)
    requested = decided.instant or decided.archived  # an archival is no instant
    # An entry that changes the indexes also changes the table's properties, unless it only plans.
    changes = decided.indexes is not None and not isinstance(decided, Plan)
    return replace(
        decided,
        completion_time=completion_time_after(
            storage, newest, requested, later_than=bound, soonest=moment.takes_soonest(decided.action)
        ),
        indexes=there.kept if decided.indexes is None else decided.indexes,
        properties="" if changes or there.unsupported_indexes else there.properties,
        archived=max(decided.archived, newest.archived if newest else ""),
        sequence=moment.sequence + 1,
    )


def _publish(storage: Storage, moment: Moment, entry: LogEntry) -> bool:
    try:
        if not publish(storage, entry, looks=isinstance(entry, Commit) and entry.seen != ""):
            return False
    except (OSError, TableServiceError) as error:
        told = "table %s: %s %s is done, and not published yet; the next writer does that: %s"
        log.warning(told, storage.root, entry.operation, entry.instant, error)
    with suppress(OSError):
        moment.keep_requested(entry)
    return True
