"""The content of a commit, the part of it that has to be merged again, and the commit's result."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from airflow_provider.concurrency.commit.staged_paths import staged_metadata_path
from airflow_provider.concurrency.conflicts import Conflict
from airflow_provider.concurrency.heartbeats import HeartbeatInfo
from airflow_provider.concurrency.log import Commit
from airflow_provider.table.file_groups import FileGroupId, FileSystemView
from airflow_provider.table.file_names import parse_base_file_name
from airflow_provider.table.schema import TableSchema
from airflow_provider.table.timeline import Action, CommitMetadata, WriteStat, encode_commit_metadata

REBASED_ONTO = "rebased_onto"
"""Key in a commit's extra metadata: the writes onto which it was rebased, with their owners, as JSON."""

_MOST_TOLD = 20

_TAKE_NOTHING_OUT = frozenset({Action.COMMIT, Action.DELTA_COMMIT})


@dataclass(frozen=True)
class CommitResult:
    """A commit that readers see.

    :param instant: requested time.
    :param completion_time: when it completed; orders commits.
    :param action: action on the timeline.
    :param sequence: the commit's place in the commit log; 0 when the commit is archived.
    :param rebases: how often it lost a conflict and was merged again in part.
    """

    instant: str
    completion_time: str
    action: Action
    sequence: int
    rebases: int = 0


@dataclass(frozen=True)
class Rebase:
    """The part of a write that it has to merge again, because it lost a conflict.

    :param view: the new snapshot.
    :param lost: file groups of this write whose files have to be written again, and file groups that it took
        out and others have changed. If a merge went into a new file group, this file group and the one
        that it was merged on (``WriteStat.prev_base_file``) are lost together.
    :param conflicts: the conflicts that were lost.
    """

    view: FileSystemView
    lost: frozenset[FileGroupId]
    conflicts: tuple[Conflict, ...]


@dataclass(frozen=True)
class Rebased:
    """The result of merging the lost file groups again.

    :param write_stats: the statistics of the new data files, which replace those of the lost file groups.
    :param replaced: file ids to take out, by partition path. They join the replaced file ids that were not
        lost.
    """

    write_stats: Sequence[WriteStat]
    replaced: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class CommitContent:
    """What a write is about to commit.

    :param write_stats: the statistics of each data file.
    :param replaced: file ids that the write replaces, by partition path.
    :param extra_metadata: goes into the commit metadata.
    :param unique_keys: whether a record key that both this write and another one add is a conflict.
    :param metadata: content of the completed instant where it is not commit metadata.
    :param parts: sets of file groups; each set is lost as a whole, and the write commits the other sets
        without it.
    :param schema: the table's schema from this commit on; None when the commit does not name one.
    :param evolves: whether this schema differs from the one before.
    """

    write_stats: tuple[WriteStat, ...]
    replaced: Mapping[str, tuple[str, ...]]
    extra_metadata: Mapping[str, str]
    unique_keys: bool = False
    metadata: bytes | None = None
    parts: tuple[frozenset[FileGroupId], ...] = ()
    schema: TableSchema | None = None
    evolves: bool = False

    @property
    def written(self) -> frozenset[FileGroupId]:
        """File groups that get a slice."""
        return frozenset(stat.file_group for stat in self.write_stats)

    @property
    def appended(self) -> frozenset[FileGroupId]:
        """File groups that get log files alone."""
        with_base = frozenset(stat.file_group for stat in self.write_stats if stat.log_files is None)
        return self.written - with_base

    @property
    def taken_out(self) -> frozenset[FileGroupId]:
        """File groups that are replaced."""
        return frozenset(
            FileGroupId(partition, file_id) for partition, ids in self.replaced.items() for file_id in ids
        )

    @property
    def touched(self) -> frozenset[FileGroupId]:
        """File groups whose content changes."""
        return self.written | self.taken_out

    @property
    def merged_into(self) -> dict[FileGroupId, FileGroupId]:
        """By each file group that a merge took out: the new file group that has its rows."""
        return {
            before: stat.file_group
            for stat in self.write_stats
            if (before := _merged_on(stat)) is not None and before in self.taken_out
        }

    @property
    def inserted_in(self) -> frozenset[str]:
        """Partition paths that get new records."""
        return frozenset(stat.partition_path for stat in self.write_stats if stat.num_inserts)

    def lost(self, conflicts: Iterable[Conflict]) -> frozenset[FileGroupId]:
        """File groups that have to be merged or taken out again.

        If a merge went into a new file group, and the old one was taken out for it, both are lost together.

        :param conflicts: the conflicts that were lost.
        """
        named = frozenset(group for conflict in conflicts for group in conflict.file_groups)
        lost = set(named)
        for stat in self.write_stats:
            pair = {stat.file_group, _merged_on(stat)}
            if pair & named and _merged_on(stat) in self.taken_out:
                lost |= {group for group in pair if group is not None}
        return frozenset(lost)

    def without(self, conflicts: Iterable[Conflict]) -> CommitContent | None:
        """The content without the parts that are lost.

        :param conflicts: the conflicts that were lost.
        :return: None when no part is left, as after a restore, which concerns the whole table.
        """
        conflicts = list(conflicts)
        if not all(conflict.file_groups for conflict in conflicts):
            return None
        named = frozenset(group for conflict in conflicts for group in conflict.file_groups)
        left = tuple(part for part in self.parts if not part & named)
        lost = frozenset(group for part in self.parts if part & named for group in part)
        return replace(self.with_rebased(lost, Rebased(())), parts=left) if left else None

    def with_schema(self, schema: TableSchema, evolves: bool) -> CommitContent:
        """The same write on the schema that other commits have given the table.

        :param schema: the table's schema from this commit on.
        :param evolves: whether this schema differs from the one before.
        """
        return replace(self, schema=schema, evolves=evolves)

    def share_of(self, file_groups: frozenset[FileGroupId]) -> float:
        """The fraction of the data files that belongs to some file groups, 0 to 1."""
        written = [stat.file_group for stat in self.write_stats]
        return sum(group in file_groups for group in written) / max(1, len(written))

    def with_rebased(self, lost: frozenset[FileGroupId], rebased: Rebased) -> CommitContent:
        """The same write after some of its file groups were merged again."""
        stats = [stat for stat in self.write_stats if stat.file_group not in lost]
        out = {
            partition: [file_id for file_id in ids if FileGroupId(partition, file_id) not in lost]
            for partition, ids in self.replaced.items()
        }
        for partition, ids in rebased.replaced.items():
            out[partition] = list(dict.fromkeys([*out.get(partition, ()), *ids]))
        return replace(
            self,
            write_stats=(*stats, *rebased.write_stats),
            replaced={partition: tuple(ids) for partition, ids in out.items() if ids},
        )

    def said_to_be_rebased(self, conflicts: Iterable[Conflict]) -> CommitContent:
        """The same write; its metadata names the commits onto which it was rebased.

        :param conflicts: the conflicts that were lost.
        """
        said = json.loads(self.extra_metadata.get(REBASED_ONTO, "[]"))
        said += [
            {"instant": each.other.instant, "operation": each.other.operation, "owner": each.other.owner}
            for each in conflicts
        ]
        told = json.dumps(said[-_MOST_TOLD:])
        return replace(self, extra_metadata={**self.extra_metadata, REBASED_ONTO: told})

    def completed_action(self, pending: Action) -> Action:
        """The action under which the write completes: only a replacecommit can take file groups out."""
        completed = pending.when_completed
        return Action.REPLACE_COMMIT if self.replaced and completed in _TAKE_NOTHING_OUT else completed

    def encoded(self, operation: str, pending: Action) -> bytes:
        """The content of the completed instant."""
        if self.metadata is not None:
            return self.metadata
        extra = {**self.extra_metadata, **(self.schema.extra_metadata if self.schema else {})}
        metadata = CommitMetadata(operation, self.write_stats, self.replaced, extra)
        return encode_commit_metadata(metadata, self.completed_action(pending))

    def renamed_action(self, pending: Action) -> Action | None:
        """The action under which the write completes, if it is pending under another one; else None."""
        action = self.completed_action(pending)
        return action if pending in _TAKE_NOTHING_OUT and action is not pending else None

    def entry(self, instant: str, pending: Action, info: HeartbeatInfo, *, seen: str = "") -> Commit:
        """The log entry that commits this content."""
        return Commit(
            instant=instant,
            action=self.completed_action(pending),
            operation=info.operation,
            priority=info.priority,
            written=self.written,
            replaced=self.taken_out,
            appended=self.appended,
            inserted_in=self.inserted_in,
            metadata_path=staged_metadata_path(instant),
            pending_action=pending if self.renamed_action(pending) else None,
            operation_key=info.operation_key,
            evolves=self.evolves,
            seen=seen,
            owner=info.owner,
        )


def _merged_on(stat: WriteStat) -> FileGroupId | None:
    parsed = parse_base_file_name(stat.prev_base_file or "")
    return FileGroupId(stat.partition_path, parsed[0]) if parsed else None
