"""The hashing metadata of a clustering that splits or merges buckets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow_provider.concurrency import Writer
from airflow_provider.concurrency.commit import CommitContent
from airflow_provider.exceptions import WriteConflictError
from airflow_provider.services.clustering.clustering_plan import ClusteringGroup
from airflow_provider.table.bucket_index import (
    HashingMetadata,
    HashingNode,
    delete_hashing_metadata,
    load_hashing_metadata,
    tell_committed,
)
from airflow_provider.table.file_groups import FileGroupId
from airflow_provider.table.hudi_table import HudiTable


class ResizedBuckets:
    """The buckets that one clustering splits and merges.

    :param table: the table.
    :param writer: the writer of the clustering.
    :param groups: its clustering groups.
    """

    def __init__(self, table: HudiTable, writer: Writer, groups: Sequence[ClusteringGroup]) -> None:
        self._table, self._writer, self._groups = table, writer, groups
        self._made: list[HashingMetadata] = []

    @property
    def written_twice(self) -> Mapping[FileGroupId, frozenset[FileGroupId]]:
        """By each bucket that is split or merged, the new buckets."""
        found: dict[FileGroupId, frozenset[FileGroupId]] = {}
        for group in self._groups:
            made = group.resizing.made if group.resizing else ()
            new = frozenset(FileGroupId(group.partition_path, node.file_id) for node in made)
            found |= dict.fromkeys(group.file_groups, new)
        return found

    def put(self, content: CommitContent) -> None:
        """Put the hashing metadata of each partition, before the commit that makes it valid.

        The JVM's Hudi finds buckets only by these files. So a commit without them would lose rows.

        :param content: the content of the commit, which may leave some groups out.
        :raises WriteConflictError: when the buckets of a partition have changed since the plan.
        """
        replaced = content.taken_out
        changed: dict[str, list[HashingNode]] = {}
        for group in self._groups:
            if group.resizing is not None and group.file_groups <= replaced:
                changed.setdefault(group.partition_path, []).extend(group.resizing.nodes)
        seen = {group.partition_path: group.resizing.seq_no for group in self._groups if group.resizing}
        storage, instant = self._table.storage, self._writer.instant
        gone = (made.partition_path for made in self._made if made.partition_path not in changed)
        delete_hashing_metadata(storage, instant, gone)  # files of an earlier try
        self._made = []
        view = self._table.view()
        for partition, nodes in changed.items():
            before = load_hashing_metadata(storage, view, partition)
            if before is None or before.seq_no != seen[partition]:
                raise WriteConflictError(
                    f"table {self._table.location}: the buckets of partition {partition!r} are others than "
                    f"those that clustering {instant} was planned on; plan another one",
                    instant=instant,
                )
            made = before.with_nodes(nodes, instant)
            storage.put(made.path, made.to_json())
            self._made.append(made)

    def committed(self) -> None:
        """Mark the hashing metadata as valid for the JVM's Hudi."""
        tell_committed(self._table.storage, self._made)
