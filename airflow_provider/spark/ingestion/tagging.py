"""Tagging: it finds the file group of each key (Hudi's bloom index, non-global).

Spark sends the incoming keys to the files, not the files' keys to the rows: a task gets the incoming keys of
a partition and a bundle of its base files to search. If the table has a record index, Spark sends the keys to
the index's file groups instead, and no task opens a base file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider.exceptions import SnapshotUnavailableError
from airflow_provider.spark.ingestion.batch_profile import BatchProfile
from airflow_provider.spark.ingestion.routing import with_partition_entry
from airflow_provider.spark.ingestion.tagging_plan import TaggingPlan, in_portions
from airflow_provider.spark.numbered_tasks import task_number, to_numbered_tasks
from airflow_provider.table.keys import location_columns, partition_paths, record_keys
from airflow_provider.table.metadata_table import file_group_indexes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILE = "_file"
"""Column with the number of the base file in which a key was found."""

ELSEWHERE = -1
"""Instead of the number: the key is in another file group than those searched."""

TWICE = -2
"""Instead of the number: the key arrives for two partitions."""

_BUNDLE = "_bundle"
_GROUP = "_group"


def tag(frame: DataFrame, profile: BatchProfile, plan: TaggingPlan) -> DataFrame:
    """Look up the incoming keys in the base files of their partitions.

    :param frame: incoming rows.
    :param profile: the rows' partitions.
    :param plan: the base files to search.
    :return: key and partition columns and :data:`FILE` of every key that a file has (twice, if the key
        arrives twice).
    """
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    columns, entries = location_columns(plan.config), plan.of_partition
    narrow, entry = with_partition_entry(frame.select(*columns), profile, entries, pa.list_(pa.int32()))
    keys = narrow.select(*columns, F.explode(entry).alias(_BUNDLE))
    sent = to_numbered_tasks(keys, F.col(_BUNDLE), len(plan.bundles)).drop(_BUNDLE)
    return sent.mapInArrow(probe_task(plan), _schema(frame, columns, FILE))


def locate(frame: DataFrame, plan: TaggingPlan) -> DataFrame:
    """Look up the incoming keys in the record index.

    :param frame: incoming rows.
    :param plan: the base files by their number, and the record index.
    :return: like :func:`tag`. :data:`FILE` is :data:`ELSEWHERE` for a key that is not in a file of the row's
        partition but in another file, and :data:`TWICE` for a key that arrives for two partitions.
    """
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    columns, count = location_columns(plan.config), plan.tasks
    sent = frame.select(*columns).mapInArrow(group_task(plan, count), _schema(frame, columns, _GROUP))
    sent = to_numbered_tasks(sent, F.col(_GROUP), count).drop(_GROUP)
    return sent.mapInArrow(locate_task(plan), _schema(frame, columns, FILE))


def _schema(frame: DataFrame, columns: Sequence[str], number: str) -> str:
    types = {name: frame.schema[name].dataType.simpleString() for name in columns}
    return ", ".join([*(f"`{name}` {kind}" for name, kind in types.items()), f"{number} int"])


def group_task(
    plan: TaggingPlan, count: int
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow`` that computes the record index's file group of each key.

    :param plan: the tagging plan.
    :param count: number of file groups of the record index.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            groups = file_group_indexes(record_keys(batch, plan.config), count)
            yield batch.append_column(_GROUP, pa.array(groups, pa.int32()))

    return run


def locate_task(plan: TaggingPlan) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow`` that looks up keys in the record index.

    :param plan: the tagging plan.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if plan.indexes is None:
            raise ValueError("keys cannot be looked up without an index")
        numbers = {base_file.file_group: number for number, base_file in enumerate(plan.files)}
        seen: dict[str, str] = {}  # this task gets all rows of a key
        for rows in in_portions(batches):
            keys = record_keys(rows, plan.config)
            known = plan.indexes.locate(keys)
            if known is None:
                raise SnapshotUnavailableError(
                    f"table {plan.storage.root}: the record index was compacted, or dropped, while keys were "
                    "looked up in it; run the write again"
                )
            which, locations = known
            groups = [each.file_group for each in locations]
            files = [numbers.get(group, ELSEWHERE) for group in groups]
            paths = partition_paths(rows, plan.config).to_pylist()
            found: list[int | None] = []
            for key, path, at in zip(keys.to_pylist(), paths, which.tolist(), strict=True):
                if seen.setdefault(key, path) != path:
                    found.append(TWICE)
                elif at < 0:
                    found.append(None)
                elif groups[at].partition_path != path and not plan.moves:
                    found.append(ELSEWHERE)
                else:
                    found.append(files[at])
            hits = rows.append_column(FILE, pa.array(found, pa.int32()))
            yield from hits.filter(pc.is_valid(hits[FILE])).to_batches()

    return run


def probe_task(plan: TaggingPlan) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow`` that searches files; a partition's number is its bundle's.

    :param plan: the tagging plan.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        bundle = plan.bundles[task_number()]
        blooms = plan.blooms(bundle)
        for rows in in_portions(batches):
            keys = record_keys(rows, plan.config)
            for number in bundle:
                hits = rows.filter(pa.array(plan.keys_in_file(number, keys, blooms)))
                numbers = pa.array(np.full(hits.num_rows, number, np.int32))
                yield from hits.append_column(FILE, numbers).to_batches()

    return run
