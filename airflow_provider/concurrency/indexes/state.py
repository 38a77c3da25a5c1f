"""The indexes of a table, from its properties and the files of its metadata table.

The newest entry of the commit log names the indexes too, as of its moment. Another Hudi writer, which knows
no log, may make, change and drop indexes between two entries. So each entry has a digest of the table's
properties. If the properties have changed since, the indexes are looked up anew. Only the log says which plan
builds an index that is not complete.

Sources: ``HoodieTableMetadataUtil.getPartitionLatestFileSlices`` and ``HoodieBackedTableMetadataWriter`` of
Apache Hudi.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from airflow_provider.concurrency.log import CommitLog, IndexState, LogEntry
from airflow_provider.exceptions import CorruptTableError, WriteConflictError
from airflow_provider.table.metadata_table import (
    made_file_groups,
    metadata_storage,
    unsupported_indexes,
    unsupported_indexes_error,
)
from airflow_provider.table.properties import PROPERTIES_PATH, TableConfig, parse_properties
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import Timeline


class TableIndexes(NamedTuple):
    """The indexes of a table at one moment.

    :param kept: the indexes to which every commit logs, or will log once their build has begun.
    :param unsupported_indexes: partitions of the metadata table that this package does not maintain.
    :param properties: digest of the table's properties, see :attr:`LogEntry.properties`.
    """

    kept: tuple[IndexState, ...]
    unsupported_indexes: tuple[str, ...]
    properties: str

    def for_writing(self, location: str) -> tuple[IndexState, ...]:
        """The maintained indexes, if the table has no others.

        :param location: the table's path or URL.
        :raises UnsupportedTableError: when the table has an index that this package does not maintain.
        """
        if self.unsupported_indexes:
            raise unsupported_indexes_error(location, self.unsupported_indexes)
        return self.kept


def table_indexes(storage: Storage, commit_log: CommitLog, newest: LogEntry | None) -> TableIndexes:
    """The indexes that a table has now.

    :param storage: the table's storage.
    :param commit_log: the table's commit log.
    :param newest: the log's newest published entry; None for an empty log.
    :raises CorruptTableError: when the table's properties, or the definitions of its indexes, cannot be read.
    """
    content = read_properties(storage)
    digest = hashlib.blake2b(content, digest_size=8).hexdigest()
    if newest is not None and newest.properties == digest and newest.indexes is not None:
        return TableIndexes(newest.indexes, (), digest)
    known = _said(commit_log, newest)
    config = TableConfig.from_properties(parse_properties(content.decode()))
    named = {*config.metadata_partitions, *config.inflight_metadata_partitions}
    foreign = unsupported_indexes(storage, named) if named else []
    return TableIndexes(_looked_at(storage, config, known, named.difference(foreign)), tuple(foreign), digest)


def read_properties(storage: Storage) -> bytes:
    """The table's properties, also while another Hudi writer replaces them.

    :param storage: the table's storage.
    :raises FileNotFoundError: when there are none.
    """
    try:
        return storage.read(PROPERTIES_PATH)
    except FileNotFoundError:
        # HoodieTableConfig.modify puts a backup, deletes the file, and writes it anew.
        try:
            return storage.read(_BACKUP_PATH)
        except FileNotFoundError:
            return storage.read(PROPERTIES_PATH)


_BACKUP_PATH = f"{PROPERTIES_PATH}.backup"


def check_made(location: str, index: IndexState) -> None:
    """Make sure that an index has file groups, so that it can be logged to.

    :param location: the table's path or URL.
    :param index: one of the table's indexes.
    :raises WriteConflictError: when another Hudi writer is just making them.
    :raises CorruptTableError: when they are gone.
    """
    if index.file_groups:
        return
    if index.is_complete:
        raise CorruptTableError(
            f"table {location}: its properties name the index {index.partition}, whose files are gone; drop "
            "it, and build it again",
            location=location,
            index=index.partition,
        )
    raise WriteConflictError(
        f"table {location}: another Hudi writer is just beginning to build the index {index.partition}; "
        "run the write again",
        index=index.partition,
    )


def _said(commit_log: CommitLog, newest: LogEntry | None) -> Sequence[IndexState]:
    if newest is None:
        return ()
    if newest.indexes is not None:
        return newest.indexes
    # The newest entries are of a release that knew no indexes.
    return next((each.indexes for each in commit_log.backwards() if each.indexes is not None), ())


def _looked_at(
    storage: Storage, config: TableConfig, known: Sequence[IndexState], named: Iterable[str]
) -> tuple[IndexState, ...]:
    metadata_table = metadata_storage(storage)
    by_name = {each.partition: each for each in known}
    # The properties do not name a planned index yet.
    planned = {each.partition for each in known if not each.is_complete}
    named = set(named)
    found = []
    for partition in dict.fromkeys([*by_name, *sorted(named)]):
        if partition not in named | planned:
            continue
        count, made = made_file_groups(metadata_table, partition)
        before, is_complete = by_name.get(partition), partition in config.metadata_partitions
        if before is not None and _is_same(before, count, made):
            found.append(before._replace(is_complete=is_complete))
        elif partition in named:
            maker = made[-1] if made else ""
            ready = is_complete or Timeline.load(metadata_table).find(maker) is not None
            found.append(IndexState(partition, "", count if ready else 0, is_complete, maker))
    return tuple(found)


def _is_same(before: IndexState, count: int, made: Collection[str]) -> bool:
    """Whether a partition has the file groups that the log knows, and not others that were made since."""
    # A compaction deletes the files that name the maker. Entries of earlier releases do not name it for an
    # index of another Hudi writer.
    known = before.instant or before.made
    return before.file_groups == count and (not made or not known or known in made)
