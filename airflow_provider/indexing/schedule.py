"""Planning indexes (RFC-45, "Schedule Indexing").

The plan is an entry in the commit log. Every commit after it logs to the new indexes, and no commit before it
does. The publication of that entry creates the file groups, under the same lock. So a plan that failed leaves
no file.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from airflow_provider.concurrency import CommitLog, pending_instants, rollback_dead_writers
from airflow_provider.concurrency.commit import IndexChange, Moment, change_indexes, publish_head
from airflow_provider.concurrency.indexes import COLUMNS, INDEX, current_indexes
from airflow_provider.concurrency.log import IndexState
from airflow_provider.exceptions import InvalidInputError, UnknownOperationError
from airflow_provider.indexing.catch_up import base_instant, is_foreign
from airflow_provider.indexing.options import file_group_count, index_options
from airflow_provider.locks import LockProvider, default_lock
from airflow_provider.table.file_groups import BaseFile
from airflow_provider.table.files import BaseFileReader
from airflow_provider.table.hudi_options import IndexOptions
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata_table import (
    METADATA_FOLDER,
    MetadataPartition,
    indexed_columns,
    read_index_definitions,
)
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import encode

log = logging.getLogger(__name__)

_STATISTICS = (MetadataPartition.COLUMN_STATS, MetadataPartition.PARTITION_STATS)

_FIRST_INSTANT = "00000000000000"  # Hudi's INIT_INSTANT_TS: before the first commit

_READERS = 16  # footers that are read at the same time; each read mostly waits for the storage

_FILE_GROUP = re.compile(r"^\.?[a-z-]+-(\d{4,})-0_")


def known_indexes(names: Iterable[str]) -> list[MetadataPartition]:
    """The indexes with some names, without repetition.

    :raises UnknownOperationError: when a name is unknown; the message lists the known ones.
    :raises InvalidInputError: when there is no name.
    """
    if not isinstance(names, Iterable):
        raise InvalidInputError(f"indexes must be names of indexes, not {names!r}")
    found = []
    for name in dict.fromkeys(names):
        if name not in set(MetadataPartition):
            known = ", ".join(MetadataPartition)
            raise UnknownOperationError(f"index {name!r} is not known; known: {known}", index=name)
        found.append(MetadataPartition(name))
    if not found:
        raise InvalidInputError(f"no index is named; known: {', '.join(MetadataPartition)}")
    return found


def check_lock(table: HudiTable, lock: LockProvider) -> None:
    """Make sure that the lock excludes all other writers of the table (RFC-45: error out without one).

    Writers of this package all take the filesystem lock in the table when no other lock is configured.
    Another Hudi writer does not.

    :param table: the table.
    :param lock: the table lock.
    :raises InvalidInputError: when a write of another Hudi writer, which cannot take this lock, is in flight.
    """
    if lock.excludes_hudi:
        return
    for pending in pending_instants(table):
        if pending.alive is not False and is_foreign(table.storage, pending):
            raise InvalidInputError(
                f"table {table.location}: {pending.action} {pending.instant} is another Hudi writer's, and "
                f"{type(lock).__name__} does not keep it out; configure the lock provider that it has "
                "(hoodie.write.lock.provider), by a connection of type table_lock",
                instant=pending.instant,
            )


def schedule_index(
    table: HudiTable,
    partitions: Iterable[str],
    columns: Sequence[str] | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    lock: LockProvider | None = None,
    operation_key: str | None = None,
) -> str | None:
    """Plan indexes, as an instant that :func:`~airflow_provider.indexing.run.run_index` executes.

    From then on every commit logs to the indexes; readers use them once they are complete. The plan includes
    ``files`` if that is missing, because the other indexes need it. It leaves out indexes that exist or are
    planned.

    :param table: the table.
    :param partitions: ``files``, ``column_stats``, ``bloom_filters``, ``record_index``,
        ``partition_stats``.
    :param columns: the columns with statistics; when None, those in the options, or the first 32 columns
        whose type has an order.
    :param options: options by Hudi's names, such as numbers of file groups; they override the table's own.
    :param lock: the table lock; :func:`~airflow_provider.locks.default_lock` when None.
    :param operation_key: key by which :func:`~airflow_provider.indexing.run.end_indexing` ends what this call
        leaves if its process dies.
    :return: the plan's requested time; None when all indexes exist or are planned already.
    :raises UnknownOperationError: when an index or an option is unknown.
    :raises InvalidInputError: when a column is missing or its type has no order, the columns differ from
        those of an existing index, or the lock does not exclude another Hudi writer.
    :raises LockTimeoutError: when the table lock is not acquired in time.
    :raises UnsupportedTableError: when this package does not write such a table.
    """
    wanted, sizes = known_indexes(partitions), index_options(table, options)
    table.check_writable()
    if MetadataPartition.RECORD_INDEX in wanted:
        table.check_keeps_record_index()
    storage, lock = table.storage, lock or default_lock(table)
    if columns is not None and not set(wanted) & set(_STATISTICS):
        raise InvalidInputError(f"columns are those of column_stats; it is not among {', '.join(wanted)}")
    chosen = columns if columns is not None else sizes.columns
    indexed = indexed_columns(table.schema, chosen, most=sizes.max_columns)
    rollback_dead_writers(table)
    check_lock(table, lock)
    newest = publish_head(storage, CommitLog(storage))
    there = {each.partition for each in current_indexes(storage, CommitLog(storage), newest)}
    records = 0
    if MetadataPartition.RECORD_INDEX in set(wanted) - there:
        records = _record_count(storage, table.view().all_base_files())  # slow, so read before the lock

    def decide(moment: Moment) -> IndexChange | None:
        before = moment.indexes
        present = {each.partition for each in before}
        new = _left(storage, wanted, present, indexed if columns is not None else None)
        if not new:
            return None
        kept_columns = _columns(storage, present) or indexed
        counts = {each: _file_groups(storage, each, records, sizes) for each in new}
        upto = base_instant(moment.timeline) or _FIRST_INSTANT
        content = _plan(new, upto, kept_columns)
        return IndexChange(
            lambda instant: (*before, *(IndexState(each, instant, counts[each], False) for each in new)),
            content,
        )

    entry = change_indexes(storage, lock, decide, operation=INDEX, plans=True, operation_key=operation_key)
    if entry is None:
        log.info("table %s: %s is there or planned already", storage.root, ", ".join(wanted))
        return None
    log.info("table %s: planned indexing %s of %s", storage.root, entry.instant, ", ".join(wanted))
    return entry.instant


def _left(
    storage: Storage, wanted: Sequence[MetadataPartition], present: set[str], columns: Sequence[str] | None
) -> list[MetadataPartition]:
    """The wanted indexes that are not planned yet."""
    new = [each for each in wanted if each not in present]
    if new and MetadataPartition.FILES not in {*new, *present}:
        new = [MetadataPartition.FILES, *new]
    if MetadataPartition.PARTITION_STATS in new and MetadataPartition.COLUMN_STATS not in {*new, *present}:
        raise InvalidInputError("partition_stats sums column_stats up; name column_stats too")
    known = _columns(storage, present)
    if columns is not None and known and set(columns) != set(known):
        raise InvalidInputError(
            f"table {storage.root}: column_stats is there, of the columns {', '.join(known)}; drop it first, "
            "to build it of others"
        )
    return new


def _columns(storage: Storage, present: set[str]) -> tuple[str, ...]:
    """The columns of the existing statistics."""
    if not present & set(_STATISTICS):
        return ()
    definition = read_index_definitions(storage).get(MetadataPartition.COLUMN_STATS)
    return definition.source_fields if definition else ()


def _record_count(storage: Storage, base_files: Sequence[BaseFile]) -> int:
    def rows(base_file: BaseFile) -> int:
        try:
            with BaseFileReader(storage, base_file.path) as reader:
                return int(reader.parquet.metadata.num_rows)
        except FileNotFoundError:
            return 0  # the file was just cleaned, so its file group has a newer slice

    with ThreadPoolExecutor(_READERS) as pool:
        return sum(pool.map(rows, base_files))


def _file_groups(storage: Storage, partition: MetadataPartition, records: int, options: IndexOptions) -> int:
    # Readers count the file groups that they find. An index that is being dropped may have left some. Their
    # records are older than the new base files, so no reader reads them.
    names = storage.names(f"{METADATA_FOLDER}/{partition}")
    left = (int(match[1]) + 1 for name in names if (match := _FILE_GROUP.match(name)))
    return max([file_group_count(partition, records, options), *left])


def _plan(new: Iterable[MetadataPartition], upto: str, columns: Sequence[str]) -> bytes:
    infos = [
        {
            "version": 1,
            "metadataPartitionPath": str(each),
            "indexUptoInstant": upto,
            "extraMetadata": {COLUMNS: json.dumps(list(columns))}
            if each is MetadataPartition.COLUMN_STATS
            else {},
        }
        for each in new
    ]
    return encode("HoodieIndexPlan", {"version": 1, "indexPartitionInfos": infos})
