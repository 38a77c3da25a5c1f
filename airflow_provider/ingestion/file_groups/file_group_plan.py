"""The plan of a write: it assigns rows to file groups, by row counts and file sizes only.

Source of the rules: Hudi's ``UpsertPartitioner`` (small files take inserts first, then new file groups of the
target size), and, for a table with a bucket index, ``SparkBucketIndexPartitioner`` (:class:`Buckets`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from airflow_provider.ingestion.ingest_job import IngestJob
from airflow_provider.table.bucket_index import BucketIndex
from airflow_provider.table.file_groups import BaseFile, FileGroupId, FileSlice, FileSystemView
from airflow_provider.table.file_names import new_file_id
from airflow_provider.table.files import parse_data_file_name
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.reading import slices_of
from airflow_provider.table.timeline import Timeline, WriteStat

_COMMITS_TO_LEARN_FROM = 5
_FULL_ENOUGH = 1.1  # times the target size: up to this size, a partition's only file group takes all rows


@dataclass(frozen=True)
class Target:
    """One task's work: the next base file of one file group, or a log file.

    :param partition_path: partition path relative to the table.
    :param file_id: the file group; for a new one the id of its first file.
    :param base_file: the slice whose rows are kept; None when there is none. If it belongs to another file
        group, the new file group replaces that one.
    :param appends: whether the rows go into a log file, and the base file stays.
    :param log_paths: the slice's present log files, in the order in which they are merged.
    :param merges_in_any_order: whether the rows go into a log file whatever the file slice has, because other
        writers may append to it at the same time. The present log files are not needed then, and not named.
    :param is_there: whether the file group exists, with a base file or log files.
    """

    partition_path: str
    file_id: str
    base_file: BaseFile | None = None
    appends: bool = False
    log_paths: tuple[str, ...] = ()
    merges_in_any_order: bool = False
    is_there: bool = False

    @classmethod
    def existing(cls, base_file: BaseFile) -> Target:
        """The next slice of a file group."""
        return cls(base_file.partition_path, base_file.file_id, base_file)

    @classmethod
    def replacing(cls, base_file: BaseFile) -> Target:
        """A new file group that replaces an existing one."""
        return cls(base_file.partition_path, new_file_id(), base_file)

    @property
    def replaced(self) -> FileGroupId | None:
        """The file group that this new one replaces; None where it replaces none."""
        if self.base_file is None or self.base_file.file_id == self.file_id:
            return None
        return self.base_file.file_group

    @property
    def before(self) -> FileGroupId | None:
        """The existing file group that gets a new slice or a log file, or is replaced."""
        if self.base_file is not None:
            return self.base_file.file_group
        is_there = self.is_there or self.log_paths
        return FileGroupId(self.partition_path, self.file_id) if is_there else None

    @property
    def last_instant(self) -> str:
        """The largest requested time of the present slice's files; empty where there is no slice."""
        paths = (*((self.base_file.path,) if self.base_file else ()), *self.log_paths)
        names = (path.rpartition("/")[2] for path in paths)
        return max((parsed.instant for each in names if (parsed := parse_data_file_name(each))), default="")

    @classmethod
    def new(cls, partition_path: str) -> Target:
        """A new file group."""
        return cls(partition_path, new_file_id())


@dataclass
class FileGroupPlan:
    """Numbered targets, and the distribution of the rows of every partition over them.

    :param first: number of the first target.
    :param targets: targets by consecutive numbers.
    :param shares: by partition path: numbers of the targets that take its new rows, each with its number of
        rows. Rows with new keys are distributed by a hash of their key, in these proportions.
    :param to_tag: partitions whose rows have to be looked up first, because their keys can be in several file
        groups.
    :param updates: target number by file group, for rows that were looked up.
    :param not_filled: small files that get no new rows, because the new rows are too few to be worth
        rewriting them.
    :param buckets: by partition path: target number by bucket, for a table with a bucket index.
    """

    first: int = 0
    targets: dict[int, Target] = field(default_factory=dict)
    shares: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    to_tag: dict[str, list[BaseFile]] = field(default_factory=dict)
    updates: dict[FileGroupId, int] = field(default_factory=dict)
    not_filled: list[BaseFile] = field(default_factory=list)
    buckets: dict[str, dict[int, int]] = field(default_factory=dict)

    @property
    def file_groups(self) -> list[FileGroupId]:
        """Existing file groups that get a new slice."""
        return [before for target in self.targets.values() if (before := target.before) is not None]

    @property
    def appended(self) -> list[FileGroupId]:
        """Existing file groups that get a log file."""
        return [before for each in self.targets.values() if each.appends and (before := each.before)]

    @property
    def new_in(self) -> list[str]:
        """Partitions that get new file groups."""
        return sorted({target.partition_path for target in self.targets.values() if target.before is None})

    def append_updates(self, log_paths: Mapping[FileGroupId, tuple[str, ...]]) -> None:
        """Direct updates to log files, except in file groups that take new rows as well.

        :param log_paths: the present log files, by file group.
        """
        written_anew = {number for shares in self.shares.values() for number, _ in shares}
        for group, number in self.updates.items():
            if number not in written_anew:
                found = log_paths.get(group, ())
                self.targets[number] = replace(self.targets[number], appends=True, log_paths=found)

    def add(self, target: Target) -> int:
        """Add a target and return its number."""
        number = self.first + len(self.targets)
        self.targets[number] = target
        return number


@dataclass(frozen=True)
class Buckets:
    """The file groups of a table with a bucket index, as one write sees them.

    A bucket has one file group in each partition. The first write to the bucket makes the file group: by a
    log file under non-blocking concurrency, otherwise by a base file. An overwrite makes new file groups.

    :param table: the table.
    :param index: its bucket index.
    :param view: the snapshot that the write sees.
    """

    table: HudiTable
    index: BucketIndex
    view: FileSystemView

    @classmethod
    def of(cls, table: HudiTable, view: FileSystemView) -> Buckets | None:
        """The buckets of a table; None when it has no bucket index.

        :param table: the table.
        :param view: the snapshot that the write sees.
        """
        return None if table.bucket_index is None else cls(table, table.bucket_index, view)

    def on(self, partitions: Iterable[str]) -> Buckets:
        """The present buckets of some partitions. A partition without buckets gets its first ones.

        :param partitions: partition paths.
        """
        return replace(self, index=self.index.on(self.table.storage, self.view, partitions))

    def live(self, partitions: Iterable[str]) -> set[FileGroupId]:
        """The live file groups of some partitions.

        :param partitions: partition paths.
        """
        return {each.file_group for each in slices_of(self.table, self.view, partitions)}

    def plan(
        self,
        rows: Mapping[str, Collection[int]],
        *,
        first: int,
        written: Collection[FileGroupId],
        adds: bool,
        overwrites: bool,
    ) -> FileGroupPlan:
        """Plan a write.

        :param rows: the buckets that the rows belong to, by partition path.
        :param first: number of the first target.
        :param written: file groups that this write has written already.
        :param adds: whether rows with new keys are added; a delete adds none. Under non-blocking concurrency
            both make the file group of their bucket.
        :param overwrites: whether the partitions' file groups are taken out, so that each bucket gets a new
            one.
        :raises UnsupportedTableError: when the files show another number of buckets.
        :raises CorruptTableError: when a bucket has two file groups.
        """
        plan = FileGroupPlan(first)
        if self.table.is_non_blocking and not overwrites:
            self._append(plan, rows, written)
            return plan
        for partition, numbers in sorted(rows.items()):
            slices = {each.file_id: each for each in slices_of(self.table, self.view, [partition])}
            live = self.index.file_groups(partition, slices)
            for number in sorted(numbers):
                file_slice = slices[live[number]] if number in live and not overwrites else None
                if file_slice is None and not adds:
                    continue  # there is nothing to delete
                there = {FileGroupId(partition, each) for each in slices}
                target = self._target(partition, number, file_slice, there if overwrites else None)
                if FileGroupId(partition, target.file_id) not in written:
                    plan.buckets.setdefault(partition, {})[number] = plan.add(target)
        return plan

    def _append(
        self,
        plan: FileGroupPlan,
        rows: Mapping[str, Collection[int]],
        written: Collection[FileGroupId],
    ) -> None:
        """Direct the rows to log files, without reading the file slices.

        A delete goes into a bucket without a file group, too: a writer in flight may be about to make it.
        """
        for partition, numbers in sorted(rows.items()):
            live = self.index.file_groups(partition, self.view.file_ids(partition))
            for number in sorted(numbers):
                file_id = live.get(number) or self.index.first_file_id(partition, number, self.view.replaced)
                group = FileGroupId(partition, file_id)
                if group in written:
                    continue
                base_file = self.view.base_file(group)
                target = Target(
                    partition,
                    file_id,
                    base_file,
                    appends=True,
                    merges_in_any_order=True,
                    is_there=number in live,
                )
                plan.buckets.setdefault(partition, {})[number] = plan.add(target)

    def _target(
        self, partition: str, number: int, file_slice: FileSlice | None, taken_out: set[FileGroupId] | None
    ) -> Target:
        if taken_out is not None:
            spent = taken_out | self.view.replaced.keys()
            return Target(partition, self.index.overwriting_file_id(partition, number, spent))
        if file_slice is None:
            return Target(partition, self.index.first_file_id(partition, number, self.view.replaced))
        return Target(
            partition,
            file_slice.file_id,
            self.view.base_file(file_slice.file_group),
            appends=self.table.is_merge_on_read,
            log_paths=file_slice.log_paths,
        )


def bytes_per_row(
    timeline: Callable[[], Timeline], schema: pa.Schema, *, worth_knowing: float = 0.0
) -> float:
    """Bytes of a row in a base file: from the newest commits, or estimated from the types.

    :param timeline: returns the table's timeline; called only where a better estimate matters.
    :param schema: the table's data columns.
    :param worth_knowing: bytes; an estimate below this is good enough.
    """
    guess = _META_BYTES + sum(_guess(column.type) for column in schema)
    if guess < worth_knowing:
        return guess
    found = timeline()
    for instant in list(reversed(found.commits()))[:_COMMITS_TO_LEARN_FROM]:
        known = [s for s in found.commit_metadata(instant).write_stats if s.num_writes]
        # Footers and bloom filters dominate files with a few rows, so these tell nothing about large files.
        rows = sum(stat.num_writes for stat in known)
        if rows >= 1000 * len(known) > 0:
            return _size_of(known) / rows
    return guess


def plan_without_tagging(
    job: IngestJob,
    view: FileSystemView,
    rows: Mapping[str, int],
    row_bytes: float,
    *,
    first: int = 0,
    written: Collection[FileGroupId] = (),
    closed: Collection[FileGroupId] = (),
    unique: bool = False,
    logs: bool = False,
) -> FileGroupPlan:
    """Plan the partitions whose rows need not be looked up; name the others in ``to_tag``.

    No look-up is needed if keys do not matter, if the partition has no file group yet, or if it has exactly
    one file group, which takes the new rows as well. If a key can be in any partition, all rows are looked
    up.

    :param job: the ingestion.
    :param view: the table as this write sees it; only the named partitions are listed.
    :param rows: incoming rows by partition path.
    :param row_bytes: see :func:`bytes_per_row`.
    :param first: number of the first target.
    :param written: file groups that this write has written already, and that get no more rows.
    :param closed: file groups that get no new rows, because another Hudi writer is about to cluster them, or
        because they have log files.
    :param unique: whether a key is unique across the table's partitions, because of a record index.
    :param logs: whether updates go into log files, so that the plan separates them from new rows.
    """
    plan = FileGroupPlan(first)
    kind, full = job.kind, {*written, *closed}
    if kind.looks_up_keys or kind.fills_small_files:
        view.look_at(rows)
    for partition, count in sorted(rows.items()):
        if not kind.looks_up_keys:
            small = _others(view.base_files(partition), full) if kind.fills_small_files else []
            add_shares(plan, job, partition, count, small, row_bytes)
            continue
        live = view.base_files(partition)
        if unique:
            plan.to_tag[partition] = live
        elif not live:
            if kind.fills_small_files:  # otherwise this is a delete, and there is no row to delete
                add_shares(plan, job, partition, count, [], row_bytes)
        elif (
            not logs
            and len(_others(live, full)) == len(live) == 1
            and _takes_all(job, live[0], count, row_bytes)
        ):
            plan.shares[partition] = [(plan.add(Target.existing(live[0])), count)]
        else:
            plan.to_tag[partition] = live
    return plan


def plan_tagged(
    plan: FileGroupPlan,
    job: IngestJob,
    rows: Mapping[str, int],
    hits: Mapping[BaseFile, int],
    row_bytes: float,
    *,
    written: Collection[FileGroupId] = (),
    closed: Collection[FileGroupId] = (),
    logs: bool = False,
) -> None:
    """Plan the partitions whose rows had to be looked up.

    :param plan: a plan of :func:`plan_without_tagging`; extended here.
    :param job: the ingestion.
    :param rows: incoming rows by partition path.
    :param hits: number of rows whose key is in a base file, by base file.
    :param row_bytes: see :func:`bytes_per_row`.
    :param written: see :func:`plan_without_tagging`. A key in such a file group needs no target, because its
        row was merged there.
    :param closed: see :func:`plan_without_tagging`.
    :param logs: see :func:`plan_without_tagging`.
    """
    found = dict.fromkeys(plan.to_tag, 0)
    for base_file in sorted(hits, key=lambda each: each.file_group):
        found[base_file.partition_path] += hits[base_file]
        if base_file.file_group not in written:
            plan.updates[base_file.file_group] = plan.add(Target.existing(base_file))
    if not job.kind.fills_small_files:
        return
    for partition, live in plan.to_tag.items():
        others = _others(live, {*written, *closed})
        add_shares(plan, job, partition, rows[partition] - found[partition], others, row_bytes)
        hit = [base_file for base_file in live if base_file in hits]
        if partition not in plan.shares and len(hit) > 1:
            # A key in several file groups counts several times, so there may be new rows although the count
            # shows none. They go into a file group that is rewritten in any case.
            anyway = () if logs else hit
            numbers = [plan.updates[each.file_group] for each in anyway if each.file_group in plan.updates]
            plan.shares[partition] = [(numbers[0] if numbers else plan.add(Target.new(partition)), 1)]


def add_shares(
    plan: FileGroupPlan,
    job: IngestJob,
    partition: str,
    count: int,
    live: Sequence[BaseFile],
    row_bytes: float,
) -> None:
    """Distribute the new rows of a partition: small file groups first, then new ones.

    :param plan: the plan; extended here.
    :param job: the ingestion.
    :param partition: partition path.
    :param count: new rows.
    :param live: the partition's file groups.
    :param row_bytes: see :func:`bytes_per_row`.
    """
    shares = []
    for base_file in sorted(live, key=lambda each: (each.size, each.file_id)):
        room = int((job.sizes.target_file_size - base_file.size) / row_bytes)
        if base_file.size >= job.sizes.fills_below or room <= 0 or count <= 0:
            break
        number, taken = plan.updates.get(base_file.file_group), min(room, count)
        if number is None:
            if not job.sizes.is_worth_filling(base_file.size, taken * row_bytes):
                plan.not_filled.append(base_file)
                continue
            number = plan.add(Target.existing(base_file))
        shares.append((number, taken))
        count -= taken
    if count > 0:
        new = math.ceil(count * row_bytes / job.sizes.target_file_size)
        shares += [(plan.add(Target.new(partition)), math.ceil(count / new)) for _ in range(new)]
    if shares:
        plan.shares[partition] = shares


def _others(live: Sequence[BaseFile], written: Collection[FileGroupId]) -> list[BaseFile]:
    return [base_file for base_file in live if base_file.file_group not in written]


def _takes_all(job: IngestJob, base_file: BaseFile, count: int, row_bytes: float) -> bool:
    # A delete adds no row. The number of new rows in an upsert is not known yet.
    added = count * row_bytes if job.kind.fills_small_files else 0
    return base_file.size + added <= _FULL_ENOUGH * job.sizes.target_file_size or not added


def _size_of(stats: Sequence[WriteStat]) -> int:
    return sum(stat.file_size for stat in stats)


_META_BYTES = 24  # bytes per row of Hudi's columns and the bloom filter, compressed


def _guess(kind: pa.DataType) -> float:
    if pa.types.is_nested(kind):
        children = (kind.field(position).type for position in range(kind.num_fields))
        return sum(map(_guess, children)) * (1 if pa.types.is_struct(kind) else 4)
    try:
        return float(kind.bit_width) / 16  # encoded and compressed to about half
    except ValueError:
        return 12  # text and bytes
