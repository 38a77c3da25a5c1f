"""The indexes of a table, and the progress of those that are being built."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from airflow_provider.concurrency import CommitLog
from airflow_provider.concurrency.heartbeats import observe
from airflow_provider.concurrency.indexes import table_indexes
from airflow_provider.table.hudi_table import HudiTable


@dataclass(frozen=True)
class IndexStatus:
    """One index.

    :param index: its name.
    :param state: ``complete``: readers use it; ``building``: a run builds it; ``planned``: no run builds it
        now; ``not kept``: another Hudi writer made it, and this package does not maintain it.
    :param instant: requested time of its plan; empty where another Hudi writer made it.
    :param file_groups: number of its file groups.
    :param owner: host and process that build it.
    :param progress: progress of the build, for people.
    """

    index: str
    state: str
    instant: str
    file_groups: int
    owner: str | None = None
    progress: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The index as a JSON-able dict."""
        return asdict(self)


def index_status(table: HudiTable) -> list[IndexStatus]:
    """The present indexes of a table.

    :param table: the table; nothing is written to it.
    """
    storage, commit_log = table.storage, CommitLog(table.storage)
    used = HudiTable.at(storage).config.metadata_partitions
    heartbeats = observe(storage)
    found = []
    there = table_indexes(storage, commit_log, commit_log.newest())
    for index in there.kept:
        heartbeat = heartbeats.get(index.instant)
        named = (index.partition, index.instant, index.file_groups)
        if index.is_complete and index.partition in used:
            found.append(IndexStatus(named[0], "complete", *named[1:]))
        elif heartbeat is not None and heartbeat.alive:
            info = heartbeat.info
            found.append(IndexStatus(named[0], "building", *named[1:], info.owner, info.progress))
        else:
            found.append(IndexStatus(named[0], "planned", *named[1:]))
    return found + [IndexStatus(partition, "not kept", "", 0) for partition in there.unsupported_indexes]
