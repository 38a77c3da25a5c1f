"""Ingestion of rows that are in memory, in this process."""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider.exceptions import EmptySourceError
from airflow_provider.ingestion.columns import BatchColumns, check_columns
from airflow_provider.ingestion.file_groups import (
    ARRIVAL,
    ROWS_A_WRITE,
    FileGroupPlan,
    FileGroupTask,
    Report,
    WritePlan,
)
from airflow_provider.ingestion.incoming_rows import BUCKETS, IncomingRows
from airflow_provider.ingestion.ingest_job import IngestJob
from airflow_provider.ingestion.key_lookup import (
    Living,
    comes_twice,
    is_there_already,
    keys_in_base_file,
    located,
    without_the_dead,
)
from airflow_provider.ingestion.one_commit import commit_once
from airflow_provider.ingestion.write_rows import write_rows
from airflow_provider.locks import LockProvider
from airflow_provider.metastore import AnyMetastore
from airflow_provider.table.bucket_index import BucketIndex
from airflow_provider.table.file_groups import BaseFile, FileGroupId
from airflow_provider.table.files import BloomFilter
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.keys import location_columns, partition_paths, record_keys
from airflow_provider.table.metadata_table import MetadataPartition, UsableIndexes
from airflow_provider.table.schema import conform
from airflow_provider.table.storage import Storage

log = logging.getLogger(__name__)

_TELL_EVERY_SECONDS = 10.0

_Numbers = npt.NDArray[np.int64]

_LARGE_CHUNKS = 65_536  # rows of a chunk, from which on rows stay in their chunks
_WORTH_THREADS = 50_000  # from so many rows on, threads are faster
_MANY_FILES = 64  # from so many files on, one thread encodes a file while another waits for the disk


def ingest_arrow(
    table: HudiTable | str,
    data: pa.Table,
    operation: str = "upsert",
    *,
    metastore: AnyMetastore | None = None,
    lock: LockProvider | None = None,
    is_alive: Callable[[], bool] | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Write an Arrow table's rows into a table, as one commit, without Spark.

    The rules are those of :func:`airflow_provider.spark.ingest`: the same operations, file sizes,
    errors and result.

    ::

        ingest_arrow("/srv/lake/flights", pa.Table.from_pylist(rows), "upsert")

    A table that is given by its name in a metastore is written in a transaction, as an
    :class:`~airflow_provider.operators.IngestOperator` does; see
    :class:`~airflow_provider.managed.ManagedWrite`.

    ::

        ingest_arrow("lake.flights", rows, metastore=open_metastore("sqlite:////srv/metastore.db"))

    :param table: the open table, its absolute path or URL, or ``database.table``.
    :param data: the rows. Their new columns are added to the table, and a column of the table becomes wider
        where the rows' column is wider; see :func:`~airflow_provider.table.schema.evolved`.
    :param operation: a key of :data:`~airflow_provider.ingestion.OPERATIONS`.
    :param metastore: the metastore that knows the table's name.
    :param lock: an open table lock, which many writes may use; by the setting ``lock``, or the table's
        options, when None.
    :param is_alive: called before every heartbeat; False gives the write up.
    :param settings: further fields of :class:`~airflow_provider.ingestion.IngestJob`, such as
        ``priority`` or ``operation_key``.
    :return: see :func:`~airflow_provider.ingestion.result.result_of`.
    :raises InvalidInputError: when a setting or a row is invalid; nothing was written.
    :raises TableError: when the location holds no table that can be written.
    :raises WriteConflictError: when another commit touched the same file groups first, or an
        earlier try of the same operation still runs.
    :raises CommitError: when the write ended otherwise without a commit.
    """
    if isinstance(table, HudiTable):
        job = IngestJob.of(
            table.location, operation=operation, storage_options=table.storage.options, **settings
        )
    else:
        job = IngestJob.of(table, operation=operation, **settings)

    def write(job: IngestJob, table: HudiTable) -> dict[str, Any]:
        return write_rows(job, table, ArrowRows.of(job, table, data), lock=lock, is_alive=is_alive)

    return commit_once(job, write, metastore=metastore, table=table if isinstance(table, HudiTable) else None)


def _numbers_of(rows: pa.Table) -> pa.Array:
    return pa.array(np.arange(rows.num_rows))


def _logged(plan: WritePlan, reports: Iterable[Report]) -> Iterator[Report]:
    """Pass the reports on, and log their number every few seconds."""
    logged_at = time.monotonic()
    for number, report in enumerate(reports, start=1):
        if time.monotonic() - logged_at > _TELL_EVERY_SECONDS:
            logged_at = time.monotonic()
            log.info("instant %s: %d of %d file groups written", plan.instant, number, len(plan.targets))
        yield report


def _until_an_error(reports: Iterable[Report]) -> Iterator[Report]:
    for report in reports:
        yield report
        if report.error is not None:
            return


@dataclass(frozen=True)
class _Sent:
    """Rows, and the targets that they are sent to.

    :param rows: the rows.
    :param keys: their record keys.
    :param partitions: numbers of their partitions.
    :param positions: positions among them; a row can go to several targets.
    :param targets: number of the target for each position.
    """

    rows: pa.Table
    keys: pa.Array
    partitions: _Numbers
    positions: _Numbers
    targets: _Numbers

    def by_target(self) -> Iterator[tuple[int, _Numbers | None]]:
        """The positions of the rows of each target that has any, in the order in which the rows arrived.

        They are None if all rows go to one target.
        """
        if 0 < len(self.targets) == self.rows.num_rows and (self.targets == self.targets[0]).all():
            yield int(self.targets[0]), None
            return
        order = np.lexsort((self.positions, _for_sorting(self.targets)))
        numbers, positions = self.targets[order], self.positions[order]
        borders = np.flatnonzero(np.diff(numbers, prepend=-1, append=-1))
        for begin, end in itertools.pairwise(borders.tolist()):
            yield int(numbers[begin]), positions[begin:end]

    def batches(self, positions: _Numbers | None) -> Iterator[pa.RecordBatch]:
        """Rows by their positions, in ascending order; all rows if there are none.

        The rows are taken from each chunk when a task wants them: all chunks as one would be a copy of all
        rows, made by one thread.
        """
        if positions is None:
            yield from self.rows.to_batches(max_chunksize=ROWS_A_WRITE)
            return
        begin = 0
        for chunk in self.rows.to_batches():
            end = begin + chunk.num_rows
            first, last = np.searchsorted(positions, (begin, end)).tolist()
            for here in range(first, last, ROWS_A_WRITE):
                yield chunk.take(pa.array(positions[here : min(here + ROWS_A_WRITE, last)] - begin))
            begin = end


def _for_sorting(numbers: _Numbers) -> npt.NDArray[np.integer[Any]]:
    """Numbers in a type that numpy sorts fast: it sorts two bytes by radix."""
    return numbers.astype(np.uint16) if numbers.max(initial=0) < 1 << 16 else numbers


@dataclass
class ArrowRows(IncomingRows):
    """Rows in memory that fit into a table.

    :param columns: the rows' columns, compared with the table's.
    :param rows: the rows, with the table's types.
    :param keys: record keys of the rows; row numbers, if rows get their keys when they are written.
    :param paths: partition paths.
    :param partitions: position of each row's partition in ``paths``.
    :param storage: the table's storage.
    """

    columns: BatchColumns
    rows: pa.Table
    keys: pa.Array
    paths: Sequence[str]
    partitions: _Numbers
    storage: Storage
    _sent: list[_Sent] = field(default_factory=list)

    def __post_init__(self) -> None:
        counts = np.bincount(self.partitions, minlength=len(self.paths)).tolist()
        self.counts = {path: count for path, count in zip(self.paths, counts, strict=True) if count}
        self._found: list[tuple[BaseFile, _Numbers]] = []
        self._in_buckets: tuple[int, _Numbers] = (0, np.empty(0, np.int64))

    @classmethod
    def of(cls, job: IngestJob, table: HudiTable, data: pa.Table) -> ArrowRows:
        """Check an Arrow table's rows and prepare them for a table.

        :param job: the ingestion.
        :param table: the table.
        :param data: the rows.
        :raises InvalidInputError: when a row cannot be written.
        """
        # Consecutive writes usually have the columns of the previous write. A listing of the timeline here
        # would be repeated once the write has a base.
        seen = table.columns_seen
        known = seen if seen is not None and seen.equals(data.schema) else table.schema
        columns = check_columns(job, data.schema, table, known)
        if not data.num_rows:
            raise EmptySourceError(f"the data for table {table.location} holds no row; nothing was written")
        rows, config = conform(data, columns.rows), table.config
        if rows.num_rows < _LARGE_CHUNKS * max(each.num_chunks for each in rows.columns):
            rows = rows.combine_chunks()
        located = rows.select(location_columns(config)).combine_chunks()
        keys = _numbers_of(rows) if config.generates_keys else record_keys(located, config)
        paths = partition_paths(located, config).dictionary_encode()
        if job.kind_on(table).looks_up_keys:
            rows = rows.append_column(ARRIVAL, _numbers_of(rows))
        partitions = paths.indices.to_numpy().astype(np.int64)
        return cls(columns, rows, keys, paths.dictionary.to_pylist(), partitions, table.storage)

    def find(
        self,
        base_files: Mapping[str, Sequence[BaseFile]],
        indexes: UsableIndexes | None = None,
        living: Living | None = None,
    ) -> Mapping[BaseFile, int]:
        """See :meth:`IncomingRows.find`."""
        by_index = None if indexes is None else self._located(base_files, indexes)
        self.located_by = self._looked_in(indexes) if by_index is None else MetadataPartition.RECORD_INDEX
        self._found = self._looked_up(base_files, indexes) if by_index is None else by_index
        if living is not None:
            self._found = without_the_dead(self._found, self.keys, living)
        return {base_file: len(positions) for base_file, positions in self._found}

    def check_new(self, indexes: UsableIndexes, replaced: Collection[FileGroupId] = ()) -> None:
        """See :meth:`IncomingRows.check_new`."""
        counts = self.keys.value_counts()
        repeated = counts.filter(pc.greater(counts.field("counts"), 1))
        if len(repeated):
            raise comes_twice(repeated[0]["values"].as_py())
        known = indexes.locations(self.keys.to_pylist()) or {}
        for key, location in known.items():
            if location.file_group not in replaced:
                raise is_there_already(key, location)

    def _located(
        self, base_files: Mapping[str, Sequence[BaseFile]], indexes: UsableIndexes
    ) -> list[tuple[BaseFile, _Numbers]] | None:
        """Locate keys by the record index; None where it cannot be used, or is not of the files' snapshot."""
        asked = [number for number, path in enumerate(self.paths) if path in base_files]
        chosen = np.flatnonzero(np.isin(self.partitions, asked))
        paths = pa.array(self.paths, pa.string()).take(pa.array(self.partitions[chosen]))
        found = located(indexes, self.keys.take(pa.array(chosen)), paths)
        if found is None:
            return None
        live = {base_file.file_group: base_file for files in base_files.values() for base_file in files}
        if not all(group in live for group, _ in found):
            return None
        return [(live[group], chosen[positions]) for group, positions in found]

    def _looked_up(
        self, base_files: Mapping[str, Sequence[BaseFile]], indexes: UsableIndexes | None
    ) -> list[tuple[BaseFile, _Numbers]]:
        """Locate keys in the files, except in those with bloom filters in an index."""
        asked: list[tuple[BaseFile, _Numbers, pa.Array, BloomFilter | None]] = []
        for path, files in base_files.items():
            positions = self._of_partition(path)
            keys = self.keys.take(pa.array(positions))
            blooms = (indexes and indexes.bloom_filters([each.path for each in files])) or {}
            asked.extend((each, positions, keys, blooms.get(each.path)) for each in files)

        def look(question: tuple[BaseFile, _Numbers, pa.Array, BloomFilter | None]) -> _Numbers:
            base_file, positions, keys, bloom = question
            return positions[keys_in_base_file(self.storage, base_file.path, keys, bloom)]

        if len(self.keys) < _WORTH_THREADS and len(asked) < _MANY_FILES:
            found = [look(each) for each in asked]
        else:
            with ThreadPoolExecutor(os.cpu_count(), "key-lookup") as pool:
                found = list(pool.map(look, asked))
        return [(each[0], positions) for each, positions in zip(asked, found, strict=True) if len(positions)]

    def in_buckets(self, index: BucketIndex) -> Mapping[str, Collection[int]]:
        """See :meth:`IncomingRows.in_buckets`."""
        self.located_by = BUCKETS
        numbers = index.of_rows(self.keys, self.paths, self.partitions)
        self._in_buckets = index.buckets, self.partitions * index.buckets + numbers
        found: dict[str, list[int]] = {}
        for code in np.flatnonzero(np.bincount(self._in_buckets[1])).tolist():
            found.setdefault(self.paths[code // index.buckets], []).append(code % index.buckets)
        return found

    def send(self, plan: FileGroupPlan, write_plan: WritePlan) -> list[Report]:
        """See :meth:`IncomingRows.send`."""
        sent = self._routed(plan)
        self._sent.append(sent)

        def write(target: tuple[int, _Numbers | None]) -> Report:
            number, positions = target
            task = FileGroupTask(write_plan, number, write_token=f"{number}-0-0")
            return task.run(sent.batches(positions))

        if len(sent.positions) < _WORTH_THREADS and len(write_plan.targets) < _MANY_FILES:
            return list(_logged(write_plan, _until_an_error(map(write, sent.by_target()))))
        with ThreadPoolExecutor(os.cpu_count(), "file-groups") as pool:
            try:
                return list(_logged(write_plan, _until_an_error(pool.map(write, sent.by_target()))))
            finally:
                pool.shutdown(cancel_futures=True)

    def sent_to(self, numbers: Collection[int]) -> ArrowRows:
        """See :meth:`IncomingRows.sent_to`."""
        chosen = [(sent, sent.positions[np.isin(sent.targets, list(numbers))]) for sent in list(self._sent)]
        return ArrowRows(
            self.columns,
            pa.concat_tables([each.rows.take(pa.array(at)) for each, at in chosen]).combine_chunks(),
            pa.concat_arrays([each.keys.take(pa.array(at)) for each, at in chosen]),
            self.paths,
            np.concatenate([each.partitions[at] for each, at in chosen]),
            self.storage,
            self._sent,
        )

    def unsent(self) -> ArrowRows:
        """See :meth:`IncomingRows.unsent`."""
        return replace(self, _sent=[]) if self._sent or self._found else self

    def _of_partition(self, path: str) -> _Numbers:
        """The positions of a partition's rows, in the order in which they arrived."""
        return self._by_partition[path]

    @cached_property
    def _by_partition(self) -> Mapping[str, _Numbers]:
        order = np.argsort(_for_sorting(self.partitions), kind="stable")
        ends = np.cumsum(np.bincount(self.partitions, minlength=len(self.paths)))[:-1]
        return dict(zip(self.paths, np.split(order, ends), strict=True))

    def _routed(self, plan: FileGroupPlan) -> _Sent:
        """Assign rows to targets."""
        if plan.buckets:
            return self._routed_by_buckets(plan)
        positions, targets = [], []
        is_new = np.ones(self.rows.num_rows, np.bool_)
        for base_file, found in self._found:
            is_new[found] = False
            number = plan.updates.get(base_file.file_group)
            if number is not None:
                positions.append(found)
                targets.append(np.full(len(found), number))
        for path, shares in plan.shares.items():
            new = self._of_partition(path)
            new = new[is_new[new]]
            positions.append(new)
            targets.append(self._shared_out(new, shares))
        if not positions:
            return self._going(np.empty(0, np.int64), np.empty(0, np.int64))
        return self._going(np.concatenate(positions), np.concatenate(targets))

    def _going(self, positions: _Numbers, targets: _Numbers) -> _Sent:
        return _Sent(self.rows, self.keys, self.partitions, positions, targets)

    def _routed_by_buckets(self, plan: FileGroupPlan) -> _Sent:
        count, codes = self._in_buckets
        targets = np.full(len(self.paths) * count, -1)
        for at, path in enumerate(self.paths):
            for bucket, number in plan.buckets.get(path, {}).items():
                targets[at * count + bucket] = number
        numbers = targets[codes]
        goes = np.flatnonzero(numbers >= 0)
        return self._going(goes, numbers[goes])

    def _shared_out(self, positions: _Numbers, shares: Sequence[tuple[int, int]]) -> _Numbers:
        numbers = np.array([number for number, _ in shares])
        if len(shares) == 1:
            return np.full(len(positions), numbers[0])
        # Rows with the same key go to the same target.
        keys = self.keys.take(pa.array(positions)).dictionary_encode()
        weights = np.cumsum([weight for _, weight in shares])
        place = keys.indices.to_numpy().astype(np.int64) * weights[-1] // len(keys.dictionary)
        found: _Numbers = numbers[np.searchsorted(weights[:-1], place, side="right")]
        return found
