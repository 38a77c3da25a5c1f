"""Writes that meet: other writes, at chosen moments of one."""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider.concurrency import PRIORITIES
from airflow_provider.locks import InProcessLockProvider, LockHolder
from airflow_provider.services.clustering import cluster_in_process, schedule_clustering
from airflow_provider.services.clustering_plan import ClusteringSettings
from airflow_provider.table import HudiTable


class MeetingLock(InProcessLockProvider):
    """The table lock of a write that others overtake: each time before it is taken, another acts.

    :param others: what they do.
    """

    def __init__(self, *others: Callable[[], object]) -> None:
        super().__init__(f"meeting {id(self)}")
        self._others = list(others)

    def holder(self) -> LockHolder | None:
        # While somebody has it a write waits for its turn; else it would commit without.
        return LockHolder("another", 0, 0.0) if self._others else super().holder()

    def acquire(self, timeout: float | None = None) -> None:
        if self._others:
            self._others.pop(0)()
        super().acquire(timeout)


class Clustering:
    """A clustering of a partition, planned now and carried out later.

    :param table: the table.
    :param partition: path of the partition.
    :param outputs: number of new file groups.
    :param priority: of the rewrite.
    :ivar instant: of the plan; None when there was nothing to do.
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
        """Carry it out."""
        if self.instant is not None:
            cluster_in_process(self._table, self.instant)
