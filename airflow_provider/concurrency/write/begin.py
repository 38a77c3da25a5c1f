"""Beginning a write: finish what dead writers left, take a requested time, and read the base."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from airflow_provider.concurrency.commit import Moment, publish_head
from airflow_provider.concurrency.conflicts import (
    ConflictPolicy,
    check_no_unfinished_write,
    mark_open_transaction,
    unmark_open_transaction,
    warn_of_other_writers,
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
from airflow_provider.concurrency.write.write_transaction import WriteTransaction
from airflow_provider.concurrency.write.writer import Writer
from airflow_provider.exceptions import (
    InvalidInputError,
    NoSuchInstantError,
    UnfinishedWriteError,
    UnsupportedTableError,
    WriteConflictError,
)
from airflow_provider.locks import LockProvider, default_lock
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.properties import LOCAL
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import (
    Action,
    Instant,
    State,
    Timeline,
    instant_path,
    newest_archived,
    requested_metadata,
)


def begin_write(
    table: HudiTable,
    *,
    operation: str,
    action: Action = Action.COMMIT,
    settings: WriteSettings | None = None,
    lock: LockProvider | None = None,
    operation_key: str | None = None,
    is_alive: Callable[[], bool] | None = None,
    transaction: WriteTransaction | None = None,
    losses: int = 0,
) -> Writer:
    """Begin a write: finish what dead writers left, take a requested time, and start the heartbeat.

    :param table: the table.
    :param operation: Hudi's operation type, for example ``UPSERT``.
    :param action: the action on the timeline.
    :param settings: priority, conflict policy and heartbeat.
    :param lock: the table lock for the commit; the filesystem lock in the table by default.
    :param operation_key: under which :func:`find_operation` finds this write again.
    :param is_alive: called before every beat; False gives the heartbeat up.
    :param transaction: the metastore transaction that this write belongs to; none when None.
    :param losses: how often this write was begun before, and lost or gave way. After a few losses it takes a
        turn (:mod:`~airflow_provider.concurrency.conflicts.turns`).
    :return: a :class:`Writer` whose instant is on the timeline as requested.
    :raises LockTimeoutError: when a lock that other Hudi writers share is not acquired in time.
    :raises UnsupportedTableError: when this package does not write such a table, or could not undo the write
        if its transaction were aborted.
    :raises UnfinishedWriteError: when a write of another Hudi writer without a heartbeat is pending, and
        other Hudi writers do not share the lock.
    """
    settings = settings or WriteSettings()
    table.check_writable()
    storage, transaction = table.storage, transaction or WriteTransaction()
    open_txn = transaction.open_txn
    if open_txn is not None and not storage.moves_atomically:
        raise UnsupportedTableError(
            f"table {table.location} cannot be written in transaction {open_txn}: its storage moves no file "
            "in one step, so that a commit could not be undone; write it in a transaction of its own",
            location=table.location,
        )
    commit_log = CommitLog(storage)
    before_rollbacks = None
    if not all(heartbeat.alive for heartbeat in observe(storage).values()):
        before_rollbacks = commit_log.newest()
        rollback_dead_writers(table)
    newest = commit_log.newest()
    info = HeartbeatInfo.of_this_process(
        *(action, operation, settings.priority, settings.heartbeat),
        operation_key=operation_key,
        base=newest.sequence if newest else 0,
    )
    lock, policy, instant = lock or default_lock(table), settings.policy, ""
    # The other engine takes the present millisecond under the lock, and releases the lock only once the
    # millisecond is on the timeline. Without the lock both could take the same one.
    with lock if lock.excludes_hudi and not lock.is_held() else nullcontext():
        while True:
            instant, base = _take_instant(storage, commit_log, newest, info, later_than=instant)
            # Under a shared lock, the other engine cleans up lazily (``HoodieWriteConfig`` refuses anything
            # else). Its lazy cleanup can roll back a write that is older than completed commits.
            if not lock.excludes_hudi:
                try:
                    check_no_unfinished_write(storage, base.look())
                except UnfinishedWriteError:
                    storage.delete(heartbeat_path(instant))
                    raise
            # Other Hudi writers claim no time by a heartbeat, and may have taken this millisecond.
            if base.look().find(instant) is not None:
                storage.delete(heartbeat_path(instant))
                continue
            # The entry of a rollback is later than what other Hudi writers have completed before it.
            known = before_rollbacks.completion_time if before_rollbacks else base.completed_until
            warn_of_other_writers(storage, base.look(), known, lock)
            if lock.excludes_hudi:
                _ = base.timeline  # who rolls this write back without the log says so on the timeline
            heartbeat = Heartbeat(storage, instant, info, is_alive)
            writer = Writer(table, instant, action, info, base, heartbeat, lock, policy, transaction, losses)
            requested = instant_path(Instant(instant, action, State.REQUESTED))
            try:
                if open_txn is not None:
                    mark_open_transaction(storage, instant, open_txn)
                if storage.put_if_absent(requested, requested_metadata(action)):
                    archived = newest_archived(storage) if lock.excludes_hudi else ""
                    if archived < instant:
                        return writer
                    # The other engine's archival has passed this time, because nothing stood here. That
                    # engine takes every instant up to there for completed.
                    storage.delete(requested)
                    instant = archived
            except BaseException:
                writer.abort("could not begin")
                raise
            # Another Hudi writer has just taken the instant. Or an object store's client has sent the put
            # twice. On such a store the heartbeat file stays. If no process renews it, the instant is rolled
            # back once it has expired. A live writer of the other engine renews it, because it beats under
            # the same name.
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
    """Begin to carry out a plan that :func:`~airflow_provider.concurrency.schedule` has made.

    A plan is carried out once: a second executor gets an error. If the executor dies, the plan is rolled
    back, and scheduled again with a new instant. The write is based on the moment of the plan, so that a
    later commit that has touched its file groups is a conflict.

    :param table: the table.
    :param instant: the plan's requested time.
    :param lock: see :func:`begin_write`.
    :param policy: see :func:`begin_write`.
    :param heartbeat: how this writer shows that it is alive.
    :param operation_key: see :func:`begin_write`.
    :param is_alive: called before every beat; False gives the heartbeat up.
    :return: a writer that already has its plan; the caller must not call :meth:`Writer.plan`.
    :raises NoSuchInstantError: when there is no such plan, or it was completed or rolled back.
    :raises WriteConflictError: when another process is carrying it out.
    :raises UnfinishedWriteError: when a write of another Hudi writer is pending without a heartbeat, was
        requested before the plan, and other Hudi writers do not share the lock.
    """
    table.check_writable()
    storage, lock = table.storage, lock or default_lock(table)
    commit_log = CommitLog(storage)
    publish_head(storage, commit_log)
    rollback_dead_writers(table)
    plan = _pending_plan(storage, commit_log, instant)
    if not lock.excludes_hudi:
        check_no_unfinished_write(storage, Timeline.load(storage), before=instant)
    info = HeartbeatInfo.of_this_process(
        *(plan.action, plan.operation, plan.priority, heartbeat),
        operation_key=operation_key,
        base=plan.sequence,
    )
    if not storage.put_if_absent(heartbeat_path(instant), info.to_json()):
        raise _carried_out_already(storage, plan)
    try:
        # Checked again, because the plan may have ended before this process claimed it.
        _pending_plan(storage, commit_log, instant)
    except NoSuchInstantError:
        storage.delete(heartbeat_path(instant))
        raise
    beating = Heartbeat(storage, instant, info, is_alive)
    base, policy = Moment.at(storage, plan), policy or ConflictPolicy()
    writer = Writer(table, instant, plan.action, info, base, beating, lock, policy)
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

    The moment is not older than the heartbeat. So a cleaner that has not seen the heartbeat has decided on an
    older moment, and deletes no file that this one shows. And every instant that the moment shows completed
    before the requested time, because readers order the slices of a file group by requested time.
    """
    if storage.timeline_zone == LOCAL:
        # The zone is only estimated, so this clock may be behind the other engine's.
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
