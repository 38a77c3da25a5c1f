"""Clustering plans: which file groups are rewritten together, and into how many new ones.

Source of the rules: Hudi's ``PartitionAwareClusteringPlanStrategy`` and
``SparkSizeBasedClusteringPlanStrategy`` (file slices below the small-file limit, packed into clustering
groups per partition), and its record ``HoodieClusteringPlan``, which stores the plan.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa

from airflow_provider.concurrency import ServicePlan
from airflow_provider.exceptions import InvalidInputError, MissingColumnError, UnsupportedTableError
from airflow_provider.services.clustering.bucket_resizing import Resizing, resizings, sized_slices
from airflow_provider.services.clustering.row_order import LAYOUTS, MOST_COLUMNS, can_order
from airflow_provider.services.partition_patterns import matches
from airflow_provider.table.bucket_index import ConsistentBucketIndex
from airflow_provider.table.file_groups import BaseFile, FileGroupId, FileSlice, FileSystemView
from airflow_provider.table.files import parse_data_file_name
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.reading import slices_of
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import age, decode, encode, timeline_zone
from airflow_provider.table.writable import check_no_buckets, check_no_hashing_metadata

MIB = 1024 * 1024
LAYOUT_KEY = "clustering_layout"
"""The key in a clustering's commit metadata for the order of its rows."""

_STRATEGY = "org.apache.hudi.client.clustering.run.strategy.SparkSortAndSizeExecutionStrategy"
_RESIZING_STRATEGY = (
    "org.apache.hudi.client.clustering.run.strategy.SparkConsistentBucketClusteringExecutionStrategy"
)
_SETTINGS_KEY = "table_services.clustering"


@dataclass(frozen=True)
class ClusteringSettings:
    """The choice of file groups for a clustering plan, and their new layout.

    :param sort_by: columns to order the rows by; empty to pack small files as they are.
    :param layout: how to order by several columns: ``linear``, ``z-order`` or ``hilbert``.
    :param partitions: patterns of partition paths, such as ``year=2013/*``; all partitions when empty.
    :param small_file_limit: bytes; only file groups below it are clustered.
    :param target_file_size: approximate size of a new file group in bytes.
    :param min_age: seconds since the last write to a file group; a younger one is left alone, because
        ingestion may still fill it.
    :param max_groups: largest number of clustering groups in one plan; those that save most files come first.
    :param max_group_size: most bytes of file groups that are ordered together.
    """

    sort_by: tuple[str, ...] = ()
    layout: str = "linear"
    partitions: tuple[str, ...] = ()
    small_file_limit: int = 100 * MIB
    target_file_size: int = 120 * MIB
    min_age: float = 0.0
    max_groups: int = 30
    max_group_size: int = 1024 * MIB

    def validate(self, table: HudiTable) -> None:
        """Check all settings that can be checked before a plan is made.

        :param table: the table to be clustered.
        :raises MissingColumnError: when a column to sort by is missing from the table.
        :raises InvalidInputError: when another value is out of range.
        """
        if self.layout not in LAYOUTS:
            raise InvalidInputError(f"layout {self.layout!r} is not known; known: {', '.join(LAYOUTS)}")
        if len(set(self.sort_by)) < len(self.sort_by) or len(self.sort_by) > MOST_COLUMNS:
            raise InvalidInputError(
                f"sort_by must name up to {MOST_COLUMNS} columns, each once, not {list(self.sort_by)}"
            )
        columns = table.schema if self.sort_by else pa.schema([])
        for column in self.sort_by:
            if column not in columns.names:
                raise MissingColumnError(
                    f"table {table.location} has no column {column!r} to sort by; it has: "
                    f"{', '.join(columns.names)}",
                    column=column,
                )
            if not can_order(kind := columns.field(column).type):
                raise InvalidInputError(f"sort_by: values of column {column!r} ({kind}) have no order")
        for name in ("small_file_limit", "target_file_size", "max_groups", "max_group_size"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidInputError(f"{name} must be a whole number above 0, not {value!r}")
        if isinstance(self.min_age, bool) or not isinstance(self.min_age, int | float) or self.min_age < 0:
            raise InvalidInputError(f"min_age must be 0 seconds or more, not {self.min_age!r}")

    @property
    def described_layout(self) -> str:
        """The order of the rows as a text; equal orders have equal texts."""
        return f"{self.layout}({','.join(self.sort_by)})" if self.sort_by else "packed"


@dataclass(frozen=True)
class ClusteringGroup:
    """File groups of one partition whose rows are rewritten together into new file groups.

    :param partition_path: the partition.
    :param slices: the file slices to read.
    :param outputs: number of new file groups.
    :param size: bytes of their files; 0 where the plan does not contain it.
    :param resizing: the changes to buckets of consistent hashing, if there are any.
    """

    partition_path: str
    slices: tuple[FileSlice, ...]
    outputs: int
    size: int = 0
    resizing: Resizing | None = None

    @property
    def file_groups(self) -> frozenset[FileGroupId]:
        """The file groups that the clustering reads and replaces."""
        return frozenset(each.file_group for each in self.slices)


@dataclass(frozen=True)
class ClusteringPlan:
    """The plan of a clustering.

    :param settings: the settings that made it.
    :param groups: clustering groups, independent of each other.
    """

    settings: ClusteringSettings
    groups: tuple[ClusteringGroup, ...] = field(default_factory=tuple)

    @property
    def file_groups(self) -> frozenset[FileGroupId]:
        """The file groups that the clustering reads and replaces."""
        return frozenset(each for group in self.groups for each in group.file_groups)

    @property
    def resizes(self) -> bool:
        """Whether the clustering splits or merges buckets."""
        return any(group.resizing is not None for group in self.groups)

    def to_avro(self, storage: Storage) -> bytes:
        """The content of the requested instant: Hudi's ``HoodieRequestedReplaceMetadata``.

        :param storage: the table's storage.
        """
        settings = self.settings
        strategy: dict[str, Any] = {
            "hoodie.clustering.plan.strategy.small.file.limit": settings.small_file_limit,
            "hoodie.clustering.plan.strategy.target.file.max.bytes": settings.target_file_size,
            "hoodie.clustering.plan.strategy.max.bytes.per.group": settings.max_group_size,
        }
        if settings.sort_by:
            strategy["hoodie.clustering.plan.strategy.sort.columns"] = ",".join(settings.sort_by)
            strategy["hoodie.layout.optimize.strategy"] = LAYOUTS[settings.layout]
        plan = {
            "inputGroups": [_group_to_avro(storage, group) for group in self.groups],
            "strategy": {
                "strategyClassName": _RESIZING_STRATEGY if self.resizes else _STRATEGY,
                "strategyParams": {name: str(value) for name, value in strategy.items()},
            },
            "extraMetadata": {_SETTINGS_KEY: json.dumps(asdict(settings))},
            "preserveHoodieMetadata": True,
            "missingSchedulePartitions": [],
        }
        requested = {"operationType": "CLUSTER", "clusteringPlan": plan, "extraMetadata": {}}
        return encode("HoodieRequestedReplaceMetadata", requested)

    @classmethod
    def from_avro(cls, content: bytes) -> ClusteringPlan:
        """Read a requested instant of this package.

        :param content: bytes from :meth:`to_avro`.
        :raises CorruptTableError: when it is not an Avro file.
        :raises InvalidInputError: when another Hudi writer made the plan.
        """
        plan: Mapping[str, Any] = decode(content).get("clusteringPlan") or {}
        described = (plan.get("extraMetadata") or {}).get(_SETTINGS_KEY)
        if described is None:
            raise InvalidInputError(
                "the clustering plan was made by another Hudi writer, which carries it out"
            )
        given = json.loads(described)
        lists = {name: tuple(given[name]) for name in ("sort_by", "partitions")}
        return cls(
            ClusteringSettings(**{**given, **lists}), tuple(map(_group_from_avro, plan["inputGroups"]))
        )


def plan_clustering(
    table: HudiTable, settings: ClusteringSettings, view: FileSystemView, taken: frozenset[FileGroupId]
) -> ClusteringPlan | None:
    """Choose the file groups to cluster.

    :param table: the table.
    :param settings: which file groups to cluster, and their layout.
    :param view: the snapshot to plan on.
    :param taken: file groups to leave alone.
    :return: None when no file group would gain from clustering.
    """
    if table.bucket_index is not None and not isinstance(table.bucket_index, ConsistentBucketIndex):
        raise UnsupportedTableError(
            f"table {table.location} has a simple bucket index, by which each key stays in its file group: "
            "it is not clustered; compact it, if it is merge_on_read",
            location=table.location,
        )
    if table.bucket_index is None and table.is_merge_on_read:
        check_no_hashing_metadata(table.storage)
    groups_of = _groups_of if table.bucket_index is None else _resizings_of
    groups = [
        group
        for partition in view.partitions()
        if matches(partition, settings.partitions)
        for group in groups_of(table, settings, view, partition, taken)
    ]
    groups.sort(
        key=lambda group: (
            group.outputs - len(group.slices),
            group.partition_path,
            [each.paths for each in group.slices],
        )
    )
    chosen = tuple(groups[: settings.max_groups])
    return ClusteringPlan(settings, chosen) if chosen else None


def as_service_plan(plan: ClusteringPlan | None, storage: Storage) -> ServicePlan | None:
    """The plan in the form that :func:`~airflow_provider.concurrency.schedule` takes."""
    return ServicePlan(plan.file_groups, plan.to_avro(storage)) if plan else None


def _groups_of(
    table: HudiTable,
    settings: ClusteringSettings,
    view: FileSystemView,
    partition: str,
    taken: frozenset[FileGroupId],
) -> Iterator[ClusteringGroup]:
    now, zone = table.storage.clock(), timeline_zone(table.storage)
    check_no_buckets(table.location, view.base_files(partition))
    logs: dict[FileGroupId, list[BaseFile]] = {}
    for each in view.log_files(partition):
        logs.setdefault(each.file_group, []).append(each)
    small = [
        _Candidate(base_file, tuple(logs.get(base_file.file_group, ())))
        for base_file in view.base_files(partition)
        if base_file.size < settings.small_file_limit and base_file.file_group not in taken
    ]
    small = [each for each in small if age(each.last_instant, now, zone) >= settings.min_age]
    # Sorted by the time of writing: without a sort order, rows that arrived together stay together.
    small.sort(key=lambda each: (each.base_file.instant, each.base_file.file_id))
    merged = {each.file_group: each for each in slices_of(table, view, [partition])} if logs else {}
    for found in _packed(small, settings.max_group_size):
        size = sum(each.size for each in found)
        outputs = math.ceil(size / settings.target_file_size)
        gains = len(found) > outputs
        if settings.sort_by and not gains:
            gains = not _is_laid_out(view, found, settings)
        if gains:
            files = [each.base_file for each in found]
            slices = tuple(merged.get(each.file_group) or FileSlice.of(each) for each in files)
            yield ClusteringGroup(partition, slices, max(1, outputs), size)


def _resizings_of(
    table: HudiTable,
    settings: ClusteringSettings,
    view: FileSystemView,
    partition: str,
    taken: frozenset[FileGroupId],
) -> Iterator[ClusteringGroup]:
    now, zone = table.storage.clock(), timeline_zone(table.storage)
    usable = [
        each
        for each in sized_slices(table, view, partition)
        if each.file_slice.file_group not in taken and age(each.last_instant, now, zone) >= settings.min_age
    ]
    for found, resizing in resizings(table, view, partition, usable):
        slices = tuple(each.file_slice for each in found)
        size = sum(each.size for each in found)
        yield ClusteringGroup(partition, slices, len(resizing.made), size, resizing)


@dataclass(frozen=True)
class _Candidate:
    """A file slice that may be clustered."""

    base_file: BaseFile
    log_files: tuple[BaseFile, ...]

    @property
    def size(self) -> int:
        return self.base_file.size + sum(each.size for each in self.log_files)

    @property
    def last_instant(self) -> str:
        return max(each.instant for each in (self.base_file, *self.log_files))


def _packed(candidates: Iterable[_Candidate], most: int) -> Iterator[list[_Candidate]]:
    group: list[_Candidate] = []
    size = 0
    for each in candidates:
        if group and size + each.size > most:
            yield group
            group, size = [], 0
        group.append(each)
        size += each.size
    if group:
        yield group


def _is_laid_out(view: FileSystemView, found: Sequence[_Candidate], settings: ClusteringSettings) -> bool:
    """Whether one clustering has made all of these slices in this layout, so that another changes nothing."""
    instants = {each.instant for one in found for each in (one.base_file, *one.log_files)}
    made = view.timeline.find(instants.pop())
    if instants or made is None:
        return False
    metadata = view.timeline.commit_metadata(made)
    return metadata.extra_metadata.get(LAYOUT_KEY) == settings.described_layout


def _group_to_avro(storage: Storage, group: ClusteringGroup) -> dict[str, Any]:
    mib = group.size / MIB
    return {
        "slices": [
            {
                "dataFilePath": storage.url(each.base_path) if each.base_path else "",
                "deltaFilePaths": [storage.url(path) for path in each.log_paths],
                "fileId": each.file_id,
                "partitionPath": group.partition_path,
                "bootstrapFilePath": "",
            }
            for each in group.slices
        ],
        "metrics": {
            "TOTAL_IO_READ_MB": mib,
            "TOTAL_IO_WRITE_MB": mib,
            "TOTAL_IO_MB": 2 * mib,
            "TOTAL_LOG_FILES": float(sum(len(each.log_paths) for each in group.slices)),
            "TOTAL_LOG_FILES_SIZE": 0.0,
        },
        "numOutputFileGroups": group.outputs,
        "extraMetadata": group.resizing.to_avro(group.partition_path) if group.resizing else None,
    }


def _group_from_avro(record: Mapping[str, Any]) -> ClusteringGroup:
    slices = record["slices"]
    partition = slices[0]["partitionPath"]
    prefix = f"{partition}/" if partition else ""

    def path(url: str) -> str:
        return prefix + url.rpartition("/")[2]

    def instant(url: str) -> str:
        parsed = parse_data_file_name(url.rpartition("/")[2])
        return parsed.instant if parsed else ""

    return ClusteringGroup(
        partition,
        tuple(
            FileSlice(
                partition,
                each["fileId"],
                instant(each["dataFilePath"] or each["deltaFilePaths"][0]),
                path(each["dataFilePath"]) if each["dataFilePath"] else None,
                tuple(map(path, each["deltaFilePaths"])),
            )
            for each in slices
        ),
        record["numOutputFileGroups"],
        round(record["metrics"]["TOTAL_IO_READ_MB"] * MIB),
        Resizing.from_avro(record.get("extraMetadata")),
    )
