"""Why a query opens certain files: which index skipped how many, and how much of the table is left."""

from __future__ import annotations

from collections import Counter
from typing import Any

from airflow_provider.table.file_groups import FileSystemView, looking_again
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata_table import MetadataPartition, UsableIndexes
from airflow_provider.table.reading.log_merge import SliceReader
from airflow_provider.table.reading.slices import slices_of, slices_of_query
from airflow_provider.table.schema import with_meta_columns
from airflow_provider.table.skipping import Step, Where, expression, select_files


@looking_again
def explain(table: HudiTable, where: Where | None = None, as_of: str | None = None) -> dict[str, Any]:
    """Explain which files a query opens, and which index skipped the others.

    :param table: the table.
    :param where: the query's condition on rows, see :data:`~airflow_provider.table.skipping.Where`.
    :param as_of: see :meth:`~airflow_provider.table.timeline.active.Timeline.as_of`; now when None.
    :return: JSON-able: the state of each index in ``indexes`` (``usable``, ``not usable`` for this snapshot,
        ``in flight`` or ``absent``), the ``steps`` that skipped files, the ``files``, ``bytes`` and ``paths``
        that are left, and the table's totals ``files_in_table`` and ``bytes_in_table``. For a merge-on-read
        table the files are base files and log files, and the steps skip file slices.
    :raises InvalidInputError: when ``where`` cannot be evaluated over the table's columns.
    :raises NoSuchInstantError: when no commit had completed at ``as_of``.
    :raises UnsupportedTableError: for a merge-on-read table that merges versions in an unknown way.
    """
    view = table.view(as_of)
    found = _of_slices(table, view, where) if table.is_merge_on_read else _of_base_files(table, view, where)
    return {
        "where": None if where is None else str(expression(where, with_meta_columns(table.schema))),
        "as_of": as_of,
        "indexes": {str(each): _state(table, view.indexes, each) for each in MetadataPartition},
        **found,
    }


def _of_base_files(table: HudiTable, view: FileSystemView, where: Where | None) -> dict[str, Any]:
    everything = view.all_base_files()
    selected = select_files(view, table.config, table.schema, where, files_in_table=len(everything))
    return {
        **selected.to_dict(),
        "files_in_table": len(everything),
        "bytes_in_table": sum(each.size for each in everything),
    }


def _of_slices(table: HudiTable, view: FileSystemView, where: Where | None) -> dict[str, Any]:
    steps: list[Step] = []
    everything = [path for each in slices_of(table, view, view.all_partitions()) for path in each.paths]
    slices = slices_of_query(table, view, SliceReader.of(table, view), where, steps)
    paths = [path for each in slices for path in each.paths]
    sizes: Counter[str] = Counter()  # a file that was cleaned meanwhile has no bytes
    for partition in view.all_partitions():
        sizes.update({status.path: status.size for status in table.storage.list(partition)})
    return {
        "listed_by": "folders",
        "steps": [each.to_dict() for each in steps],
        "files": len(paths),
        "bytes": sum(sizes[path] for path in paths),
        "paths": paths,
        "files_in_table": len(everything),
        "bytes_in_table": sum(sizes[path] for path in everything),
    }


def _state(table: HudiTable, indexes: UsableIndexes | None, partition: MetadataPartition) -> str:
    if partition in table.config.metadata_partitions:
        return "usable" if indexes is not None and indexes.has(partition) else "not usable"
    return "in flight" if partition in table.config.inflight_metadata_partitions else "absent"
