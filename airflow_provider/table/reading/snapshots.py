"""Reading a table without Spark: a snapshot as a pyarrow dataset."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from airflow_provider.table.file_groups import BaseFile, FileSlice, ValidWriteIds, looking_again
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.reading.log_merge import SliceReader
from airflow_provider.table.reading.row_ids import RowIdMaker
from airflow_provider.table.reading.slices import slices_of_query
from airflow_provider.table.schema import TableSchema, with_meta_columns, without_meta_columns
from airflow_provider.table.skipping import (
    Selection,
    Where,
    expression,
    select_files,
)
from airflow_provider.table.timeline import has_never_changed

if TYPE_CHECKING:
    import pyarrow.dataset as ds

_FILES_A_COMMIT = 4  # the metadata of a commit takes as long to read as so many footers


def snapshot(
    table: HudiTable,
    as_of: str | None = None,
    *,
    valid_write_ids: ValidWriteIds | None = None,
    where: Where | None = None,
    meta_columns: bool = False,
    row_ids: bool = False,
) -> ds.Dataset:
    """The rows of a table at one moment.

    Several tables at one moment, each transaction wholly or not at all::

        state = metastore.read_snapshot([("lake", "flights"), ("lake", "delays")])
        snapshot(flights, valid_write_ids=state.tables["lake.flights"].write_ids)
        snapshot(delays, valid_write_ids=state.tables["lake.delays"].write_ids)

    The rows of a query, from the files that the table's indexes do not skip::

        snapshot(flights, where=[("dep_delay", ">", 300), ("origin", "in", ["JFK", "EWR"])])

    :param table: the table.
    :param as_of: the requested or completion time of a commit, for the moment right after it completed; or
        any other instant time; now when None.
    :param valid_write_ids: see :meth:`HudiTable.select_files`.
    :param where: keeps the rows for which it is true, see :data:`~airflow_provider.table.skipping.Where`.
    :param meta_columns: whether Hudi's five meta columns are part of the schema.
    :param row_ids: whether the virtual columns ``row_id`` and ``current_write_id`` are part of the schema,
        see :mod:`airflow_provider.table.reading.row_ids`. A scan makes those that it is asked for.
    :return: a dataset over the snapshot's files, which later writes do not change. A scan of a merge-on-read
        table merges the log files, and holds those of one file slice in memory, up to
        ``hoodie.memory.merge.max.size``.
    :raises NoSuchInstantError: when no commit had completed at ``as_of``.
    :raises SnapshotUnavailableError: when the files cannot tell apart the visible and the invisible rows.
    :raises InvalidInputError: when ``where`` cannot be evaluated over the table's columns, or one of these
        has the name of a virtual column that is asked for.
    :raises UnsupportedTableError: for a merge-on-read table that merges versions in an unknown way; or when
        row ids are asked for and the table's rows do not say which commit wrote them.
    :raises NoWriteIdError: by a scan, when row ids are asked for and a commit that wrote some of the rows has
        no write id.
    """
    if row_ids:
        from airflow_provider.table.reading.rows_with_ids import RowsWithIds

        rows = snapshot(table, as_of, valid_write_ids=valid_write_ids, where=where, meta_columns=True)
        own = rows.schema.names if meta_columns else without_meta_columns(rows.schema).names
        return RowsWithIds(rows, RowIdMaker.of(table, rows.schema.names), own)
    if table.is_merge_on_read:
        return _merged(table, as_of, valid_write_ids, where, meta_columns)
    found, schema = table.select_rows(where, as_of, valid_write_ids=valid_write_ids)
    return _of_base_files(table, found, schema, where, meta_columns)


@looking_again
def read_optimized(
    table: HudiTable, as_of: str | None = None, *, where: Where | None = None, meta_columns: bool = False
) -> ds.Dataset:
    """The rows in a table's base files: for a merge-on-read table its rows at the last compactions.

    This is Hudi's read-optimized query. It is as fast as a read of a copy-on-write table, and as old as the
    newest base file of each file group. For a copy-on-write table it is the snapshot.

    :param table: the table.
    :param as_of: see :func:`snapshot`.
    :param where: see :func:`snapshot`.
    :param meta_columns: see :func:`snapshot`.
    :return: a dataset over the base files.
    :raises NoSuchInstantError: when no commit had completed at ``as_of``.
    :raises SnapshotUnavailableError: when a clean has deleted one of the files.
    :raises InvalidInputError: when ``where`` cannot be evaluated over the table's columns.
    """
    view = table.readable_view(as_of)
    schema = table.schema_on(view.timeline)
    found = select_files(view, table.config, schema.columns, where)
    return _of_base_files(table, found, schema, where, meta_columns)


def _of_base_files(
    table: HudiTable, found: Selection, schema: TableSchema, where: Where | None, meta_columns: bool
) -> ds.Dataset:
    # Imported here: it imports pandas, which takes a second.
    from airflow_provider.table.reading.rows import rows_of

    paths = [base_file.path for base_file in found.base_files]
    columns = with_meta_columns(schema.columns) if meta_columns else schema.columns
    return rows_of(
        table.storage,
        paths,
        schema,
        meta_columns=meta_columns,
        has_never_changed=has_never_changed(schema, table.config),
        where=None if where is None else expression(where, columns),
        count=partial(rows_by_commits, table, found.base_files),
    )


def rows_by_commits(table: HudiTable, base_files: Iterable[BaseFile]) -> int | None:
    """The number of rows in base files by ``numWrites`` of their commits, so that no file is opened.

    :param table: the table.
    :param base_files: the files.
    :return: None when the footers have to tell: a commit is archived, it does not name a file or counts no
        row in it, or the footers are read sooner.
    """
    paths: dict[str, set[str]] = {}
    for each in base_files:
        paths.setdefault(each.instant, set()).add(each.path)
    if len(paths) * _FILES_A_COMMIT > sum(map(len, paths.values())):
        return None
    timeline, rows = table.timeline(), 0
    commits = {commit.requested_time: commit for commit in timeline.commits()}
    if not paths.keys() <= commits.keys():
        return None
    for instant, of_instant in paths.items():
        with suppress(FileNotFoundError):  # it has just been archived
            stats = timeline.commit_metadata(commits[instant]).write_stats
            written = {each.path: each.num_writes for each in stats if each.path in of_instant}
            if len(written) == len(of_instant) and all(written.values()):
                rows += sum(written.values())
                continue
        return None
    return rows


@looking_again
def select_slices(
    table: HudiTable,
    as_of: str | None = None,
    *,
    valid_write_ids: ValidWriteIds | None = None,
    where: Where | None = None,
) -> tuple[SliceReader, list[FileSlice]]:
    """The file slices of a merge-on-read table that a query opens, and their reader.

    It raises the errors of :func:`snapshot`.

    :param table: the table.
    :param as_of: see :func:`snapshot`.
    :param valid_write_ids: see :func:`snapshot`.
    :param where: the query's condition. Slices that cannot hold a matching row are skipped.
    """
    view = table.readable_view(as_of, valid_write_ids=valid_write_ids)
    reader = SliceReader.of(table, view)
    return reader, slices_of_query(table, view, reader, where)


def _merged(
    table: HudiTable,
    as_of: str | None,
    valid_write_ids: ValidWriteIds | None,
    where: Where | None,
    meta_columns: bool,
) -> ds.Dataset:
    from airflow_provider.table.reading.merged_rows import MergedRows

    reader, slices = select_slices(table, as_of, valid_write_ids=valid_write_ids, where=where)
    columns = reader.schema.columns
    shown = with_meta_columns(columns) if meta_columns else columns
    query = None if where is None else expression(where, shown)
    return MergedRows(reader, slices, meta_columns=meta_columns, filter=query)
