"""Tagging: it finds the file group of each key (Hudi's bloom index, non-global).

Spark sends the incoming keys to the files, not the files' keys to the rows: a task gets the incoming keys of
a partition and a bundle of its base files to search. If the table has a record index, Spark sends the keys to
the index's file groups instead, and no task opens a base file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider.exceptions import SnapshotUnavailableError
from airflow_provider.ingestion.key_lookup import keys_in_base_file
from airflow_provider.spark.ingestion.batch_profile import BatchProfile
from airflow_provider.spark.ingestion.routing import with_partition_entry
from airflow_provider.table.file_groups import BaseFile
from airflow_provider.table.files import BloomFilter
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.keys import location_columns, partition_paths, record_keys
from airflow_provider.table.metadata_table import MetadataPartition, UsableIndexes, file_group_indexes
from airflow_provider.table.properties import TableConfig
from airflow_provider.table.storage import Storage

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
_BUNDLE_BYTES = 256 * 1024 * 1024
_MOST_BUNDLES = 16  # in a partition: its keys are sent once to each
_ROWS_A_PROBE = 1_000_000


@dataclass(frozen=True)
class TaggingPlan:
    """The part of the plan that tasks need for the look-up.

    :param storage: the table's storage.
    :param config: the table's configuration.
    :param files: base files by their number.
    :param bundles: numbers of the files of every task.
    :param indexes: the table's indexes, which may contain the files' keys.
    :param moves: whether a key may arrive for another partition than the one it is in.
    """

    storage: Storage
    config: TableConfig
    files: tuple[BaseFile, ...]
    bundles: tuple[tuple[int, ...], ...]
    indexes: UsableIndexes | None = None
    moves: bool = False


def tag(
    frame: DataFrame,
    table: HudiTable,
    profile: BatchProfile,
    to_tag: Mapping[str, Sequence[BaseFile]],
    indexes: UsableIndexes | None = None,
) -> tuple[DataFrame, tuple[BaseFile, ...]]:
    """Look up the incoming keys in the base files of their partitions.

    :param frame: incoming rows.
    :param table: the table.
    :param profile: the rows' partitions.
    :param to_tag: base files to search, by partition path.
    :param indexes: the table's indexes.
    :return: key and partition columns and :data:`FILE` of every key that a file has (twice, if the key
        arrives twice), and the files by number.
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
    plan = TaggingPlan(table.storage, table.config, tuple(files), tuple(bundles), indexes)
    schema = _schema(frame, columns, FILE)
    sent = keys.repartitionById(len(bundles), _BUNDLE).drop(_BUNDLE)
    return sent.mapInArrow(probe_task(plan), schema), plan.files


def locate(
    frame: DataFrame,
    table: HudiTable,
    files: Sequence[BaseFile],
    indexes: UsableIndexes,
    *,
    moves: bool = False,
) -> DataFrame:
    """Look up the incoming keys in the record index.

    :param frame: incoming rows.
    :param table: the table.
    :param files: base files, by their number.
    :param indexes: the table's indexes; the record index is usable.
    :param moves: whether a key may arrive for another partition than the one it is in.
    :return: like :func:`tag`. :data:`FILE` is :data:`ELSEWHERE` for a key that is not in a file of the row's
        partition but in another file, and :data:`TWICE` for a key that arrives for two partitions.
    """
    columns = location_columns(table.config)
    plan = TaggingPlan(table.storage, table.config, tuple(files), (), indexes, moves)
    count = indexes.file_groups(MetadataPartition.RECORD_INDEX)
    sent = frame.select(*columns).mapInArrow(group_task(plan, count), _schema(frame, columns, _GROUP))
    sent = sent.repartitionById(count, _GROUP).drop(_GROUP)
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
        for rows in _portions(batches):
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
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            raise RuntimeError("runs only inside a Spark task")
        bundle = plan.bundles[context.partitionId()]
        blooms = plan.indexes and plan.indexes.bloom_filters([plan.files[number].path for number in bundle])
        for rows in _portions(batches):
            for number in bundle:
                yield from _probe(plan, number, rows, (blooms or {}).get(plan.files[number].path))

    return run


def _probe(
    plan: TaggingPlan, number: int, rows: pa.Table, bloom: BloomFilter | None
) -> Iterator[pa.RecordBatch]:
    keys = record_keys(rows, plan.config)
    found = keys_in_base_file(plan.storage, plan.files[number].path, keys, bloom)
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
