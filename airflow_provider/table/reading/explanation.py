"""Which indexes told a query what, and how much of the table it has to read."""

from __future__ import annotations

from typing import Any

from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata_table import MetadataPartition, UsableIndexes
from airflow_provider.table.schema import with_meta_columns
from airflow_provider.table.skipping import Where, expression, select_files


def explain(table: HudiTable, where: Where | None = None, as_of: str | None = None) -> dict[str, Any]:
    """What a query has to open, and why only that.

    :param table: the table.
    :param where: what the query asks of the rows, see :data:`~airflow_provider.table.skipping.Where`.
    :param as_of: see :meth:`~airflow_provider.table.timeline.active.Timeline.as_of`; now when None.
    :return: JSON-able: the state of every ``index`` (``usable``, ``not usable`` for this snapshot, ``in
        flight`` or ``absent``), the ``steps`` by which files were left out, ``files`` and ``bytes`` that are
        left with their ``paths``, and all there are: ``files_in_table``, ``bytes_in_table``.
    :raises InvalidInputError: when ``where`` cannot be evaluated over the table's columns.
    :raises NoSuchInstantError: when nothing had completed as of then.
    :raises UnsupportedTableError: for a merge-on-read table.
    """
    table.check_mergeable()
    view = table.view(as_of)
    everything = view.all_base_files()
    selected = select_files(view, table.config, table.schema, where, files_in_table=len(everything))
    return {
        "where": None if where is None else str(expression(where, with_meta_columns(table.schema))),
        "as_of": as_of,
        "indexes": {str(each): _state(table, view.indexes, each) for each in MetadataPartition},
        **selected.to_dict(),
        "files_in_table": len(everything),
        "bytes_in_table": sum(each.size for each in everything),
    }


def _state(table: HudiTable, indexes: UsableIndexes | None, partition: MetadataPartition) -> str:
    if partition in table.config.metadata_partitions:
        return "usable" if indexes is not None and indexes.has(partition) else "not usable"
    return "in flight" if partition in table.config.inflight_metadata_partitions else "absent"
