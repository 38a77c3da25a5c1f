"""Beginning a write: finish what others left, take an instant, know the base."""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider.concurrency.commit import Moment, publish_head
from airflow_provider.concurrency.conflicts import (
    ConflictPolicy,
    mark_open_transaction,
    note_other_writers,
    unfinished_error,
    unfinished_write,
    unmark_open_transaction,
)
from airflow_provider.concurrency.heartbeats import (
    Heartbeat,
    HeartbeatInfo,
    HeartbeatSettings,
    heartbeat_path,
    observe,
)
from airflow_provider.concurrency.log import Commit, CommitLog, LogEntry, Plan, request_instant
from airflow_provider.concurrency.undo import rollback_dead_writers
from airflow_provider.concurrency.write.settings import WriteSettings
from airflow_provider.concurrency.write.writer import Writer
from airflow_provider.exceptions import (
    InvalidInputError,
    NoSuchInstantError,
    UnsupportedTableError,
    WriteConflictError,
)
from airflow_provider.locks import LockProvider, default_lock
from airflow_provider.locks.owner import describe_owner
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.properties import LOCAL
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import Action, Instant, State, Timeline, instant_path, requested_metadata


def begin_write(
    table: HudiTable,
    *,
    operation: str,
    action: Action = Action.COMMIT,
    settings: WriteSettings | None = None,
    lock: LockProvider | None = None,
    operation_key: str | None = None,
    is_alive: Callable[[], bool] | None = None,
    open_txn: int | None = None,
    losses: int = 0,
) -> Writer:
    """Begin a write: finish what others left, take an instant, start the heartbeat.

    :param table: the table.
    :param operation: Hudi's operation type, for example ``UPSERT``.
    :param action: the action on the timeline.
    :param settings: priority, conflict policy and heartbeat.
    :param lock: the table lock for the commit; the filesystem lock in the table by default.
    :param operation_key: under which :func:`find_operation` finds this write again.
    :param is_alive: asked before every beat; False gives the heartbeat up.
    :param open_txn: a metastore transaction that this write belongs to and that goes on after it: until
        its end no other write may touch what this one wrote; see
        :func:`~airflow_provider.concurrency.transactions.commit_transaction`.
    :param losses: how often this was begun before, and lost or gave way: after a few times it takes a turn
        (:mod:`~airflow_provider.concurrency.conflicts.turns`).
    :return: a :class:`Writer` whose instant is on the timeline as requested.
    :raises UnsupportedTableError: when this package does not write such a table, or could not undo the
        write should its transaction be aborted.
    :raises WriteConflictError: when a write of another Hudi writer is pending that keeps no heartbeat, and
        the lock is not one that other Hudi writers share.
    """
    settings = settings or WriteSettings()
    table.check_writable()
    storage = table.storage
    if open_txn is not None and not storage.moves_atomically:
        raise UnsupportedTableError(
            f"table {table.location} cannot be written in transaction {open_txn}: its storage moves no file "
            "in one step, so that a commit could not be undone; write it in a transaction of its own",
            location=table.location,
        )
    commit_log = CommitLog(storage)
    if not all(heartbeat.alive for heartbeat in observe(storage).values()):
        rollback_dead_writers(table)
    newest = commit_log.newest()
    info = HeartbeatInfo(
        describe_owner(),
        action,
        operation,
        settings.priority,
        settings.heartbeat.heartbeat_interval,
        settings.heartbeat.tolerable_misses,
        operation_key,
        base=newest.sequence if newest else 0,
    )
    lock, policy, instant = lock or default_lock(table), settings.policy, ""
    while True:
        instant, base = _take_instant(storage, commit_log, newest, info, later_than=instant)
        # With a common lock that engine cleans up lazily (``HoodieWriteConfig`` refuses anything else), which
        # also rolls back what is older than completed commits.
        unfinished = None if lock.excludes_hudi else unfinished_write(storage, base.look())
        if unfinished is not None:
            storage.delete(heartbeat_path(instant))
            raise unfinished_error(storage, unfinished)
        # Another Hudi writer knows no such claims, and may have taken the same millisecond for anything.
        if base.look().find(instant) is not None:
            storage.delete(heartbeat_path(instant))
            continue
        note_other_writers(storage, base.look(), base.completed_until)
        if lock.excludes_hudi:
            _ = base.timeline  # only there another Hudi writer says that it has rolled this one back
        heartbeat = Heartbeat(storage, instant, info, is_alive)
        writer = Writer(table, instant, action, info, base, heartbeat, lock, policy, open_txn, losses)
        requested = instant_path(Instant(instant, action, State.REQUESTED))
        try:
            if open_txn is not None:
                mark_open_transaction(storage, instant, open_txn)
            if storage.put_if_absent(requested, requested_metadata(action)):
                return writer
        except BaseException:
            writer.abort("could not begin")
            raise
        # Another Hudi writer took it right now. Or the client sent the put twice, as those of object
        # stores do. There the heartbeat stays: nobody renews it, and the instant is rolled back once it has
        # expired. A living writer of the other engine beats under the same name.
        heartbeat.stop()
        unmark_open_transaction(storage, instant)
        if storage.moves_atomically:
            storage.delete(heartbeat_path(instant))


def begin_planned(
    table: HudiTable,
    instant: str,
    *,
    lock: LockProvider | None = None,
    policy: ConflictPolicy | None = None,
    heartbeat: HeartbeatSettings | None = None,
    operation_key: str | None = None,
    is_alive: Callable[[], bool] | None = None,
) -> Writer:
    """Begin to carry a plan out, made by :func:`~airflow_provider.concurrency.schedule`.

    A plan is carried out once: a second executor gets an error. If the executor dies, the plan is rolled
    back, and scheduled again with a new instant. The write is based on the moment of the plan, so that a
    later commit that has touched its file groups is a conflict.

    :param table: the table.
    :param instant: the plan's requested time.
    :param lock: see :func:`begin_write`.
    :param policy: see :func:`begin_write`.
    :param heartbeat: how this writer shows that it is alive.
    :param operation_key: see :func:`begin_write`.
    :param is_alive: asked before every beat; False gives the heartbeat up.
    :return: a writer that is planned already: :meth:`Writer.plan` is not to be called.
    :raises NoSuchInstantError: when there is no such plan, or it was completed or rolled back.
    :raises WriteConflictError: when somebody else is carrying it out.
    """
    heartbeat = heartbeat or HeartbeatSettings()
    table.check_writable()
    storage = table.storage
    commit_log = CommitLog(storage)
    publish_head(storage, commit_log)
    rollback_dead_writers(table)
    plan = _pending_plan(storage, commit_log, instant)
    info = HeartbeatInfo(
        describe_owner(),
        plan.action,
        plan.operation,
        plan.priority,
        heartbeat.heartbeat_interval,
        heartbeat.tolerable_misses,
        operation_key,
        base=plan.sequence,
    )
    if not storage.put_if_absent(heartbeat_path(instant), info.to_json()):
        raise _carried_out_already(storage, plan)
    try:
        # Asked again: it may have ended between the first look and the claim.
        _pending_plan(storage, commit_log, instant)
    except NoSuchInstantError:
        storage.delete(heartbeat_path(instant))
        raise
    beating = Heartbeat(storage, instant, info, is_alive)
    lock, base = lock or default_lock(table), Moment.at(storage, plan)
    writer = Writer(table, instant, plan.action, info, base, beating, lock, policy or ConflictPolicy())
    try:
        writer.plan(plan.file_groups, early_check=False)
    except InvalidInputError:
        beating.stop()
        raise _carried_out_already(storage, plan) from None
    return writer


def _take_instant(
    storage: Storage, commit_log: CommitLog, newest: LogEntry | None, info: HeartbeatInfo, *, later_than: str
) -> tuple[str, Moment]:
    """A requested time, and the moment on which the write is based.

    The moment is not older than the heartbeat: a cleaner that has not seen the heartbeat has decided
    on an older moment, and takes nothing that this one shows. And nothing that the moment shows
    completed later than the requested time: readers order the slices of a file group by it.
    """
    if storage.timeline_zone == LOCAL:
        # What is known of that zone may be too little, so that this clock is behind the other engine's.
        later_than = max(later_than, Timeline.load(storage).newest_completion)
    instant, newest = request_instant(storage, commit_log, newest, info, later_than=later_than)
    return instant, Moment(storage, newest, before=instant).published()


def _pending_plan(storage: Storage, commit_log: CommitLog, instant: str) -> Plan:
    for entry in commit_log.about(instant):
        if isinstance(entry, Plan) and entry.leaves_pending:
            return entry
        if instant in entry.undone or isinstance(entry, Commit):
            what = "completed" if isinstance(entry, Commit) else "rolled back"
            raise NoSuchInstantError(
                f"table {storage.root}: plan {instant} was {what} at {entry.completion_time} "
                f"by {entry.owner}; schedule another",
                instant=instant,
            )
    raise NoSuchInstantError(
        f"table {storage.root}: there is no plan {instant}; schedule one first", instant=instant
    )


def _carried_out_already(storage: Storage, plan: Plan) -> WriteConflictError:
    found = observe(storage).get(plan.instant)
    who = f" by {found.info.owner}" if found else ""
    return WriteConflictError(
        f"table {storage.root}: {plan.operation} {plan.instant} is being carried out already{who}; wait for "
        "its end",
        instant=plan.instant,
    )
