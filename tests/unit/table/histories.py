"""Histories of a table made by hand: any order of requests and completions, in real files.

The commits here act like writers: a merge whose base was written by a later instant goes into a new file
group and replaces the old one; a clustering gives up when its input has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hudi import HudiQueryType, HudiReadOptions, HudiTableBuilder

from airflow_provider.table import HudiTable
from airflow_provider.table.file_groups.view import FileGroupId
from airflow_provider.table.file_names import base_file_name
from airflow_provider.table.files.partition_metadata import write_partition_metadata
from airflow_provider.table.schema.arrow_avro import with_meta_columns
from airflow_provider.table.timeline.active import instant_path
from airflow_provider.table.timeline.instant import Action, Instant, State, format_time
from airflow_provider.table.timeline.metadata import CommitMetadata, WriteStat, encode_commit_metadata

SCHEMA = pa.schema([("p", pa.string()), ("k", pa.int64()), ("v", pa.string())])
_EPOCH = datetime(2024, 1, 1, tzinfo=UTC)

Key = tuple[str, int]
"""Partition and record key."""


def at(tick: int) -> str:
    """The instant time at a tick of the histories' clock."""
    return format_time(_EPOCH + timedelta(milliseconds=tick))


@dataclass(frozen=True)
class Row:
    """A value, and the requested time of the commit that wrote it."""

    value: str
    commit_time: str


@dataclass
class Write:
    """A pending write.

    :param rows: values by key; None deletes.
    :param overwrites: the partition that it overwrites.
    :param clusters: the slices that it rewrites: instant by file group.
    """

    instant: str
    action: Action
    operation: str
    rows: dict[Key, str | None] = field(default_factory=dict)
    overwrites: str | None = None
    clusters: dict[FileGroupId, str] | None = None
    completion_time: str = ""
    replaced: frozenset[FileGroupId] = frozenset()

    @property
    def is_rewrite(self) -> bool:
        return self.clusters is not None

    def apply(self, state: dict[Key, Row]) -> None:
        """The table's rows after this write."""
        if self.overwrites is not None:
            for key in [key for key in state if key[0] == self.overwrites]:
                del state[key]
        for key, value in self.rows.items():
            if value is None:
                state.pop(key, None)
            else:
                state[key] = Row(value, self.instant)


@dataclass
class Slice:
    instant: str
    path: str
    rows: dict[Key, Row]


class History:
    """A table, its clock, and its expected rows."""

    def __init__(self, root: Path) -> None:
        self.table = HudiTable.create(
            str(root / "t"), name="t", schema=SCHEMA, record_key=["k"], partition_by=["p"]
        )
        self.storage = self.table.storage
        self.clock = 0
        self.in_flight: list[Write] = []
        self.commits: list[Write] = []
        self.live: dict[FileGroupId, Slice] = {}
        self._taken_out: dict[FileGroupId, Slice] = {}
        self._files = 0

    def tick(self) -> str:
        self.clock += 1
        return at(self.clock)

    # --- what writers do ---------------------------------------------------------------

    def begin(
        self,
        rows: Mapping[Key, str | None] | None = None,
        *,
        overwrites: str | None = None,
        requested: bool = True,
    ) -> Write:
        """Request an instant; with ``requested=False`` put only its heartbeat."""
        action = Action.COMMIT if overwrites is None else Action.REPLACE_COMMIT
        operation = "UPSERT" if overwrites is None else "INSERT_OVERWRITE"
        return self._begin(Write(self.tick(), action, operation, dict(rows or {}), overwrites), requested)

    def begin_clustering(self, partition: str) -> Write:
        inputs = {group: at_.instant for group, at_ in self.live.items() if group.partition_path == partition}
        return self._begin(Write(self.tick(), Action.CLUSTERING, "CLUSTER", clusters=inputs), True)

    def commit(self, rows: Mapping[Key, str | None], **options: Any) -> Write:
        """Begin and complete."""
        return self.complete(self.begin(rows, **options))

    def cluster(self, partition: str) -> Write:
        """Begin and complete a clustering."""
        return self.complete(self.begin_clustering(partition))

    def complete(self, write: Write) -> Write:
        """Write the data on the present slices, and the completed instant."""
        if write.clusters is not None:
            if any(
                g not in self.live or self.live[g].instant != slice_ for g, slice_ in write.clusters.items()
            ):
                self.roll_back(write)  # lost a write conflict
                return write
            stats, replaced = self._cluster(write, sorted(write.clusters))
        elif write.overwrites is not None:
            replaced = {group for group in self.live if group.partition_path == f"p={write.overwrites}"}
            stats = self._put_new(write, {key: Row(v, write.instant) for key, v in write.rows.items() if v})
        else:
            stats, replaced = self._merge(write)
        if replaced and write.action is Action.COMMIT:
            write.action = Action.REPLACE_COMMIT
        for group in replaced:
            self._taken_out[group] = self.live.pop(group)
        write.replaced = frozenset(replaced)
        for stat, content in stats:
            self.live[FileGroupId(stat.partition_path, stat.file_id)] = content
        write.completion_time = self.tick()
        by_partition: dict[str, list[str]] = {}
        for group in sorted(replaced):
            by_partition.setdefault(group.partition_path, []).append(group.file_id)
        described = CommitMetadata(
            write.operation,
            tuple(stat for stat, _ in stats),
            {partition: tuple(ids) for partition, ids in by_partition.items()},
            {"schema": self.table.config.create_schema or ""},
        )
        done = Instant(write.instant, write.action, State.COMPLETED, write.completion_time)
        self.storage.put(instant_path(done), encode_commit_metadata(described, write.action.when_completed))
        self.storage.delete(f".hoodie/.heartbeat/{write.instant}")
        self.in_flight.remove(write)
        self.commits.append(write)
        return write

    def roll_back(self, write: Write) -> None:
        """Delete a pending write's files."""
        self.in_flight.remove(write)
        self._remove_instant(write)
        self.storage.delete(f".hoodie/.heartbeat/{write.instant}")

    def revert(self, write: Write) -> bool:
        """Undo a completed clustering; return False if a later commit built on it."""
        outputs = [group for group, content in self.live.items() if content.instant == write.instant]
        untouched = [group for group in write.replaced if group in self._taken_out]
        everything = {row for group in write.replaced for row in self._taken_out[group].rows.items()}
        present = {row for group in outputs for row in self.live[group].rows.items()}
        if not write.is_rewrite or not outputs or len(untouched) != len(write.replaced):
            return False
        if present != everything:
            return False
        self._remove_instant(write)
        for group in outputs:
            self.storage.delete(self.live.pop(group).path)
        for group in write.replaced:
            self.live[group] = self._taken_out.pop(group)
        self.commits.remove(write)
        return True

    # --- what readers should see -------------------------------------------------------

    def state(self, commits: Iterable[Write]) -> dict[Key, Row]:
        """The rows after some commits, applied in the order of completion."""
        rows: dict[Key, Row] = {}
        for write in sorted(commits, key=lambda write: write.completion_time):
            write.apply(rows)
        return rows

    def completed_by(self, moment: str) -> list[Write]:
        return [write for write in self.commits if write.completion_time <= moment]

    def changes(self, commits: Iterable[Write], window: Iterable[Write]) -> list[tuple[Key, Row]]:
        """The rows that the window's commits have in the state after all the commits."""
        times = {write.instant for write in window}
        return sorted(
            ((key, row) for key, row in self.state(commits).items() if row.commit_time in times), key=repr
        )

    def hudi_rs_changes(self, start: str, end: str) -> list[tuple[Key, Row]]:
        """hudi-rs' incremental read of a window of completion times."""
        options = HudiReadOptions().with_query_type(HudiQueryType.Incremental)
        options = options.with_start_timestamp(start).with_end_timestamp(end)
        batches = HudiTableBuilder.from_base_uri(self.table.location).build().read(options)
        return rows_of(pa.Table.from_batches(batches)) if batches else []

    # --- files -------------------------------------------------------------------------

    def _begin(self, write: Write, requested: bool) -> Write:
        self.in_flight.append(write)
        self.storage.put(f".hoodie/.heartbeat/{write.instant}", b"{}")
        if requested:
            for state in (State.REQUESTED, State.INFLIGHT):
                self.storage.put(instant_path(Instant(write.instant, write.action, state)), b"")
        return write

    def _remove_instant(self, write: Write) -> None:
        for name in self.storage.names(".hoodie/timeline"):
            if name.startswith(write.instant):
                self.storage.delete(f".hoodie/timeline/{name}")

    def _merge(self, write: Write) -> tuple[list[tuple[WriteStat, Slice]], set[FileGroupId]]:
        stats: list[tuple[WriteStat, Slice]] = []
        replaced: set[FileGroupId] = set()
        left = dict(write.rows)
        for group, base in sorted(self.live.items()):
            hits = {key: left.pop(key) for key in list(left) if key in base.rows}
            if not hits:
                continue
            rows = {key: row for key, row in base.rows.items() if key not in hits}
            updates = {key: Row(v, write.instant) for key, v in hits.items() if v is not None}
            counts: dict[str, Any] = {
                "num_update_writes": len(updates),
                "num_deletes": len(hits) - len(updates),
                "prev_commit": base.instant,
            }
            file_id = group.file_id
            if base.instant > write.instant:  # readers would not see our slice
                replaced.add(group)
                file_id = self._new_file_id()
                counts["prev_commit"] = "null"
            stats.append(self._put(write, group.partition_path, file_id, rows | updates, **counts))
        new = {key: Row(value, write.instant) for key, value in left.items() if value is not None}
        for key in left.keys() - new.keys():
            del write.rows[key]  # it deletes nothing, now or later
        return [*stats, *self._put_new(write, new)], replaced

    def _put_new(self, write: Write, rows: Mapping[Key, Row]) -> list[tuple[WriteStat, Slice]]:
        return [
            self._put(
                write,
                f"p={partition}",
                self._new_file_id(),
                found := {key: row for key, row in rows.items() if key[0] == partition},
                num_inserts=len(found),
            )
            for partition in sorted({key[0] for key in rows})
        ]

    def _cluster(
        self, write: Write, inputs: list[FileGroupId]
    ) -> tuple[list[tuple[WriteStat, Slice]], set[FileGroupId]]:
        rows = sorted(row for group in inputs for row in self.live[group].rows.items())
        partition = inputs[0].partition_path if inputs else ""
        halves = [dict(rows[::2]), dict(rows[1::2])] if len(rows) > 3 else [dict(rows)]
        stats = [
            self._put(write, partition, self._new_file_id(), half, num_inserts=len(half))
            for half in halves
            if half
        ]
        return stats, set(inputs)

    def _new_file_id(self) -> str:
        self._files += 1
        return f"f{self._files}-0"

    def _put(
        self, write: Write, partition: str, file_id: str, rows: dict[Key, Row], **counts: Any
    ) -> tuple[WriteStat, Slice]:
        write_partition_metadata(self.storage, partition, write.instant)
        path = f"{partition}/{base_file_name(file_id, '0-0-0', write.instant)}"
        content = [
            {
                "_hoodie_commit_time": row.commit_time,
                "_hoodie_commit_seqno": f"{row.commit_time}_0_{number}",
                "_hoodie_record_key": str(key[1]),
                "_hoodie_partition_path": partition,
                "_hoodie_file_name": path.rpartition("/")[2],
                "p": key[0],
                "k": key[1],
                "v": row.value,
            }
            for number, (key, row) in enumerate(rows.items())
        ]
        schema = with_meta_columns(SCHEMA)
        pq.write_table(pa.Table.from_pylist(content, schema=schema), f"{self.table.location}/{path}")
        stat = WriteStat(file_id, partition, path, num_writes=len(rows), **counts)
        return stat, Slice(write.instant, path, rows)


def rows_of(table: pa.Table) -> list[tuple[Key, Row]]:
    """Rows with their meta columns, in the form of histories; a row that exists twice is there twice."""
    return sorted(
        (((row["p"], row["k"]), Row(row["v"], row["_hoodie_commit_time"])) for row in table.to_pylist()),
        key=repr,
    )
