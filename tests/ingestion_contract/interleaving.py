"""Concurrent writes: other writes act at chosen moments of a write."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from airflow_provider.concurrency import PRIORITIES
from airflow_provider.locks import InProcessLockProvider, LockHolder
from airflow_provider.services.clustering.clustering import cluster_in_process, schedule_clustering
from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
from airflow_provider.table import HudiTable
from airflow_provider.table.storage.storage import Storage


class MeetingLock(InProcessLockProvider):
    """The table lock of a write that others overtake: another write acts before each acquisition.

    :param others: the actions of the other writes.
    """

    def __init__(self, *others: Callable[[], object]) -> None:
        super().__init__(f"meeting {id(self)}")
        self._others = list(others)

    def holder(self) -> LockHolder | None:
        # While another process holds the lock a write waits for it; otherwise the write would commit without
        # the lock.
        return LockHolder("another", 0, 0.0) if self._others else super().holder()

    def acquire(self, timeout: float | None = None) -> None:
        if self._others:
            self._others.pop(0)()
        super().acquire(timeout)


class Clustering:
    """A clustering of a partition, planned now and executed later.

    :param table: the table.
    :param partition: path of the partition.
    :param outputs: number of new file groups.
    :param priority: the priority of the rewrite.
    :ivar instant: the plan's instant; None when there was nothing to do.
    """

    def __init__(
        self,
        table: HudiTable,
        partition: str,
        *,
        outputs: int = 2,
        priority: int = PRIORITIES["table_service"],
    ) -> None:
        self._table = table
        size = sum(base_file.size for base_file in table.view().base_files(partition))
        settings = ClusteringSettings(
            table.config.record_key_fields,
            partitions=(partition,),
            target_file_size=max(1, -(-size // outputs)),
        )
        self.instant = schedule_clustering(table, settings, priority=priority, max_failures=None)

    def commit(self) -> None:
        """Execute the plan."""
        if self.instant is not None:
            cluster_in_process(self._table, self.instant)


@contextmanager
def crossing(*steps: tuple[str, Callable[[], object]]) -> Iterator[None]:
    """A context in which other writes act, one after the other, before this thread puts certain files.

    :param steps: for each step a part of the file's path, and the action before its put.
    """
    here, put_if_absent = threading.get_ident(), Storage.put_if_absent
    waiting, acting = list(steps), False

    def crossed(storage: Storage, path: str, data: bytes) -> bool:
        nonlocal acting
        if threading.get_ident() == here and not acting:
            acting = True
            try:
                if waiting and waiting[0][0] in path:
                    waiting.pop(0)[1]()
            finally:
                acting = False
        return put_if_absent(storage, path, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Storage, "put_if_absent", crossed)
        yield
    assert not waiting, "the file was never put"
