"""The number of file groups of an index, by Hudi's options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.table.hudi_options import EffectiveOptions, HudiOptions, IndexOptions
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata_table import MetadataPartition, estimated_file_groups


def index_options(table: HudiTable, given: Mapping[str, Any] | None) -> IndexOptions:
    """The options in effect for the indexes of a table.

    :param table: the table; its own options apply where ``given`` has none.
    :param given: options by Hudi's names.
    :raises UnknownOperationError: when an option is unknown; the message names the nearest one.
    :raises InvalidInputError: when a value is invalid, options contradict each other, or they disable the
        table's metadata table.
    """
    found = EffectiveOptions(HudiOptions.parse(given), table.hudi_options).options.index
    if found.enabled is False:
        raise InvalidInputError(
            f"table {table.location} is to have no metadata table, by hoodie.metadata.enable=false, and so "
            "no index; leave that out"
        )
    return found


def file_group_count(partition: MetadataPartition, records: int, options: IndexOptions) -> int:
    """The number of file groups that an index gets; it never changes.

    :param partition: the index.
    :param records: number of records of the table; it matters for the record index only.
    :param options: options of the table's indexes.
    """
    if partition is MetadataPartition.RECORD_INDEX:
        return estimated_file_groups(
            records,
            least=options.least_file_groups,
            most=options.most_file_groups,
            growth=options.growth,
            file_group_bytes=options.file_group_bytes,
        )
    return options.file_groups[partition]
