"""Tagging: in which file group does a key live? (Hudi's bloom index, non-global.)

Keys go to the files, not the files' keys to the rows: a task gets the incoming keys of a
partition and a bundle of its base files to look in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from airflow_provider.ingestion.key_lookup import keys_in_base_file
from airflow_provider.spark.batch_profile import BatchProfile
from airflow_provider.spark.routing import with_partition_entry
from airflow_provider.table.file_groups import BaseFile
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.keys import record_keys
from airflow_provider.table.properties import TableConfig
from airflow_provider.table.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILE = "_file"
"""Column with the number of the base file in which a key was found."""

_BUNDLE = "_bundle"
_BUNDLE_BYTES = 256 * 1024 * 1024
_MOST_BUNDLES = 16  # of a partition: its keys are sent once to each
_ROWS_A_PROBE = 1_000_000


@dataclass(frozen=True)
class TaggingPlan:
    """What the tasks that look for keys have to know.

    :param storage: the table's storage.
    :param config: the table's configuration.
    :param files: base files, by their number.
    :param bundles: numbers of the files of every task.
    """

    storage: Storage
    config: TableConfig
    files: tuple[BaseFile, ...]
    bundles: tuple[tuple[int, ...], ...]


def tag(
    frame: DataFrame, table: HudiTable, profile: BatchProfile, to_tag: Mapping[str, Sequence[BaseFile]]
) -> tuple[DataFrame, tuple[BaseFile, ...]]:
    """Look for the incoming keys in the base files of their partitions.

    :param frame: incoming rows.
    :param table: the table.
    :param profile: the rows' partitions.
    :param to_tag: base files to look in, by partition path.
    :return: key and partition columns and :data:`FILE` of every key that was found (twice, if it
        comes twice), and the files by number.
    """
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    files: list[BaseFile] = []
    bundles: list[tuple[int, ...]] = []
    of_partition: dict[str, list[int]] = {}
    for partition, live in sorted(to_tag.items()):
        for bundle in _bundled(live):
            of_partition.setdefault(partition, []).append(len(bundles))
            bundles.append(tuple(range(len(files), len(files) + len(bundle))))
            files.extend(bundle)
    columns = location_columns(table.config)
    narrow, entry = with_partition_entry(frame.select(*columns), profile, of_partition, pa.list_(pa.int32()))
    keys = narrow.select(*columns, F.explode(entry).alias(_BUNDLE))
    plan = TaggingPlan(table.storage, table.config, tuple(files), tuple(bundles))
    schema = ", ".join(
        [*(f"{name} {frame.schema[name].dataType.simpleString()}" for name in columns), f"{FILE} int"]
    )
    sent = keys.repartitionById(len(bundles), _BUNDLE).drop(_BUNDLE)
    return sent.mapInArrow(probe_task(plan), schema), plan.files


def location_columns(config: TableConfig) -> list[str]:
    """The columns that say which record a row is: partition and key."""
    return list(dict.fromkeys([*config.partition_fields, *config.record_key_fields]))


def probe_task(plan: TaggingPlan) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow``; the number of the partition is that of the bundle.

    :param plan: where to look.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            raise RuntimeError("runs only inside a Spark task")
        for rows in _portions(batches):
            for number in plan.bundles[context.partitionId()]:
                yield from _probe(plan, number, rows)

    return run


def _probe(plan: TaggingPlan, number: int, rows: pa.Table) -> Iterator[pa.RecordBatch]:
    found = keys_in_base_file(plan.storage, plan.files[number].path, record_keys(rows, plan.config))
    hits = rows.filter(pa.array(found))
    if hits.num_rows:
        numbers = pa.array(np.full(hits.num_rows, number, np.int32))
        yield from hits.append_column(FILE, numbers).to_batches()


def _bundled(live: Sequence[BaseFile]) -> list[list[BaseFile]]:
    """Files of a partition in bundles of about equal size."""
    total = sum(base_file.size for base_file in live)
    count = max(1, min(_MOST_BUNDLES, len(live), round(total / _BUNDLE_BYTES)))
    bundles: list[list[BaseFile]] = [[] for _ in range(count)]
    sizes = [0] * count
    for base_file in sorted(live, key=lambda each: (-each.size, each.file_id)):
        smallest = sizes.index(min(sizes))
        bundles[smallest].append(base_file)
        sizes[smallest] += base_file.size
    return bundles


def _portions(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += batch.num_rows
        if count >= _ROWS_A_PROBE:
            yield pa.Table.from_batches(waiting).combine_chunks()
            waiting, count = [], 0
    if count:
        yield pa.Table.from_batches(waiting).combine_chunks()
