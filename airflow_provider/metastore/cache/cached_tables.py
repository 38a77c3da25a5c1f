"""A replica's copies of tables, in bounded memory that other copies share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from cachetools import Cache, LRUCache

from airflow_provider.metastore.cache.ordered_partitions import OrderedPartitions
from airflow_provider.metastore.model import (
    PartitionInfo,
    TableInfo,
    ValidWriteIdList,
    partition_key,
)


@dataclass
class CachedTable:
    """A copy of a table, and its age. It changes only under its owner's lock.

    :param table: the table.
    :param write_ids: the write ids whose changes the copy certainly holds.
    :param event_id: the copy holds every change up to this event, and those that were applied since.
    :param tagged_at: ``write_ids`` is the state at this event; later commits come with their events.
    :param partitions: the partitions by :func:`~airflow_provider.metastore.model.partition_key`; None when
        no reader has asked for them yet.
    """

    table: TableInfo
    write_ids: ValidWriteIdList
    event_id: int
    tagged_at: int
    partitions: dict[str, PartitionInfo] | None = None

    def __post_init__(self) -> None:
        self.size = memory_of(self.table) + memory_of(self.write_ids)
        self.size += sum(map(memory_of, (self.partitions or {}).values()))
        self.stale_reads = 0
        self._ordered: OrderedPartitions | None = None

    def ordered_partitions(self) -> OrderedPartitions:
        """All partitions that the copy has now."""
        if self._ordered is None:
            self._ordered = OrderedPartitions((self.partitions or {}).values())
        return self._ordered

    def describe(self, table: TableInfo) -> None:
        """Replace the table by its new version, which may have a new name."""
        self.size += memory_of(table) - memory_of(self.table)
        self.table = table
        self.write_ids = replace(self.write_ids, table=table.full_name)

    def put_partitions(self, changed: Iterable[PartitionInfo]) -> None:
        """Add partitions, or replace those with the same values."""
        if self.partitions is None:
            return
        for one in changed:
            key = partition_key(self.table, one.values)
            before = self.partitions.get(key)
            self.size += memory_of(one) - (0 if before is None else memory_of(before))
            self.partitions[key] = one
        self._ordered = None

    def alter_partition(self, before: PartitionInfo, after: PartitionInfo) -> None:
        """Replace a partition by its new version, which may have other values."""
        self.remove_partitions([before.values])
        self.put_partitions([after])

    def remove_partitions(self, dropped: Iterable[Iterable[str | None]]) -> None:
        """Forget partitions, given by their values."""
        if self.partitions is None:
            return
        for values in dropped:
            before = self.partitions.pop(partition_key(self.table, tuple(values)), None)
            self.size -= 0 if before is None else memory_of(before)
        self._ordered = None

    def commit(self, write_id: int) -> None:
        """Record that a write id is committed; the copy holds all its changes."""
        if not self.write_ids.is_valid(write_id):
            self.write_ids = self.write_ids.with_committed(write_id)
            self.stale_reads = 0


class CachedTables:
    """Copies by table id and by name. The copy with the oldest last read is evicted first.

    :param max_bytes: roughly, the memory that the copies may take.
    """

    def __init__(self, max_bytes: int) -> None:
        self._names: dict[tuple[str, str], int] = {}
        self._by_id = _Bounded(max_bytes, self._forget_name)

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def size(self) -> int:
        """The bytes that the copies and the reservation take."""
        return int(self._by_id.currsize) + self._by_id.reserved

    @property
    def max_bytes(self) -> int:
        """The limit on :attr:`size`, in bytes."""
        return int(self._by_id.maxsize)

    def reserve(self, size: int) -> bool:
        """Reserve some of the memory for another purpose, in place of the last reservation.

        :param size: bytes.
        :return: False when the memory is smaller than this: then nothing is reserved.
        """
        fits = size <= self.max_bytes
        self._by_id.reserved = size if fits else 0
        self._by_id.make_room(0)
        return fits

    @property
    def evicted(self) -> int:
        """The number of copies that have been evicted so far."""
        return self._by_id.evicted

    def by_id(self, table_id: int) -> CachedTable | None:
        """The copy of a table; the call counts as a read."""
        return self._by_id.get(table_id)

    def peek(self, table_id: int) -> CachedTable | None:
        """The copy of a table; the call does not count as a read."""
        return self._by_id.peek(table_id)

    def by_name(self, database: str, name: str) -> CachedTable | None:
        """The copy of the table that has this name, as far as the copies know; the call counts as a read."""
        table_id = self._names.get((database.lower(), name.lower()))
        return None if table_id is None else self._by_id.get(table_id)

    def put(self, copy: CachedTable) -> bool:
        """Keep a copy, in place of a copy of the same table or of the same name.

        :return: False when the copy is larger than the whole memory.
        """
        self.remove(copy.table.id)
        name = (copy.table.database, copy.table.name)
        namesake = self._names.get(name)
        if namesake is not None:
            self.remove(namesake)
        if copy.size > self.max_bytes - self._by_id.reserved:
            return False
        self._by_id[copy.table.id] = copy
        self._names[name] = copy.table.id
        return True

    def change(self, table_id: int, change: Callable[[CachedTable], None]) -> None:
        """Change a copy, if it is here, maybe with its name and size; the call counts as a read."""
        copy = self._by_id.get(table_id)
        if copy is not None:
            self.remove(table_id)
            change(copy)
            self.put(copy)

    def remove(self, table_id: int) -> None:
        """Forget a copy, if it is here."""
        copy = self._by_id.pop(table_id, None)
        if copy is not None:
            self._forget_name(copy)

    def clear(self) -> None:
        """Forget all copies."""
        self._by_id.clear()
        self._names.clear()

    def _forget_name(self, copy: CachedTable) -> None:
        name = (copy.table.database, copy.table.name)
        if self._names.get(name) == copy.table.id:
            del self._names[name]


class _Bounded(LRUCache[int, CachedTable]):
    """A cache that reports each copy that it evicts."""

    def __init__(self, max_bytes: int, evict: Callable[[CachedTable], None]) -> None:
        super().__init__(max_bytes, getsizeof=lambda copy: copy.size)
        self._evict = evict
        self.evicted = 0
        self.reserved = 0

    def __setitem__(self, table_id: int, copy: CachedTable) -> None:
        self.make_room(copy.size)
        super().__setitem__(table_id, copy)

    def make_room(self, size: int) -> None:
        """Evict the copies with the oldest last reads, until so many bytes are free."""
        while self and self.currsize + size + self.reserved > self.maxsize:
            self.popitem()

    def peek(self, table_id: int) -> CachedTable | None:
        """As ``get``, but the call does not count as a read."""
        return Cache.__getitem__(self, table_id) if table_id in self else None

    def popitem(self) -> tuple[int, CachedTable]:
        table_id, copy = super().popitem()
        self.evicted += 1
        self._evict(copy)
        return table_id, copy


def memory_of(value: Any) -> int:
    """The memory that a value and everything in it take, in bytes."""
    if is_dataclass(value):
        parts: Iterable[Any] = [getattr(value, one.name) for one in fields(value)]
    elif isinstance(value, dict):
        parts = [part for pair in value.items() for part in pair]
    elif isinstance(value, tuple | list | frozenset):
        parts = value
    else:
        return sys.getsizeof(value)
    # An instance of a dataclass has a dictionary of its own.
    own = 0 if not is_dataclass(value) else sys.getsizeof(value.__dict__)
    return sys.getsizeof(value) + own + sum(map(memory_of, parts))
