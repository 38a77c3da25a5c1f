"""Routing of every row to the task of its file group, with Spark's own expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_provider.ingestion.file_groups import TARGET
from airflow_provider.spark.ingestion.batch_profile import BatchProfile

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_MOST_CASES = 48
_AS_LITERAL = (pa.types.is_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date)

_ENTRY = "_entry"


def with_partition_entry(
    frame: DataFrame, profile: BatchProfile, entries: Mapping[str, Any], arrow_type: pa.DataType
) -> tuple[DataFrame, Column]:
    """Find the entry of every row's partition.

    :param frame: rows with partition columns.
    :param profile: the rows' partitions.
    :param entries: entries by partition path; rows of other partitions get null.
    :param arrow_type: type of an entry.
    :return: the rows, perhaps with a further column, and the expression for the entry.
    """
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    names = profile.values.schema.names
    found = [entries.get(path) for path in profile.paths]
    if not names:
        return frame, _literal(found[0], arrow_type)
    kinds = profile.values.schema.types
    few = len(found) <= _MOST_CASES and not pa.types.is_nested(arrow_type)
    if few and all(any(known(kind) for known in _AS_LITERAL) for kind in kinds):
        # This saves a third of the whole shuffle compared with a join, as long as the cases are few.
        rows = zip(profile.values.to_pylist(), found, strict=True)
        cases = [(_all_equal(frame, row), _literal(entry, arrow_type)) for row, entry in rows]
        (condition, entry), *others = cases
        expression = F.when(condition, entry)
        for condition, entry in others:
            expression = expression.when(condition, entry)
        return frame, expression
    lookup = profile.values.append_column(_ENTRY, pa.array(found, arrow_type))
    renamed = frame.sparkSession.createDataFrame(
        lookup.rename_columns([*(f"_of_{name}" for name in names), _ENTRY])
    )
    condition = reduce(
        lambda one, other: one & other, [frame[name].eqNullSafe(renamed[f"_of_{name}"]) for name in names]
    )
    joined = frame.join(F.broadcast(renamed), condition, "left").drop(*(f"_of_{name}" for name in names))
    return joined, F.col(_ENTRY)


def target_of_new_rows(
    frame: DataFrame,
    profile: BatchProfile,
    shares: Mapping[str, Sequence[tuple[int, int]]],
    key_columns: Sequence[str],
) -> tuple[DataFrame, Column]:
    """The number of the target of every row with a new key.

    Rows with the same key get the same target: if a partition has several targets, a hash of the key decides.

    :param frame: the rows.
    :param profile: the rows' partitions.
    :param shares: see :class:`~airflow_provider.ingestion.file_groups.file_group_plan.FileGroupPlan`.
    :param key_columns: the record key's columns; without any, all columns decide.
    :return: the rows, perhaps with further columns, and the number's expression; null for rows
        of partitions without a share.
    """
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    if all(len(share) == 1 for share in shares.values()):
        only = {path: share[0][0] for path, share in shares.items()}
        return with_partition_entry(frame, profile, only, pa.int32())
    kind = pa.struct(
        [("numbers", pa.list_(pa.int32())), ("bounds", pa.list_(pa.int64())), ("total", pa.int64())]
    )
    entries = {}
    for path, share in shares.items():
        bounds = list(accumulate(weight for _, weight in share))
        entries[path] = {"numbers": [n for n, _ in share], "bounds": bounds[:-1], "total": bounds[-1]}
    told_apart_by = key_columns or _hashable(frame)
    frame, entry = with_partition_entry(frame, profile, entries, kind)
    hashed = F.pmod(F.xxhash64(*told_apart_by), entry["total"])
    passed = F.size(F.filter(entry["bounds"], lambda bound: bound <= hashed))
    return frame, F.when(entry.isNotNull(), F.element_at(entry["numbers"], passed + 1))


def _hashable(frame: DataFrame) -> list[Column]:
    """All columns: a row has the same hash in each evaluation; maps as text, since Spark hashes none."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    found = []
    for field in frame.schema:
        column = F.col(f"`{field.name}`")
        found.append(F.to_json(F.struct(column)) if "map<" in field.dataType.simpleString() else column)
    return found


def numbered(frame: DataFrame, target: Column, columns: Sequence[str]) -> DataFrame:
    """The rows of a write, each with the number of its target.

    :param frame: the rows.
    :param target: the number; rows without one are not part of the write.
    :param columns: the columns that the tasks need.
    :return: these columns and :data:`TARGET`.
    """
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    found = frame.select(*columns, target.cast("int").alias(TARGET))
    return found.where(F.col(TARGET).isNotNull())


def _all_equal(frame: DataFrame, row: Mapping[str, Any]) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    equal = [F.col(name).eqNullSafe(F.lit(value)) for name, value in row.items()]
    return reduce(lambda one, other: one & other, equal)


def _literal(value: Any, arrow_type: pa.DataType) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    if pa.types.is_struct(arrow_type) and value is not None:
        members = [arrow_type.field(position) for position in range(arrow_type.num_fields)]
        return F.struct(*(_literal(value[each.name], each.type).alias(each.name) for each in members))
    return F.lit(value).cast(_in_spark(arrow_type))


def _in_spark(arrow_type: pa.DataType) -> DataType:
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(arrow_type, prefer_timestamp_ntz=True)  # else it depends on Spark's version
