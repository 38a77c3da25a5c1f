"""``@task.ingest``: a task that writes the rows of a function into a table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from airflow.sdk.bases.decorator import DecoratedOperator, TaskDecorator, task_decorator_factory
from airflow.sdk.definitions.context import context_merge

from airflow_provider.concurrency import WriteTransaction
from airflow_provider.exceptions import InvalidInputError
from airflow_provider.ingestion.arrow import ArrowRows
from airflow_provider.ingestion.ingest_job import IngestJob
from airflow_provider.ingestion.write_rows import write_rows
from airflow_provider.managed import ManagedWrite
from airflow_provider.operators._base import SparkOperator, TableOperator, TaskOperation
from airflow_provider.operators.ingest import IngestOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

_OF_A_SOURCE = frozenset({"source", "source_format", "source_options", "missing_source"})
_OF_SPARK = frozenset(SparkOperator.template_fields) - frozenset(TableOperator.template_fields)


def ingest_task(python_callable: Callable[..., Any] | None = None, **kwargs: Any) -> TaskDecorator:
    """``@task.ingest``: write the rows that a function returns into a table, without Spark.

    ::

        @task.ingest(table="lake.fares", operation="upsert", retries=3)
        def fares(ds_nodash=None) -> pa.Table:
            return pa.Table.from_pylist(requests.get(URL, timeout=60).json())

    The function returns an Arrow table, a pandas or another data frame that speaks Arrow, or a list of dicts.
    The rows are in the task's memory. Transaction, events, conflicts, retries, asset and result are those of
    :class:`~airflow_provider.operators.IngestOperator`. A retry whose earlier try has committed returns that
    try's result, and does not call the function.

    :param python_callable: the function; Airflow passes it.
    :param kwargs: arguments of :class:`~airflow_provider.operators.IngestOperator`, ``table`` first, except
        those for the source and for Spark.
    :raises InvalidInputError: when an argument of a source or of Spark is given.
    """
    return task_decorator_factory(
        python_callable=python_callable, decorated_operator_class=IngestDecoratedOperator, **kwargs
    )


class IngestDecoratedOperator(DecoratedOperator, IngestOperator):
    """The operator behind :func:`ingest_task`.

    :param python_callable: returns the rows.
    :param op_args: its positional arguments (templated).
    :param op_kwargs: its keyword arguments (templated).
    """

    custom_operator_name = "@task.ingest"
    template_fields: Sequence[str] = (
        *DecoratedOperator.template_fields,
        *(name for name in IngestOperator.template_fields if name not in _OF_A_SOURCE | _OF_SPARK),
    )
    template_fields_renderers: ClassVar[dict[str, str]] = dict(DecoratedOperator.template_fields_renderers)

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Collection[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if unusable := sorted(kwargs.keys() & (_OF_A_SOURCE | _OF_SPARK)):
            raise InvalidInputError(
                f"@task.ingest writes what the function returns, in the task's own process; leave out: "
                f"{', '.join(unusable)}"
            )
        super().__init__(
            python_callable=python_callable, op_args=op_args, op_kwargs=op_kwargs, source=(), **kwargs
        )
        self._context: Context | None = None

    def _work(self, context: Context) -> dict[str, Any]:
        self._context = context
        return super()._work(context)

    def _ingest(self, managed: ManagedWrite, operation: TaskOperation, job: IngestJob) -> dict[str, Any]:
        table, rows = managed.table, list[ArrowRows]()

        def write(transaction: WriteTransaction) -> dict[str, Any]:
            return write_rows(
                replace(job, transaction=transaction),
                table,
                rows[0],
                is_alive=lambda: not self._is_killed,
            )

        return managed.run(write, prepare=lambda: rows.append(ArrowRows.of(job, table, self._returned())))

    def _returned(self) -> pa.Table:
        context = dict(self._context or {})
        context_merge(context, self.op_kwargs)  # type: ignore[arg-type]
        returned = self.python_callable(*self.op_args, **self.determine_kwargs(context))
        table = _as_arrow(returned)
        self.log.info("%s returned %d rows", getattr(self.python_callable, "__name__", "it"), table.num_rows)
        return table


def _as_arrow(returned: Any) -> pa.Table:
    if isinstance(returned, pa.Table):
        return returned
    if type(returned).__module__.partition(".")[0] == "pandas":
        # A pandas index does not become a column, unless the function calls reset_index().
        return pa.Table.from_pandas(returned, preserve_index=False)
    if hasattr(returned, "__arrow_c_stream__"):
        return pa.table(returned)
    if isinstance(returned, list | tuple) and all(isinstance(row, Mapping) for row in returned):
        return pa.Table.from_pylist(list(returned))
    raise InvalidInputError(
        "a function of @task.ingest returns an Arrow table, a data frame that speaks Arrow, or a list of "
        f"dicts, not {type(returned).__name__}"
    )
