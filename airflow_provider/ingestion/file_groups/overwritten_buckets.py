"""What an overwrite does to buckets by consistent hashing: those whose file groups it takes out get others.

The JVM's Hudi finds a bucket's file group by the hashing metadata alone, and an id that was taken out is
spent. So an overwrite writes hashing metadata as a resizing does, with the same places on the ring.
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
    """The buckets that one overwrite writes anew.

    :param table: the table.
    :param instant: requested time of the overwrite.
    """

    table: HudiTable
    instant: str
    _before: dict[str, HashingMetadata] = field(default_factory=dict)
    _prefixes: dict[str, dict[int, str]] = field(default_factory=dict)  # by partition path and place
    _written: dict[str, HashingMetadata] = field(default_factory=dict)

    def plan(self, index: BucketIndex, plan: FileGroupPlan) -> bool:
        """Take a plan up, before its files are written.

        :param index: by which it was made.
        :param plan: of an overwrite.
        :return: whether it goes with the plans before; else other buckets have been made meanwhile.
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
        """Put the hashing metadata of each partition, before the commit by which it counts.

        :param view: the snapshot that the overwrite is based on.
        :param replaced: file ids that it takes out, by partition path.
        :return: whether it counts then: not beside the one of an instant that was requested later.
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
        """Say that the hashing metadata counts."""
        tell_committed(self.table.storage, self._written.values())
