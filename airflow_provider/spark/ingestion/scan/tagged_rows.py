"""Tagging of the rows that tasks read: it finds the base file of each key (Hudi's bloom and record index).

A task sends the keys of its rows to the tasks that look them up, each key with the number of its row. These
answer with the numbers of the rows whose keys they have found. So the rows themselves are moved once, to the
files that they go into.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider.exceptions import SnapshotUnavailableError, TableServiceError, from_dict, to_dict
from airflow_provider.ingestion.file_groups import ARRIVAL, TARGET, rows_by_target
from airflow_provider.ingestion.key_lookup import Living, dead_hits, located
from airflow_provider.spark.ingestion.scan.routes import Tags
from airflow_provider.spark.ingestion.scan.source_scan import SourceScan
from airflow_provider.spark.ingestion.tagging_plan import TaggingPlan, in_portions
from airflow_provider.spark.numbered_tasks import numbered_tasks, numbers_of, task_number, to_numbered_tasks
from airflow_provider.spark.packed_rows import PACKED, pack, pack_error, unpacked
from airflow_provider.table.keys import location_columns, partition_paths, record_keys
from airflow_provider.table.metadata_table import file_group_indexes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_KEY, _PATH = "_key", "_path"
_FILE, _COUNT, _ROWS, _ERROR = "_file", "_count", "_rows", "_error"
_HITS = f"{TARGET} int, {_FILE} int, {_COUNT} long, {_ROWS} binary, {_ERROR} string"
_HITS_IN_ARROW = pa.schema(
    {TARGET: pa.int32(), _FILE: pa.int32(), _COUNT: pa.int64(), _ROWS: pa.binary(), _ERROR: pa.string()}
)

_MOST_COUNTS = 100_000  # of files by task, until Spark adds them up

_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TaggedRows:
    """The rows of a scan whose keys were found in base files.

    :param hits: a row for each reading task and base file, with the numbers of the task's rows whose keys are
        in the file.
    :param counts: number of rows by number of the base file.
    :param gone: numbers of rows by number of the base file: their keys are in the file, but deleted by a log
        file.
    """

    hits: DataFrame
    counts: Mapping[int, int]
    gone: Mapping[int, _Numbers] = field(default_factory=dict)

    def by_task(self, tasks: int) -> DataFrame:
        """The hits, moved to the tasks whose rows they are of.

        :param tasks: number of the tasks that read the rows.
        """
        return to_numbered_tasks(self.hits, self.hits[TARGET], tasks)

    def tags(self, targets: Sequence[int]) -> Callable[[Iterable[pa.RecordBatch]], Tags]:
        """The function that makes :class:`Tags` of a task's hits.

        :param targets: number of the target of each base file; -1 for files whose rows are left out.
        """
        gone = self.gone

        def of(batches: Iterable[pa.RecordBatch]) -> Tags:
            return Tags.of((targets[file], _without(rows, gone.get(file))) for file, rows in _hits(batches))

        return of


def tag_rows(
    spark: SparkSession,
    scan: SourceScan,
    plan: TaggingPlan,
    persist: Callable[[DataFrame], DataFrame],
    living: Living | None = None,
) -> TaggedRows:
    """Look up the keys of a scan's rows, in the record index if the plan has no bundles of base files.

    :param spark: the session.
    :param scan: the scan; its rows have the column :data:`ARRIVAL`.
    :param plan: the base files and indexes to search.
    :param persist: keeps a DataFrame in Spark's cache until the end of the write.
    :param living: see :meth:`~airflow_provider.ingestion.incoming_rows.IncomingRows.find`.
    :raises InvalidRecordKeyError: when the table has a record index, and a key is in another partition, or
        comes for two partitions.
    :raises SnapshotUnavailableError: when the record index no longer has the snapshot of the write.
    """
    keys = numbered_tasks(spark, len(scan.tasks)).mapInArrow(_key_task(scan, plan), PACKED)
    hits = persist(to_numbered_tasks(keys, keys[TARGET], plan.tasks).mapInArrow(_lookup_task(plan), _HITS))
    found = hits.select(_FILE, _COUNT, _ERROR)
    if len(scan.tasks) * len(plan.files) > _MOST_COUNTS:
        found = found.groupBy(_FILE, _ERROR).agg({_COUNT: "sum"}).withColumnRenamed(f"sum({_COUNT})", _COUNT)
    counts: dict[int, int] = {}
    for row in found.toArrow().to_pylist():
        if row[_ERROR] is not None:
            raise from_dict(json.loads(row[_ERROR]))
        counts[row[_FILE]] = counts.get(row[_FILE], 0) + row[_COUNT]
    tagged = TaggedRows(hits, counts)
    partitions = [plan.files[number].partition_path for number in counts]
    if living is None or len(partitions) == len(set(partitions)):
        return tagged
    return _without_the_dead(tagged, scan, plan, living)


def _key_task(
    scan: SourceScan, plan: TaggingPlan
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow`` that sends the keys of a task's rows to the tasks that look them up."""
    names, count = location_columns(plan.config), plan.tasks

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            for task in numbers_of(batches):
                for rows in scan.batches(task, names, numbered=True):
                    yield from map(pack, _sent(rows.combine_chunks()))
        except TableServiceError as error:
            yield pack_error(0, error)

    def _sent(rows: pa.Table) -> Iterator[list[tuple[int, pa.Table]]]:
        paths = partition_paths(rows, plan.config).dictionary_encode()
        keys = record_keys(rows, plan.config)
        sent = pa.table({ARRIVAL: rows[ARRIVAL], _KEY: keys, _PATH: paths})
        if not plan.bundles:
            groups = pa.array(file_group_indexes(keys, count))
            yield list(rows_by_target(sent.append_column(TARGET, groups)))
            return
        bundles = [plan.of_partition.get(path, ()) for path in paths.dictionary.to_pylist()]
        sent = sent.drop_columns([_PATH]).append_column(TARGET, paths.indices)
        parts = list(rows_by_target(sent))
        for turn in range(max(map(len, bundles), default=0)):  # each turn sends a key once
            yield [(bundles[code][turn], part) for code, part in parts if turn < len(bundles[code])]

    return run


def _lookup_task(plan: TaggingPlan) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow`` that looks up keys; the number of Spark's partition is its bundle's, or
    that of the record index's file group."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        look = _in_files if plan.bundles else _in_record_index
        try:
            for file, rows in look(plan, unpacked(batches)):
                yield from _answers(file, rows)
        except TableServiceError as error:
            yield _answer(error=json.dumps(to_dict(error)))

    return run


def _in_files(plan: TaggingPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, _Numbers]]:
    bundle = plan.bundles[task_number()]
    blooms = plan.blooms(bundle)
    for rows in in_portions(batches):
        keys = rows[_KEY].combine_chunks()
        numbers = rows[ARRIVAL].to_numpy()
        for file in bundle:
            yield file, numbers[plan.keys_in_file(file, keys, blooms)]


def _in_record_index(plan: TaggingPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, _Numbers]]:
    came = list(batches)  # all rows of a key are here
    if not came or plan.indexes is None:
        return
    rows = pa.Table.from_batches(came).unify_dictionaries().combine_chunks()
    found = located(plan.indexes, rows[_KEY].combine_chunks(), rows[_PATH].combine_chunks())
    files = {base_file.file_group: number for number, base_file in enumerate(plan.files)}
    if found is None or not all(group in files for group, _ in found):
        raise SnapshotUnavailableError(
            f"table {plan.storage.root}: the record index was compacted, or dropped, while keys were looked "
            "up in it; run the write again"
        )
    numbers = rows[ARRIVAL].to_numpy()
    for group, positions in found:
        yield files[group], numbers[positions]


# --- hits -----------------------------------------------------------------------------------


def _answers(file: int, rows: _Numbers) -> Iterator[pa.RecordBatch]:
    """The hits in a base file, for each task that has read some of the rows."""
    tasks = rows >> SourceScan.ROW_BITS
    for task in np.unique(tasks).tolist():
        yield _answer(task, file, rows[tasks == task])


def _answer(
    task: int = 0, file: int = -1, rows: _Numbers | None = None, error: str | None = None
) -> pa.RecordBatch:
    found = b"" if rows is None else rows.tobytes()
    count = 0 if rows is None else len(rows)
    row = {TARGET: task, _FILE: file, _COUNT: count, _ROWS: found, _ERROR: error}
    return pa.RecordBatch.from_pylist([row], _HITS_IN_ARROW)


def _hits(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, _Numbers]]:
    for batch in batches:
        for file, rows in zip(batch.column(_FILE).to_pylist(), batch.column(_ROWS), strict=True):
            yield file, np.frombuffer(rows.as_buffer(), np.int64)


def _without(rows: _Numbers, gone: _Numbers | None) -> _Numbers:
    return rows if gone is None else np.setdiff1d(rows, gone)


# --- keys in several files -------------------------------------------------------------------

_SEVERAL = f"{ARRIVAL} long, {_FILE} int, {_KEY} string"


def _without_the_dead(tagged: TaggedRows, scan: SourceScan, plan: TaggingPlan, living: Living) -> TaggedRows:
    """See :func:`~airflow_provider.ingestion.key_lookup.without_the_dead`. Such keys are few."""
    found = tagged.by_task(len(scan.tasks)).mapInArrow(_several_task(scan, plan), _SEVERAL).toArrow()
    if not found.num_rows:
        return tagged
    numbers, first, positions = np.unique(found[ARRIVAL].to_numpy(), return_index=True, return_inverse=True)
    keys = found[_KEY].combine_chunks().take(pa.array(first))
    at = {file: positions[found[_FILE].to_numpy() == file] for file in sorted(set(found[_FILE].to_pylist()))}
    dead = dead_hits({plan.files[file]: each for file, each in at.items()}, keys, living)
    gone = {file: numbers[out] for file in at if len(out := dead.get(plan.files[file], ()))}
    counts = {file: count - len(gone.get(file, ())) for file, count in tagged.counts.items()}
    return replace(tagged, counts={file: count for file, count in counts.items() if count}, gone=gone)


def _several_task(
    scan: SourceScan, plan: TaggingPlan
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow`` that names the keys that are in several base files."""
    names = location_columns(plan.config)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        hits = list(_hits(batches))
        rows, counts = np.unique(np.concatenate([each for _, each in hits]), return_counts=True)
        several = rows[counts > 1]
        if not len(several):
            return
        for table in scan.batches(task_number(), names, numbered=True):
            chosen = table.filter(pa.array(np.isin(table[ARRIVAL].to_numpy(), several)))
            numbers = chosen[ARRIVAL].to_numpy()
            keys = record_keys(chosen.combine_chunks(), plan.config)
            for file, found in hits:
                here = np.isin(numbers, found)
                columns = [
                    pa.array(numbers[here]),
                    pa.repeat(pa.scalar(file, pa.int32()), int(here.sum())),
                    keys.filter(pa.array(here)),
                ]
                yield pa.RecordBatch.from_arrays(columns, [ARRIVAL, _FILE, _KEY])

    return run
