"""Reading a table without Spark: a snapshot as a pyarrow dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider.table.file_groups import ValidWriteIds
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.schema import with_meta_columns
from airflow_provider.table.skipping import Where, expression
from airflow_provider.table.timeline import has_never_changed

if TYPE_CHECKING:
    import pyarrow.dataset as ds


def snapshot(
    table: HudiTable,
    as_of: str | None = None,
    *,
    valid_write_ids: ValidWriteIds | None = None,
    where: Where | None = None,
    meta_columns: bool = False,
) -> ds.Dataset:
    """The rows of a table at one moment.

    Several tables as they are together, and no transaction in part::

        state = metastore.read_snapshot([("lake", "flights"), ("lake", "delays")])
        snapshot(flights, valid_write_ids=state.tables["lake.flights"].write_ids)
        snapshot(delays, valid_write_ids=state.tables["lake.delays"].write_ids)

    The rows that a query asks for, from no more files than the table's indexes leave::

        snapshot(flights, where=[("dep_delay", ">", 300), ("origin", "in", ["JFK", "EWR"])])

    :param table: the table.
    :param as_of: an instant (requested or completion time of a commit: right after it
        completed) or any instant time; now when None.
    :param valid_write_ids: see :meth:`HudiTable.select_files`.
    :param where: only rows for which this is true, see :data:`~airflow_provider.table.skipping.Where`.
    :param meta_columns: whether Hudi's five meta columns are part of the schema.
    :return: a dataset over the base files of that snapshot; it stays what it is while
        writers go on.
    :raises NoSuchInstantError: when nothing had completed as of then.
    :raises SnapshotUnavailableError: when the files cannot tell apart what is seen and what is not.
    :raises InvalidInputError: when ``where`` cannot be evaluated over the table's columns.
    :raises UnsupportedTableError: for a merge-on-read table.
    """
    # Imported here: it pulls pandas in, which would cost every import of the engine a second.
    from airflow_provider.table.reading.rows import rows_of

    found, schema = table.select_rows(where, as_of, valid_write_ids=valid_write_ids)
    paths = [base_file.path for base_file in found.base_files]
    columns = with_meta_columns(schema.columns) if meta_columns else schema.columns
    return rows_of(
        table.storage,
        paths,
        schema,
        meta_columns=meta_columns,
        has_never_changed=has_never_changed(schema, table.config),
        where=None if where is None else expression(where, columns),
    )
