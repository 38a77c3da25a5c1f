"""A cache of facts that never change: entries of the commit log, and summaries of commits."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from airflow_provider.concurrency import CommitLog, LogEntry
from airflow_provider.exceptions import NoSuchInstantError
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.timeline import CommitMetadata, Instant, Timeline, decode_commit_metadata

_AT_ONCE = 8  # reads of an object store; a local file is read before a thread has begun
_MOST_KEPT = 20_000


@dataclass(frozen=True)
class CommitSummary:
    """The result of a completed commit.

    :param operation: Hudi's operation type.
    :param rows_inserted: number of rows that are new in the table.
    :param rows_updated: number of rows that replaced an older version.
    :param rows_deleted: number of rows that were deleted.
    :param files: number of files written.
    :param bytes: bytes written.
    :param file_sizes: bytes of the smallest, the median and the largest file; empty without files.
    :param extra_metadata: the writer's extra metadata in the commit, without the schema.
    """

    operation: str
    rows_inserted: int
    rows_updated: int
    rows_deleted: int
    files: int
    bytes: int
    file_sizes: tuple[int, ...]
    extra_metadata: dict[str, str]

    @classmethod
    def of(cls, metadata: CommitMetadata) -> CommitSummary:
        """The summary of a commit, from its metadata."""
        stats = metadata.write_stats
        sizes = sorted(stat.file_size for stat in stats if stat.file_size)
        return cls(
            metadata.operation_type,
            sum(stat.num_inserts for stat in stats),
            sum(stat.num_update_writes for stat in stats),
            sum(stat.num_deletes for stat in stats),
            len(stats),
            sum(stat.total_write_bytes for stat in stats),
            (sizes[0], sizes[len(sizes) // 2], sizes[-1]) if sizes else (),
            {name: value for name, value in metadata.extra_metadata.items() if name != "schema"},
        )

    def number(self, name: str) -> int | None:
        """A number in the extra metadata, such as the writer's priority or its write id."""
        text = self.extra_metadata.get(name, "")
        return int(text) if text.lstrip("-").isdecimal() else None


class TableHistory:
    """A table, and the entries and commits of it that were read so far.

    :param table: the table; the class never writes to it.
    """

    def __init__(self, table: HudiTable) -> None:
        self.table = table
        self._entries: dict[int, LogEntry] = {}
        self._summaries: dict[str, CommitSummary] = {}
        self._derived: dict[str, tuple[str, Any]] = {}

    def entries(self, most: int) -> list[LogEntry]:
        """The newest entries of the commit log.

        :param most: how many entries at most.
        :return: newest first.
        """
        log = CommitLog(self.table.storage)
        newest = log.newest()
        if newest is None:
            return []
        if self._entries.get(newest.sequence, newest) != newest:
            self._entries.clear()  # the table was created again
        found = [newest]
        wanted = range(newest.sequence - 1, max(newest.sequence - most, log.trimmed()), -1)
        missing = [sequence for sequence in wanted if sequence not in self._entries]
        self._entries |= {each.sequence: each for each in self._read(log.read, missing) if each is not None}
        found += [self._entries[sequence] for sequence in wanted if sequence in self._entries]
        self._entries[newest.sequence] = newest
        _trim(self._entries)
        return found

    def summaries(self, timeline: Timeline, commits: Iterable[Instant]) -> dict[str, CommitSummary]:
        """Summaries of commits by requested time, without a commit that is undone at this moment.

        :param timeline: the table's timeline.
        :param commits: completed commits on it.
        """
        commits = list(commits)

        def read(commit: Instant) -> tuple[str, CommitSummary] | None:
            try:
                return _key(commit), CommitSummary.of(decode_commit_metadata(timeline.read(commit)))
            except NoSuchInstantError:
                return None

        missing = [commit for commit in commits if _key(commit) not in self._summaries]
        self._summaries |= dict(each for each in self._read(read, missing) if each is not None)
        found = {each.requested_time: self._summaries.get(_key(each)) for each in commits}
        _trim(self._summaries)
        return {instant: summary for instant, summary in found.items() if summary is not None}

    def unless_changed(self, name: str, state: str, look: Any) -> Any:
        """A value that depends on the table's state only; it is computed again when the state has changed.

        :param name: the value's name in the cache.
        :param state: the state, such as the newest completion time.
        :param look: computes the value.
        """
        known = self._derived.get(name)
        if known is None or known[0] != state:
            known = self._derived[name] = (state, look())
        return known[1]

    def _read(self, read: Any, wanted: list[Any]) -> list[Any]:
        if len(wanted) < _AT_ONCE or "://" not in self.table.location:
            return [read(each) for each in wanted]
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="table-history") as threads:
            return list(threads.map(read, wanted))


def _key(commit: Instant) -> str:
    return f"{commit.requested_time}_{commit.completion_time}"


def _trim(known: dict[Any, Any]) -> None:
    for key in list(known)[: max(0, len(known) - _MOST_KEPT)]:
        del known[key]
