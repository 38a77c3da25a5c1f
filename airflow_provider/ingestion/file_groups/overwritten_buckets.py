"""An overwrite of buckets of consistent hashing gives new file groups to the buckets that it takes out.

The JVM's Hudi finds a bucket's file group only by the hashing metadata, and the id of a file group that was
taken out cannot be used again. So an overwrite writes hashing metadata as a resizing does, with the same
places on the ring.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from airflow_provider.ingestion.file_groups.file_group_plan import FileGroupPlan
from airflow_provider.table.bucket_index import (
    REPLACE,
    BucketIndex,
    ConsistentBucketIndex,
    HashingMetadata,
    HashingNode,
    load_hashing_metadata,
    new_file_id_prefix,
    tell_committed,
)
from airflow_provider.table.file_groups import FileGroupId, FileSystemView
from airflow_provider.table.hudi_table import HudiTable


@dataclass
class OverwrittenBuckets:
    """The buckets that one overwrite replaces.

    :param table: the table.
    :param instant: requested time of the overwrite.
    """

    table: HudiTable
    instant: str
    _before: dict[str, HashingMetadata] = field(default_factory=dict)
    _prefixes: dict[str, dict[int, str]] = field(default_factory=dict)  # by partition path and place
    _written: dict[str, HashingMetadata] = field(default_factory=dict)

    def plan(self, index: BucketIndex, plan: FileGroupPlan) -> bool:
        """Add a plan of the overwrite, before its files are written.

        :param index: the bucket index by which the plan was made.
        :param plan: the plan.
        :return: False when the buckets have been split or merged since an earlier plan of this overwrite.
        """
        if not isinstance(index, ConsistentBucketIndex):
            return True
        for partition in plan.buckets:
            metadata = index.partitions[partition]
            if self._before.setdefault(partition, metadata).values != metadata.values:
                return False
            known = self._prefixes.setdefault(partition, {})
            for number, target in plan.buckets[partition].items():
                known[metadata.nodes[number].value] = plan.targets[target].file_id.removesuffix("-0")
        return True

    def put(self, view: FileSystemView, replaced: Mapping[str, Collection[str]]) -> bool:
        """Put the hashing metadata of each partition, before the commit that makes it valid.

        :param view: the snapshot that the overwrite is based on.
        :param replaced: file ids that the overwrite takes out, by partition path.
        :return: False when it would not be valid, because an instant that was requested later has put another
            one.
        """
        if not isinstance(self.table.bucket_index, ConsistentBucketIndex):
            return True
        for partition in sorted({*replaced, *self._before}):
            now = load_hashing_metadata(self.table.storage, view, partition)
            if (before := self._before.get(partition, now)) is None or now is None:
                continue
            if now.instant > self.instant:
                return False
            prefixes = self._prefixes.setdefault(partition, {})
            out = {FileGroupId(partition, each) for each in replaced.get(partition, ())}
            for node in before.nodes:
                group = FileGroupId(partition, node.file_id)
                if (group in out or group in view.replaced) and prefixes.get(node.value) in (
                    None,
                    node.file_id_prefix,
                ):
                    prefixes[node.value] = new_file_id_prefix()
            changed = [
                HashingNode(node.value, prefix, REPLACE)
                for node in before.nodes
                if (prefix := prefixes.get(node.value)) not in (None, node.file_id_prefix)
            ]
            if changed:
                made = HashingMetadata(
                    partition, before.buckets, before.nodes, now.instant, now.seq_no
                ).with_nodes(changed, self.instant)
                self.table.storage.put(made.path, made.to_json())
                self._written[partition] = made
        return True

    def committed(self) -> None:
        """Mark the hashing metadata as valid for the JVM's Hudi."""
        tell_committed(self.table.storage, self._written.values())
