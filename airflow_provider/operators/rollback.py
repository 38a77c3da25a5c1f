"""Undoing what died, now, without waiting for the next writer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider.concurrency import delete_reverted_files, pending_instants, rollback_dead_writers
from airflow_provider.concurrency.recovery import recover_transactions
from airflow_provider.concurrency.transactions import settle_transactions
from airflow_provider.hooks.metastore import MetastoreHook
from airflow_provider.hooks.table import TableHook
from airflow_provider.operators.failing import failing_without_retries
from airflow_provider.operators.templated import flag, seconds

if TYPE_CHECKING:
    from airflow.sdk import Context


class RollbackFailedWritesOperator(BaseOperator):
    """Rolls back the writers whose heartbeat expired, and deletes the files of long-reverted rewrites.

    ::

        RollbackFailedWritesOperator(task_id="tidy", table="lake.flights")

    Every writer does the first when it begins, so this is for tables that are written to seldom. So it does
    with the metastore's transactions that timed out, and undoes what those that were aborted wrote. No
    Spark is started, and a writer that lives is left alone. It may run at any time, beside anything.

    The result is ``table``, ``rolled_back`` (requested times of the instants), ``deleted`` (paths of data
    files, relative to the table), ``alive`` (instants that were left alone, because their writers live)
    and ``dry_run``.

    :param table: ``database.table``, or the table's path or URL (templated).
    :param reverted_after: how long a revert has to be over before the files of the rewrite that it undid
        are deleted: longer than any query runs; a timedelta or seconds; None deletes none (templated).
    :param dry_run: only tells what there is to be done (templated).
    :param metastore_conn_id: connection of type ``table_metastore``; for a table's name (templated).
    :param storage_conn_id: see :class:`~airflow_provider.hooks.table.TableHook` (templated).
    """

    template_fields: Sequence[str] = (
        "table",
        "reverted_after",
        "only_tell",
        "metastore_conn_id",
        "storage_conn_id",
    )
    ui_color = "#f5e0dc"

    def __init__(
        self,
        *,
        table: str,
        reverted_after: timedelta | float | str | None = timedelta(days=1),
        dry_run: bool | str = False,
        metastore_conn_id: str = MetastoreHook.default_conn_name,
        storage_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.reverted_after = reverted_after
        # BaseOperator has a method dry_run.
        self.only_tell = dry_run
        self.metastore_conn_id = metastore_conn_id
        self.storage_conn_id = storage_conn_id

    @failing_without_retries
    def execute(self, context: Context) -> dict[str, Any]:
        """Roll back and delete.

        :raises AirflowFailException: for input that no retry can make work; caused by the typed error.
        """
        after_seconds, only_tell = (
            seconds(self.reverted_after, "reverted_after"),
            flag(self.only_tell, "dry_run"),
        )
        hook = TableHook(self.metastore_conn_id, self.storage_conn_id)
        table = hook.get_table(self.table)
        if hook.resolve(self.table).is_registered and not only_tell:
            metastore = MetastoreHook(self.metastore_conn_id).get_metastore()
            recover_transactions(metastore, storage_options=table.storage.options)
            settle_transactions(metastore, table)
        pending = pending_instants(table)
        alive = [writer.instant for writer in pending if writer.alive]
        for writer in pending:
            self.log.info(
                "pending: %s %s by %s, priority %d, %s",
                writer.operation or writer.action,
                writer.instant,
                writer.owner,
                writer.priority,
                _described(writer.alive, writer.age_seconds),
            )
        if only_tell:
            rolled_back = [writer.instant for writer in pending if writer.alive is False]
        else:
            rolled_back = rollback_dead_writers(table)
        deleted: list[str] = []
        if after_seconds is not None:
            deleted = delete_reverted_files(table, after_seconds=after_seconds, dry_run=only_tell)
        self.log.info(
            "%s %d dead writers: %s; and %d files of reverted rewrites",
            "to be undone:" if only_tell else "undone:",
            len(rolled_back),
            ", ".join(rolled_back) or "none",
            len(deleted),
        )
        return {
            "table": self.table,
            "rolled_back": rolled_back,
            "deleted": deleted,
            "alive": alive,
            "dry_run": only_tell,
        }


def _described(alive: bool | None, age_seconds: float | None) -> str:
    if alive is None:
        return "without a heartbeat, left alone"
    return f"{'alive' if alive else 'dead'}, last beat {age_seconds or 0.0:.0f} s ago"
