"""Changes of a table's columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.hooks.metastore import MetastoreHook
from airflow_provider.hooks.table import TableHook
from airflow_provider.hooks.task_errors import fail_unless_retryable
from airflow_provider.operators._base import TableOperator
from airflow_provider.services.alter_table import Alteration, alter_table
from airflow_provider.services.metastore_columns import follow_columns
from airflow_provider.table import HudiTable

if TYPE_CHECKING:
    from airflow.sdk import Context


class AlterTableOperator(TableOperator):
    """Adds, widens, renames or comments columns of a table, as one commit.

    ::

        AlterTableOperator(
            task_id="alter",
            table="lake.flights",
            add={"gate": "string", "plane.seats": "int"},
            widen={"delay": "double"},
            comment={"delay": "minutes; below 0 when early"},
        )

    A load adds and widens columns by itself, if its rows have more or wider columns than the table. This
    operator may run at any time, beside any writer: a load that is running keeps the new columns. A column
    that has the wanted type, name or comment stays as it is, so the task can run again. It starts no Spark.
    If the table is given by its name, the operator also changes the metastore's columns.

    The result is ``table``, ``location``, ``instant`` and ``completion_time`` (None if nothing has changed),
    ``operation`` and ``schema_changes``.

    Arguments beside those of :class:`~airflow_provider.operators._base.TableOperator`. Name a nested column
    by its path, with ``element`` for the elements of an array and ``value`` for the values of a map:

    :param add: types of new columns, by name (templated).
    :param widen: new types, by name (templated).
    :param rename: new names, by name; the table needs ``hoodie.schema.on.read.enable=true`` (templated).
    :param comment: comments, by name (templated).
    """

    template_fields: Sequence[str] = (*TableOperator.template_fields, "add", "widen", "rename", "comment")
    ui_color = "#f5ead6"

    def __init__(
        self,
        *,
        add: Mapping[str, str] | None = None,
        widen: Mapping[str, str] | None = None,
        rename: Mapping[str, str] | None = None,
        comment: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.add = add
        self.widen = widen
        self.rename = rename
        self.comment = comment

    @fail_unless_retryable
    def execute(self, context: Context) -> dict[str, Any]:
        """Change the columns.

        :raises AirflowFailException: for an impossible change, and for a table that this package does not
            write; caused by the typed error.
        :raises WriteConflictError: when a write of another Hudi writer is unfinished.
        :raises LockTimeoutError: when the table lock is not acquired in time.
        """
        alteration = Alteration(**{name: self._given(name) for name in ("add", "widen", "rename", "comment")})
        hook = TableHook(self.metastore_conn_id, self.storage_conn_id)
        resolved = hook.resolve(self.table)
        table = HudiTable.open(resolved.location, hook.storage_options())
        result = alter_table(table, alteration, lock=self._lock(table, self._options(table)))
        if resolved.database is not None and resolved.name is not None:
            metastore = MetastoreHook(self.metastore_conn_id).get_metastore()
            follow_columns(metastore, resolved.database, resolved.name, table)
        self.log.info("%d changes of columns, instant %s", len(result["schema_changes"]), result["instant"])
        return {**result, "table": self.table}

    def _given(self, name: str) -> dict[str, str]:
        given = getattr(self, name)
        if given is not None and not isinstance(given, Mapping):
            raise InvalidInputError(f"{name} must map columns to texts, not be a {type(given).__name__}")
        return {str(column): str(text) for column, text in (given or {}).items()}
