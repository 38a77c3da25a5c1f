"""How many file groups an index gets: Hudi's own configuration keys, and its defaults."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from airflow_provider.exceptions import InvalidInputError, UnknownOperationError
from airflow_provider.table.metadata_table.partitions import MetadataPartition, estimated_file_groups

_RECORD_INDEX = "hoodie.metadata.record.index"

_FILE_GROUPS = {
    MetadataPartition.COLUMN_STATS: "hoodie.metadata.index.column.stats.file.group.count",
    MetadataPartition.BLOOM_FILTERS: "hoodie.metadata.index.bloom.filter.file.group.count",
    MetadataPartition.PARTITION_STATS: "hoodie.metadata.index.partition.stats.file.group.count",
}

DEFAULTS: Mapping[str, float] = {
    **{key: partition.default_file_groups for partition, key in _FILE_GROUPS.items()},
    f"{_RECORD_INDEX}.min.filegroup.count": MetadataPartition.RECORD_INDEX.default_file_groups,
    f"{_RECORD_INDEX}.max.filegroup.count": 10_000,
    f"{_RECORD_INDEX}.max.filegroup.size": 1024**3,
    f"{_RECORD_INDEX}.growth.factor": 2.0,
}
"""Options of a plan, by Hudi's names: numbers of file groups; bytes; and how many times as many records are
expected as there are now."""


def index_options(given: Mapping[str, Any] | None) -> dict[str, float]:
    """All options, with the defaults for those that are not given.

    :param given: by the names in :data:`DEFAULTS`; numbers, or text of them.
    :raises UnknownOperationError: when there is no such option; names the nearest one.
    :raises InvalidInputError: when a value is no number above zero, or the least are more than the most.
    """
    found = dict(DEFAULTS)
    for name, value in (given or {}).items():
        if name not in DEFAULTS:
            nearest = difflib.get_close_matches(name, DEFAULTS, 1, 0.0)[0]
            raise UnknownOperationError(
                f"an index has no option {name!r}; the nearest is {nearest!r}", option=name
            )
        try:
            found[name] = type(DEFAULTS[name])(value)
        except (TypeError, ValueError):
            found[name] = 0
        if found[name] <= 0:
            raise InvalidInputError(f"index option {name} must be a number above zero, not {value!r}")
    least, most = (found[f"{_RECORD_INDEX}.{each}.filegroup.count"] for each in ("min", "max"))
    if least > most:
        raise InvalidInputError(
            f"index option {_RECORD_INDEX}.min.filegroup.count is {least:g}, above the maximum of {most:g}"
        )
    return found


def file_group_count(partition: MetadataPartition, records: int, options: Mapping[str, float]) -> int:
    """How many file groups an index gets; their number never changes.

    :param partition: the index.
    :param records: of the table; counts for the record index only.
    :param options: all of them.
    """
    if partition is MetadataPartition.RECORD_INDEX:
        return estimated_file_groups(
            records,
            least=int(options[f"{_RECORD_INDEX}.min.filegroup.count"]),
            most=int(options[f"{_RECORD_INDEX}.max.filegroup.count"]),
            growth=options[f"{_RECORD_INDEX}.growth.factor"],
            file_group_bytes=int(options[f"{_RECORD_INDEX}.max.filegroup.size"]),
        )
    return int(options[_FILE_GROUPS[partition]]) if partition in _FILE_GROUPS else 1
