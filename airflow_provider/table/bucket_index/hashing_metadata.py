"""The buckets of a partition under consistent hashing, and the files in which Hudi keeps them.

Each resizing of a partition's buckets writes a file of its own, named after its instant. The file is valid
once that instant has completed.

Sources: ``HoodieConsistentHashingMetadata``, ``ConsistentHashingNode``, ``ConsistentBucketIdentifier`` (the
ring) and ``ConsistentBucketIndexUtils`` (which file is valid) of Apache Hudi 1.2.
"""

from __future__ import annotations

import hashlib
import json
import logging
import uuid
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from airflow_provider.exceptions import CorruptTableError
from airflow_provider.table.file_groups import FileSystemView
from airflow_provider.table.file_names import new_file_id
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import State, Timeline

log = logging.getLogger(__name__)

HASHING_METADATA = ".hoodie/.bucket_index/consistent_hashing_metadata"
"""The folder with a folder of hashing metadata for each partition."""
FIRST_INSTANT = "00000000000000"
"""The instant of a partition's first buckets; it needs no completion."""
NORMAL, REPLACE, DELETE = "NORMAL", "REPLACE", "DELETE"

_MASK = 2**31 - 1
_SUFFIX, _COMMIT_SUFFIX = ".hashing_meta", ".commit"


@dataclass(frozen=True)
class HashingNode:
    """A bucket: the keys whose hash is at most its value, and above the value of the node before.

    :param value: its place on the ring of hashes.
    :param file_id_prefix: the prefix of its file group's id; None for a node that is deleted.
    :param tag: in a plan, the change at this place: ``REPLACE`` or ``DELETE``; otherwise ``NORMAL``.
    """

    value: int
    file_id_prefix: str | None
    tag: str = NORMAL

    @property
    def file_id(self) -> str:
        """The id of its only file group."""
        return f"{self.file_id_prefix}-0"

    def to_json(self) -> dict[str, Any]:
        """Hudi's record of this node."""
        return {"value": self.value, "fileIdPrefix": self.file_id_prefix, "tag": self.tag}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> HashingNode:
        """Read Hudi's record."""
        return cls(record["value"], record["fileIdPrefix"], record["tag"])


@dataclass(frozen=True)
class HashingMetadata:
    """The buckets of a partition.

    :param partition_path: the partition.
    :param buckets: the number of its first buckets.
    :param nodes: the buckets, in the order of their values.
    :param instant: requested time of the resizing that made them.
    :param seq_no: the number of earlier resizings.
    """

    partition_path: str
    buckets: int
    nodes: tuple[HashingNode, ...]
    instant: str = FIRST_INSTANT
    seq_no: int = 0

    @classmethod
    def first(cls, partition_path: str, buckets: int) -> HashingMetadata:
        """The first buckets of a partition, which are the same for every writer.

        :param partition_path: the partition.
        :param buckets: their number.
        """
        step = (_MASK + buckets - 1) // buckets
        ends = [min(step * number, _MASK) for number in range(buckets + 1)]
        nodes = (HashingNode(end, _name_of(partition_path, begin, end)) for begin, end in pairwise(ends))
        return cls(partition_path, buckets, tuple(nodes))

    @cached_property
    def values(self) -> list[int]:
        """The places of the nodes on the ring, in their order."""
        return [node.value for node in self.nodes]

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """The number of each node, by the id of its file group."""
        return {node.file_id: number for number, node in enumerate(self.nodes)}

    def number_of(self, hash_: int) -> int:
        """The number of the node that a hash belongs to.

        :param hash_: the hash of a record key, 31 bits.
        """
        return bisect_left(self.values, hash_) % len(self.nodes)

    def with_nodes(self, changed: Iterable[HashingNode], instant: str) -> HashingMetadata:
        """The buckets after a resizing.

        :param changed: the changes at places of the ring.
        :param instant: requested time of the resizing.
        """
        nodes = {node.value: node for node in self.nodes}
        for node in changed:
            if node.tag == DELETE:
                nodes.pop(node.value, None)
            else:
                nodes[node.value] = replace(node, tag=NORMAL)
        ring = tuple(nodes[value] for value in sorted(nodes))
        return replace(self, nodes=ring, instant=instant, seq_no=self.seq_no + 1)

    @property
    def path(self) -> str:
        """The path of its file, relative to the table."""
        return f"{hashing_metadata_folder(self.partition_path)}/{self.instant}{_SUFFIX}"

    @property
    def commit_path(self) -> str:
        """The path of the empty file by which the JVM's Hudi marks this file as valid."""
        return f"{hashing_metadata_folder(self.partition_path)}/{self.instant}{_COMMIT_SUFFIX}"

    def to_json(self) -> bytes:
        """The content of its file."""
        said = {
            "version": 0,
            "partitionPath": self.partition_path,
            "instant": self.instant,
            "numBuckets": self.buckets,
            "seqNo": self.seq_no,
            "nodes": [node.to_json() for node in self.nodes],
        }
        return json.dumps(said, indent=2, ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, content: bytes) -> HashingMetadata:
        """Read the content of a file.

        :raises ValueError: when the content is no hashing metadata.
        """
        try:
            said = json.loads(content)
            nodes = sorted(map(HashingNode.from_json, said["nodes"]), key=lambda node: node.value)
            named = (said[name] for name in ("instant", "seqNo"))
            return cls(said["partitionPath"], said["numBuckets"], tuple(nodes), *named)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error


def new_file_id_prefix() -> str:
    """A prefix for the file id of a new bucket."""
    return new_file_id().removesuffix("-0")


def load_hashing_metadata(
    storage: Storage, view: FileSystemView, partition_path: str, *, cleans_up: bool = False
) -> HashingMetadata | None:
    """The buckets of a partition on a snapshot.

    :param storage: the table's storage.
    :param view: the snapshot.
    :param partition_path: the partition.
    :param cleans_up: whether to delete the files of instants that were rolled back.
    :return: None when no writer has made any.
    :raises CorruptTableError: when a file is no hashing metadata; or when a file has to be deleted and the
        JVM's Hudi takes it for valid.
    """
    folder, timeline = hashing_metadata_folder(partition_path), view.timeline
    names = set(storage.names(folder))
    instants = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
    for instant in sorted(instants, reverse=True):
        known = timeline.find(instant)
        completed = known is not None and known.state is State.COMPLETED
        was_archived = known is None and instant < timeline.starts
        if completed or was_archived or instant == FIRST_INSTANT:
            found = _read(storage, f"{folder}/{instant}{_SUFFIX}")
            # The JVM's Hudi uses the same condition, so both find the same file.
            if instant == FIRST_INSTANT or completed or _has_base_file(view, found):
                return found
        elif cleans_up and known is None and instant < timeline.newest_completion:
            _delete_left_over(storage, folder, instant, is_taken=f"{instant}{_COMMIT_SUFFIX}" in names)
    return None


def _delete_left_over(storage: Storage, folder: str, instant: str, *, is_taken: bool) -> None:
    """Delete the file of an instant that was rolled back, before the JVM's Hudi takes it for valid.

    A rollback by the JVM's Hudi leaves the file. The JVM's next write takes it for valid if one of the
    buckets has a base file (``ConsistentBucketIndexUtils.recommitMetadataFile``).
    """
    now = Timeline.load(storage)  # the instant may have been put after the snapshot was taken
    if now.find(instant) is not None or instant < now.starts:
        return
    path = f"{folder}/{instant}{_SUFFIX}"
    if is_taken:
        raise CorruptTableError(
            f"table {storage.root}: {path} is of an instant that was rolled back, and the JVM's Hudi goes by "
            "it: its later writes may have put rows beside older versions of them; delete it and its .commit "
            "file, and write those rows again",
            path=path,
        )
    storage.delete(path)


def _read(storage: Storage, path: str) -> HashingMetadata:
    try:
        return HashingMetadata.from_json(storage.read(path))
    except ValueError as error:
        raise CorruptTableError(
            f"table {storage.root}: {path} is no hashing metadata of a bucket index ({error}); restore it "
            "from a backup, or load the rows into a new table",
            path=path,
        ) from error


def put_hashing_metadata(storage: Storage, metadata: HashingMetadata) -> HashingMetadata:
    """Put the first buckets of a partition, unless another writer has.

    :param storage: the table's storage.
    :param metadata: from :meth:`HashingMetadata.first`.
    :return: the buckets that are stored now.
    """
    if not storage.put_if_absent(metadata.path, metadata.to_json()):
        metadata = HashingMetadata.from_json(storage.read(metadata.path))
    storage.put_if_absent(metadata.commit_path, b"")
    return metadata


def tell_committed(storage: Storage, made: Iterable[HashingMetadata]) -> None:
    """Mark hashing metadata as valid for the JVM's Hudi, after the commit that made them.

    The commit is done, so a failure is only logged. The JVM's Hudi puts the mark itself when it finds such a
    file (``ConsistentBucketIndexUtils.recommitMetadataFile``).

    :param storage: the table's storage.
    :param made: the hashing metadata that the commit has made.
    """
    for each in made:
        try:
            storage.put_if_absent(each.commit_path, b"")
        except OSError as error:
            log.warning("table %s: %s is not put: %s", storage.root, each.commit_path, error)


def delete_hashing_metadata(storage: Storage, instant: str, partition_paths: Iterable[str]) -> None:
    """Delete the files of a resizing that was undone.

    :param storage: the table's storage.
    :param instant: requested time of the resizing.
    :param partition_paths: the partitions in which it has files.
    """
    for partition in partition_paths:
        folder = hashing_metadata_folder(partition)
        # The mark goes first: the JVM's Hudi raises an error for a mark without its file.
        storage.delete(f"{folder}/{instant}{_COMMIT_SUFFIX}")
        storage.delete(f"{folder}/{instant}{_SUFFIX}")


def _has_base_file(view: FileSystemView, metadata: HashingMetadata) -> bool:
    there = {each.file_id for each in view.base_files(metadata.partition_path)}
    return any(node.file_id in there for node in metadata.nodes)


def hashing_metadata_folder(partition_path: str) -> str:
    """The folder with the files of a partition, relative to the table.

    :param partition_path: the partition.
    """
    return f"{HASHING_METADATA}/{partition_path}".rstrip("/")


def _name_of(partition_path: str, begin: int, end: int) -> str:
    """``UUID.nameUUIDFromBytes``, as the JVM names a file group."""
    named = begin.to_bytes(8) + end.to_bytes(8) + partition_path.encode()
    return str(uuid.UUID(bytes=hashlib.md5(named, usedforsecurity=False).digest(), version=3))
