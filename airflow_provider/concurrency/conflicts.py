"""The conflict rules: pure functions over descriptions of writes (design section 5)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from airflow_provider.concurrency.commit_log import LogEntry
from airflow_provider.table.file_groups import FileGroupId

PRIORITIES = {"ingestion": 400, "backfill": 300, "table_service": 200, "cleaning": 100}
"""The named priorities; the larger one wins. Any integer may be given."""


@dataclass(frozen=True)
class Conflict:
    """Why a write cannot commit.

    :param entry: the commit that completed first.
    :param file_groups: the file groups that both touched.
    """

    entry: LogEntry
    file_groups: frozenset[FileGroupId]

    def __str__(self) -> str:
        shown = ", ".join(
            f"{partition}/{file_id}".lstrip("/") for partition, file_id in sorted(self.file_groups)[:3]
        )
        more = f" and {len(self.file_groups) - 3} more" if len(self.file_groups) > 3 else ""
        return (
            f"{self.entry.operation} {self.entry.instant} by {self.entry.owner}, completed at "
            f"{self.entry.completion_time}, touched file group {shown}{more}"
        )


def first_conflict(touched: frozenset[FileGroupId], completed: Iterable[LogEntry]) -> Conflict | None:
    """The first commit since a writer's base that touched one of its file groups.

    First committer wins (RFC-22, concurrency control option 1, step 4; Hudi's
    ``SimpleConcurrentFileWritesConflictResolutionStrategy.hasConflict``): a group counts as
    touched when it was written or replaced.

    :param touched: file groups that the committing writer writes or replaces.
    :param completed: entries of the commit log after the writer's base.
    """
    for entry in completed:
        shared = touched & entry.touched
        if shared:
            return Conflict(entry, shared)
    return None
