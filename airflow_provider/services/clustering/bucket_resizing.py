"""Splits and merges of buckets by consistent hashing, as clustering groups.

Sources: ``BaseConsistentHashingBucketClusteringPlanStrategy`` (which buckets are split and merged),
``ConsistentBucketIdentifier.splitBucket`` and ``mergeBucket`` (the new buckets), and
``HoodieSparkConsistentBucketIndex.updateLocation`` (the metadata in a clustering) of Apache Hudi 1.2.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from airflow_provider.concurrency.conflicts import clustered
from airflow_provider.table.bucket_index import (
    DELETE,
    REPLACE,
    HashingMetadata,
    HashingNode,
    load_hashing_metadata,
    new_file_id_prefix,
)
from airflow_provider.table.file_groups import FileGroupId, FileSlice, FileSystemView
from airflow_provider.table.hudi_options import OPTIONS
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.properties import (
    BUCKET_MERGE_THRESHOLD,
    BUCKET_SPLIT_THRESHOLD,
    LEAST_BUCKETS_OF_A_PARTITION,
    MOST_BUCKETS_OF_A_PARTITION,
    NUMBER_OF_BUCKETS,
)
from airflow_provider.table.reading import slices_of

_PARTITION, _NODES, _SEQ_NO = (
    f"clustering.group.{name}" for name in ("partition", "child.node", "sequence.no")
)
_FULL = "hoodie.parquet.max.file.size"
_RING = 2**31


@dataclass(frozen=True)
class Resizing:
    """The changes of a clustering group to the buckets of its partition.

    :param nodes: the changes at places of the ring.
    :param seq_no: sequence number of the hashing metadata that they change.
    """

    nodes: tuple[HashingNode, ...]
    seq_no: int

    @property
    def made(self) -> list[HashingNode]:
        """The new buckets."""
        return [node for node in self.nodes if node.tag == REPLACE]

    def made_of(self, hashes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """For each key of a split bucket, the position of its new bucket in :attr:`made`.

        :param hashes: the keys' places on the ring, which belong to the split bucket.
        """
        first, last = (node.value for node in self.made)
        # The range of the split bucket may extend past the end of the ring, and continue at 0.
        beyond = (hashes - last - 1) % _RING > (first - last - 1) % _RING
        return np.asarray(beyond, np.int64)

    def to_avro(self, partition_path: str) -> dict[str, str]:
        """The extra metadata of the group in Hudi's plan."""
        nodes = json.dumps([node.to_json() for node in self.nodes])
        return {_PARTITION: partition_path, _NODES: nodes, _SEQ_NO: str(self.seq_no)}

    @classmethod
    def from_avro(cls, extra: Mapping[str, str] | None) -> Resizing | None:
        """Read the extra metadata of a group; None where it changes no buckets."""
        if not extra or _NODES not in extra:
            return None
        return cls(tuple(map(HashingNode.from_json, json.loads(extra[_NODES]))), int(extra[_SEQ_NO]))


@dataclass(frozen=True)
class ResizingLimits:
    """When buckets are split and merged.

    :param least: the least number of buckets of a partition after a merge.
    :param most: the largest number of buckets of a partition after a split.
    :param split_above: bytes above which a bucket is split.
    :param merge_below: bytes up to which a bucket is merged with its neighbours.
    """

    least: int
    most: int
    split_above: int
    merge_below: int

    @classmethod
    def of(cls, table: HudiTable) -> ResizingLimits:
        """The limits in a table's options."""
        given = table.hudi_options.values

        def value(key: str) -> Any:
            return given.get(key, OPTIONS[key].default)

        buckets, full = given[NUMBER_OF_BUCKETS], value(_FULL)
        return cls(
            given.get(LEAST_BUCKETS_OF_A_PARTITION, buckets),
            given.get(MOST_BUCKETS_OF_A_PARTITION, buckets),
            int(full * value(BUCKET_SPLIT_THRESHOLD)),
            int(full * value(BUCKET_MERGE_THRESHOLD)),
        )


@dataclass(frozen=True)
class SizedSlice:
    """The newest file slice of a bucket.

    :param file_slice: the slice.
    :param size: bytes of its files.
    :param last_instant: requested time of the last instant that wrote one of them.
    """

    file_slice: FileSlice
    size: int
    last_instant: str


def resizings(
    table: HudiTable, view: FileSystemView, partition_path: str, usable: Iterable[SizedSlice]
) -> Iterator[tuple[list[SizedSlice], Resizing]]:
    """The splits and merges of a partition's buckets, each with the file slices that it reads.

    :param table: the table.
    :param view: the snapshot.
    :param partition_path: the partition.
    :param usable: slices that may be rewritten.
    """
    metadata = load_hashing_metadata(table.storage, view, partition_path)
    if metadata is None or _is_resized(view, partition_path):
        return  # the hashing metadata would keep only the last of several changes at once
    there = {each.file_slice.file_id: each for each in usable}
    slices = [there.get(node.file_id) for node in metadata.nodes]
    limits = ResizingLimits.of(table)
    splits: dict[int, list[HashingNode]] = {}
    for number, each in enumerate(slices):
        if len(metadata.nodes) + len(splits) >= limits.most:
            break
        if each is not None and each.size > limits.split_above and (made := split(metadata, number)):
            splits[number] = made
            yield [each], Resizing(tuple(made), metadata.seq_no)
    sizes = [None if each is None or number in splits else each.size for number, each in enumerate(slices)]
    left = len(metadata.nodes) + len(splits) - limits.least
    for numbers in mergeable(sizes, limits.merge_below, left):
        merged = [each for number in numbers if (each := slices[number]) is not None]
        yield merged, Resizing(tuple(merge(metadata, numbers)), metadata.seq_no)


def split(metadata: HashingMetadata, number: int) -> list[HashingNode]:
    """The two new buckets, each with half the range, of a split; none where the range is too small.

    :param metadata: the buckets.
    :param number: number of the bucket to split.
    """
    end, begin = metadata.values[number], metadata.values[number - 1]
    middle = ((begin + end + (0 if begin < end else _RING)) >> 1) % _RING
    if middle in (begin, end):
        return []
    return [HashingNode(value, new_file_id_prefix(), REPLACE) for value in (middle, end)]


def merge(metadata: HashingMetadata, numbers: Sequence[int]) -> list[HashingNode]:
    """The changes of the nodes when neighbours are merged into one bucket.

    :param metadata: the buckets.
    :param numbers: numbers of the neighbours, in the order of the ring.
    """
    *gone, last = (metadata.values[number] for number in numbers)
    deleted = [HashingNode(value, None, DELETE) for value in gone]
    return [*deleted, HashingNode(last, new_file_id_prefix(), REPLACE)]


def mergeable(sizes: Sequence[int | None], most: int, slots: int) -> Iterator[list[int]]:
    """The neighbours on the ring that are merged, in the order of the ring.

    :param sizes: bytes of each bucket; None for a bucket that has to stay.
    :param most: largest size of a bucket that is merged; neighbours that are larger together take no further
        one.
    :param slots: the number of buckets that merges may remove.
    """
    count, taken = len(sizes), set[int]()
    for start, size in enumerate(sizes):
        if size is None or size > most or start in taken:
            continue
        found, total = [start], size
        for forward in (False, True):
            while slots > 0 and total <= most and len(found) < count:
                neighbour = (found[-1] + 1 if forward else found[0] - 1) % count
                its_size = sizes[neighbour]
                if its_size is None or its_size > most or neighbour in taken or neighbour in found:
                    break
                found = [*found, neighbour] if forward else [neighbour, *found]
                total, slots = total + its_size, slots - 1
        if len(found) > 1:
            taken.update(found)
            yield found


def _is_resized(view: FileSystemView, partition_path: str) -> bool:
    """Whether a clustering of a partition is pending."""
    timeline = view.timeline
    return any(
        group.partition_path == partition_path
        for instant in timeline.pending()
        for group in clustered(timeline, instant)
    )


def sized_slices(table: HudiTable, view: FileSystemView, partition_path: str) -> list[SizedSlice]:
    """The newest file slices of a partition with their sizes.

    :param table: the table.
    :param view: the snapshot.
    :param partition_path: the partition.
    """
    sizes: dict[FileGroupId, int] = {}
    last: dict[FileGroupId, str] = {}
    for each in (*view.base_files(partition_path), *view.log_files(partition_path)):
        group = each.file_group
        sizes[group] = sizes.get(group, 0) + each.size
        last[group] = max(last.get(group, ""), each.instant)
    return [
        SizedSlice(each, sizes[each.file_group], last[each.file_group])
        for each in slices_of(table, view, [partition_path])
    ]
