"""Which indexes a table has: what its properties say, and the files of its metadata table.

The commit log says it too, of the moment of its newest entry. Another Hudi writer, which knows no log, makes,
changes and drops indexes between two entries. So each entry says by which properties it holds; where the
table has others by now, its indexes are looked at anew. What the log adds is who builds one that is not
complete.

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
    :param unsupported_indexes: partitions of the metadata table that are not kept up to date here.
    :param properties: digest of the table's properties, see :attr:`LogEntry.properties`.
    """

    kept: tuple[IndexState, ...]
    unsupported_indexes: tuple[str, ...]
    properties: str

    def for_writing(self, location: str) -> tuple[IndexState, ...]:
        """Those that are kept, where these are all.

        :param location: the table's path or URL.
        :raises UnsupportedTableError: when there is one that is not kept.
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
        # HoodieTableConfig.modify: a backup is put, the file is deleted and written anew.
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
        f"table {location}: another Hudi writer begins to build the index {index.partition} in this moment; "
        "run the write again",
        index=index.partition,
    )


def _said(commit_log: CommitLog, newest: LogEntry | None) -> Sequence[IndexState]:
    if newest is None:
        return ()
    if newest.indexes is not None:
        return newest.indexes
    # Writers that know nothing of indexes were here.
    return next((each.indexes for each in commit_log.backwards() if each.indexes is not None), ())


def _looked_at(
    storage: Storage, config: TableConfig, known: Sequence[IndexState], named: Iterable[str]
) -> tuple[IndexState, ...]:
    metadata_table = metadata_storage(storage)
    by_name = {each.partition: each for each in known}
    # What is planned no property names yet.
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
    # What tells is deleted once they are compacted; earlier entries do not say it of another Hudi writer's.
    known = before.instant or before.made
    return before.file_groups == count and (not made or not known or known in made)
