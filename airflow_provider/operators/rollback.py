"""Rollback of dead writers now, instead of by the next writer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider.hooks.metastore import MetastoreHook
from airflow_provider.hooks.table import TableHook
from airflow_provider.hooks.task_errors import fail_unless_retryable
from airflow_provider.operators._base import flag, seconds
from airflow_provider.plugins.links import TableLink
from airflow_provider.services.failed_writes import rollback_failed_writes

if TYPE_CHECKING:
    from airflow.sdk import Context


class RollbackFailedWritesOperator(BaseOperator):
    """Rolls back writers whose heartbeat has expired, and deletes the files of rewrites reverted long ago.

    ::

        RollbackFailedWritesOperator(task_id="tidy", table="lake.flights")

    Every writer rolls back dead writers when it begins, so use this operator for tables with few writes. Like
    a writer it also aborts the metastore's expired transactions, and undoes writes of aborted transactions.
    It starts no Spark, and does not touch live writers. The task may run at any time, beside any writer.

    The result is ``table``, ``rolled_back`` (requested times of the instants), ``deleted`` (paths of data
    files, relative to the table), ``alive`` (instants that were left alone, because their writers are alive)
    and ``dry_run``.

    :param table: ``database.table``, or the table's path or URL (templated).
    :param reverted_after: the age of a revert from which the task deletes the files of the reverted rewrite.
        It must be longer than any query runs; a timedelta or seconds; None deletes none (templated).
    :param dry_run: only reports the instants and files that are due (templated).
    :param metastore_conn_id: connection of type ``table_metastore``; for a table's name (templated).
    :param storage_conn_id: see :class:`~airflow_provider.hooks.table.TableHook` (templated).
    """

    operator_extra_links = (TableLink(),)
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

    @fail_unless_retryable
    def execute(self, context: Context) -> dict[str, Any]:
        """Roll back and delete.

        :raises AirflowFailException: for input that no retry can make work; caused by the typed error.
        """
        after_seconds = seconds(self.reverted_after, "reverted_after")
        only_tell = flag(self.only_tell, "dry_run")
        hook = TableHook(self.metastore_conn_id, self.storage_conn_id)
        table = hook.get_table(self.table)
        is_registered = hook.resolve(self.table).is_registered
        done = rollback_failed_writes(
            table,
            metastore=MetastoreHook(self.metastore_conn_id).get_metastore() if is_registered else None,
            reverted_after=after_seconds,
            dry_run=only_tell,
        )
        return {"table": self.table, **done.to_dict(), "dry_run": only_tell}
