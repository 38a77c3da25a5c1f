"""The rows of a write on a Spark cluster; the driver never holds any."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial, reduce
from types import TracebackType
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from airflow_provider.exceptions import CommitError
from airflow_provider.ingestion.columns import BatchColumns
from airflow_provider.ingestion.file_groups import (
    ARRIVAL,
    TARGET,
    FileGroupPlan,
    Report,
    WritePlan,
    merged_reports,
)
from airflow_provider.ingestion.incoming_rows import BUCKETS, IncomingRows
from airflow_provider.ingestion.ingest_job import IngestJob
from airflow_provider.ingestion.key_lookup import (
    Living,
    comes_twice,
    dead_hits,
    is_there_already,
    lives_elsewhere,
)
from airflow_provider.spark.ingestion.batch_profile import BatchProfile
from airflow_provider.spark.ingestion.buckets import bucket_of_rows
from airflow_provider.spark.ingestion.progress import progress_logged
from airflow_provider.spark.ingestion.routing import (
    numbered,
    target_of_new_rows,
    with_partition_entry,
)
from airflow_provider.spark.ingestion.scan import (
    BucketRoutes,
    Routes,
    Rows,
    SharedRoutes,
    SourceScan,
    TaggedRows,
    find_buckets,
    packed,
    scanned,
    sent_again,
    tag_rows,
)
from airflow_provider.spark.ingestion.tagging import ELSEWHERE, FILE, TWICE, locate, tag
from airflow_provider.spark.ingestion.tagging_plan import TaggingPlan
from airflow_provider.spark.numbered_tasks import numbered_tasks, to_numbered_tasks
from airflow_provider.spark.packed_rows import PACKED_ROWS, unpacked
from airflow_provider.spark.session import parallelism, with_settings
from airflow_provider.spark.write_task import REPORT_SCHEMA, report_of, write_task, write_task_where_read
from airflow_provider.table.bucket_index import BucketIndex
from airflow_provider.table.file_groups import BaseFile, FileGroupId
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.keys import location_columns, partition_paths, record_keys
from airflow_provider.table.metadata_table import MetadataPartition, RecordLocation, UsableIndexes

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


_PLACES, _BUCKET = "_places", "_bucket"
_MOST_PACKED = 256  # targets; a task packs the rows of each apart, so that there should be many of them


@dataclass(frozen=True)
class _Sent:
    """Rows, and the targets that they are sent to.

    :param rows_of: returns the rows of some targets, by their numbers.
    :param counts: number of rows by target.
    :param partitions: partition path by target.
    """

    rows_of: Callable[[Collection[int]], DataFrame]
    counts: Mapping[int, int]
    partitions: Mapping[int, str]


@dataclass(frozen=True)
class _Tasks:
    """The tasks that write the rows of a plan.

    :param reports: their reports, when it is evaluated.
    :param rows_of: returns the rows of some targets, by their numbers.
    :param settings: Spark's settings during the evaluation.
    """

    reports: DataFrame
    rows_of: Callable[[Collection[int]], DataFrame]
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass
class SparkRows(IncomingRows):
    """Rows that fit into a table. As a context manager it frees Spark's cache.

    :param table: the table.
    :param columns: the rows' columns beside the table's.
    :param profile: the check of the rows.
    :param spark: the session.
    :param read: returns the rows as Spark reads them; the DataFrame is evaluated more than once.
    :param scan: the same rows as tasks read them with pyarrow; None if only Spark can read them.
    """

    table: HudiTable
    columns: BatchColumns
    profile: BatchProfile
    spark: SparkSession
    read: Callable[[], DataFrame]
    scan: SourceScan | None = None
    _sent: list[_Sent] = field(default_factory=list)
    _persisted: list[DataFrame] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.counts = self.profile.rows
        self._tags: DataFrame | None = None
        self._tagged: TaggedRows | None = None
        self._files: Sequence[BaseFile] = ()
        self._index: BucketIndex | None = None

    @classmethod
    def of(
        cls,
        job: IngestJob,
        table: HudiTable,
        columns: BatchColumns,
        profile: BatchProfile,
        spark: SparkSession,
        read: Callable[[], DataFrame],
        scan: SourceScan | None = None,
    ) -> SparkRows:
        """Prepare rows for a table.

        :param job: the ingestion.
        :param table: its table.
        :param columns: the rows' columns beside the table's.
        :param profile: the check of the rows.
        :param spark: the session.
        :param read: returns the rows, with the table's types where Spark needs these.
        :param scan: the scan of the same rows, if there is one.
        """
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        @cache  # no two columns of arrivals are alike to Spark
        def with_arrival() -> DataFrame:
            return read().withColumn(ARRIVAL, F.monotonically_increasing_id())

        looks_up_keys = job.kind_on(table).looks_up_keys
        return cls(table, columns, profile, spark, with_arrival if looks_up_keys else read, scan)

    @property
    def frame(self) -> DataFrame:
        """The rows as Spark reads them."""
        return self.read()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._persisted:
            self._persisted.pop().unpersist()

    def find(
        self,
        base_files: Mapping[str, Sequence[BaseFile]],
        indexes: UsableIndexes | None = None,
        living: Living | None = None,
    ) -> Mapping[BaseFile, int]:
        """See :meth:`IncomingRows.find`."""
        table = self.table
        if indexes is not None and indexes.has(MetadataPartition.RECORD_INDEX):
            self.located_by = str(MetadataPartition.RECORD_INDEX)
            live = [base_file for _, files in sorted(base_files.items()) for base_file in files]
            plan = TaggingPlan(table.storage, table.config, tuple(live), indexes=indexes)
        else:
            self.located_by = self._looked_in(indexes)
            plan = TaggingPlan.of_files(table, base_files, indexes)
        self._files = plan.files
        if self.scan is not None:
            with with_settings(self.spark, PACKED_ROWS):
                self._tagged = tag_rows(self.spark, self.scan, plan, self._persist, living)
            return {self._files[number]: count for number, count in self._tagged.counts.items()}
        found = tag(self.frame, self.profile, plan) if plan.bundles else locate(self.frame, plan)
        self._tags = self._persist(found)
        if living is not None:
            self._tags = self._without_the_dead(self._tags, living)
        hits = {row[FILE]: row["count"] for row in self._tags.groupBy(FILE).count().toArrow().to_pylist()}
        if hits.get(TWICE):
            raise comes_twice(self._key_of(self._tags.where(f"{FILE} = {TWICE}"))[0])
        if indexes is not None and hits.get(ELSEWHERE):
            key, path, location = self._located(self._tags.where(f"{FILE} = {ELSEWHERE}"), indexes)
            raise lives_elsewhere(key, location, path)
        return {self._files[number]: count for number, count in hits.items()}

    def _without_the_dead(self, tags: DataFrame, living: Living) -> DataFrame:
        """See :func:`~airflow_provider.ingestion.key_lookup.without_the_dead`. Such keys are few."""
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        names = location_columns(self.table.config)
        places = tags.groupBy(*names).agg(F.collect_set(FILE).alias(_PLACES)).where(F.size(_PLACES) > 1)
        found = places.toArrow()
        if not found.num_rows:
            return tags
        rows = found.select(names)
        keys = record_keys(rows.cast(self._schema(rows)), self.table.config)
        at: dict[int, list[int]] = {}
        for position, numbers in enumerate(found[_PLACES].to_pylist()):
            for number in sorted(numbers):
                at.setdefault(number, []).append(position)
        out = dead_hits({self._files[number]: each for number, each in sorted(at.items())}, keys, living)
        gone = [
            rows.take(pa.array(each)).append_column(FILE, pa.array([number] * len(each), pa.int32()))
            for number in sorted(at)
            if len(each := out[self._files[number]])
        ]
        if not gone:
            return tags
        dead = tags.sparkSession.createDataFrame(pa.concat_tables(gone))
        conditions = [tags[name].eqNullSafe(dead[name]) for name in (*names, FILE)]
        return tags.join(F.broadcast(dead), reduce(lambda one, other: one & other, conditions), "left_anti")

    def check_new(self, indexes: UsableIndexes, replaced: Collection[FileGroupId] = ()) -> None:
        """See :meth:`IncomingRows.check_new`."""
        names = location_columns(self.table.config)
        repeated = self.frame.groupBy(*self.table.config.record_key_fields).count().where("count > 1")
        if found := repeated.limit(1).toArrow().to_pylist():
            rows = pa.Table.from_pylist(found).select(list(self.table.config.record_key_fields))
            raise comes_twice(record_keys(rows.cast(self._schema(rows)), self.table.config)[0].as_py())
        leaving = tuple(BaseFile(*group, "", "", "", 0) for group in sorted(replaced))
        plan = TaggingPlan(self.table.storage, self.table.config, leaving, indexes=indexes, moves=True)
        known = locate(self.frame, plan)
        known = known.where(f"{FILE} = {ELSEWHERE}").limit(1)
        if known.count():
            key, _, location = self._located(known.select(*names), indexes)
            raise is_there_already(key, location)

    def _located(self, tags: DataFrame, indexes: UsableIndexes) -> tuple[str, str, RecordLocation]:
        """Key, partition path and location of one row, for an error."""
        key, path = self._key_of(tags)
        return key, path, (indexes.locations([key]) or {})[key]

    def _key_of(self, tags: DataFrame) -> tuple[str, str]:
        rows = tags.select(*location_columns(self.table.config)).limit(1).toArrow()
        rows = rows.cast(self._schema(rows))
        (key,), (path,) = record_keys(rows, self.table.config), partition_paths(rows, self.table.config)
        return key.as_py(), path.as_py()

    def _schema(self, rows: pa.Table) -> pa.Schema:
        return pa.schema([self.columns.table.field(name).with_nullable(True) for name in rows.schema.names])

    def in_buckets(self, index: BucketIndex) -> Mapping[str, Collection[int]]:
        """See :meth:`IncomingRows.in_buckets`."""
        self.located_by, self._index = BUCKETS, index
        if index.buckets == 1:
            return {path: [0] for path, count in self.counts.items() if count}
        if self.scan is not None:
            return find_buckets(self.spark, self.scan, self.table.config, index)
        paths = self.profile.paths
        places = {path: place for place, path in enumerate(paths)}
        frame, place = with_partition_entry(self.frame, self.profile, places, pa.int32())
        bucket = bucket_of_rows(frame, place, paths, self.table.config, index)
        found: dict[str, list[int]] = {}
        for row in frame.select(place.alias(_PLACES), bucket.alias(_BUCKET)).distinct().toArrow().to_pylist():
            found.setdefault(paths[row[_PLACES]], []).append(row[_BUCKET])
        return found

    def send(self, plan: FileGroupPlan, write_plan: WritePlan) -> list[Report]:
        """See :meth:`IncomingRows.send`."""
        tasks = self._by_scan(plan, write_plan) or self._by_frame(plan, write_plan)
        with progress_logged(write_plan), with_settings(self.spark, tasks.settings):
            reports = merged_reports(report_of(row) for row in tasks.reports.toArrow().to_pylist())
        counts = {report.target: report.rows_in for report in reports}
        partitions = {number: target.partition_path for number, target in plan.targets.items()}
        self._sent.append(_Sent(tasks.rows_of, counts, partitions))
        return reports

    def _by_scan(self, plan: FileGroupPlan, write_plan: WritePlan) -> _Tasks | None:
        """The writing tasks, if they read the rows themselves; None if Spark reads them."""
        scan, tagged, config = self.scan, self._tagged, self.table.config
        if scan is None or (tagged is None and len(plan.targets) > _MOST_PACKED):
            return None
        routes: Routes = SharedRoutes(config, plan.shares)
        if self._index is not None:
            routes = BucketRoutes(config, self._index, plan.buckets)
        rows: Rows = partial(scanned, scan, routes)
        tasks = numbered_tasks(self.spark, len(scan.tasks))
        if tagged is not None and tagged.counts:
            targets = [plan.updates.get(base_file.file_group, -1) for base_file in self._files]
            rows = partial(scanned, scan, routes, tags=tagged.tags(targets))
            tasks = tagged.by_task(len(scan.tasks))
        if self._stay_where_read(plan):
            reports = tasks.mapInArrow(write_task_where_read(write_plan, rows), REPORT_SCHEMA)
        else:
            sent = packed(tasks, rows, plan.first)
            moved = to_numbered_tasks(sent, sent[TARGET] - plan.first, len(plan.targets))
            reports = moved.mapInArrow(write_task(write_plan, unpacked), REPORT_SCHEMA)
        return _Tasks(reports, partial(sent_again, tasks, rows, scan), PACKED_ROWS)

    def _by_frame(self, plan: FileGroupPlan, write_plan: WritePlan) -> _Tasks:
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        if plan.buckets and self._index is not None:
            frame, target = self._by_buckets(plan, self._index)
        else:
            key_columns = self.table.config.record_key_fields
            frame, target = target_of_new_rows(self.frame, self.profile, plan.shares, key_columns)
        if self._tags is not None:
            frame, target = self._with_tags(frame, target, self._tags, plan)
        sent = numbered(frame, target, self.frame.columns)
        if self._stay_where_read(plan):
            reports = sent.mapInArrow(write_task_where_read(write_plan), REPORT_SCHEMA)
        else:
            moved = to_numbered_tasks(sent, F.col(TARGET) - plan.first, len(plan.targets)).drop(TARGET)
            reports = moved.mapInArrow(write_task(write_plan), REPORT_SCHEMA)
        return _Tasks(reports, lambda numbers: sent.where(F.col(TARGET).isin(list(numbers))).drop(TARGET))

    def _stay_where_read(self, plan: FileGroupPlan) -> bool:
        spread = self.profile.spread
        return spread is not None and spread.suffices(len(plan.targets), parallelism(self.spark))

    def sent_to(self, numbers: Collection[int]) -> SparkRows:
        """See :meth:`IncomingRows.sent_to`.

        :raises CommitError: when the source returns other rows than the first time.
        """
        chosen, counts = [], dict.fromkeys(self.counts, 0)
        for sent in self._sent:
            here = sorted(sent.counts.keys() & set(numbers))
            if here:
                chosen.append(sent.rows_of(here))
            for number in here:
                counts[sent.partitions[number]] += sent.counts[number]
        frame = self._persist(reduce(lambda one, other: one.unionByName(other), chosen))
        if (came := frame.count()) != sum(counts.values()):
            raise CommitError(
                f"table {self.table.location}: {sum(counts.values())} rows were to be merged again, and the "
                f"source has {came} of them now: it changed meanwhile, or gives other rows every time; let "
                "it come to rest, or materialise it, and try again"
            )
        profile = replace(self.profile, rows={path: count for path, count in counts.items() if count})
        return replace(
            self, profile=profile, read=lambda: frame, scan=None, _sent=self._sent, _persisted=self._persisted
        )

    def unsent(self) -> SparkRows:
        """See :meth:`IncomingRows.unsent`."""
        return replace(self, _sent=[])

    def _persist(self, frame: DataFrame) -> DataFrame:
        self._persisted.append(frame.persist())
        return self._persisted[-1]

    def _by_buckets(self, plan: FileGroupPlan, index: BucketIndex) -> tuple[DataFrame, Column]:
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        paths = self.profile.paths
        entries = {
            path: {
                "place": place,
                "targets": [plan.buckets.get(path, {}).get(bucket) for bucket in range(index.buckets)],
            }
            for place, path in enumerate(paths)
        }
        kind = pa.struct([("place", pa.int32()), ("targets", pa.list_(pa.int32()))])
        frame, entry = with_partition_entry(self.frame, self.profile, entries, kind)
        bucket = bucket_of_rows(frame, entry["place"], paths, self.table.config, index)
        return frame, F.element_at(entry["targets"], bucket + 1)

    def _with_tags(
        self, frame: DataFrame, target: Column, tags: DataFrame, plan: FileGroupPlan
    ) -> tuple[DataFrame, Column]:
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        names = location_columns(self.table.config)
        renamed = tags.select(*(F.col(name).alias(f"_tagged_{name}") for name in names), FILE)
        conditions = [F.col(name).eqNullSafe(F.col(f"_tagged_{name}")) for name in names]
        joined = frame.withColumn("_new_target", target).join(
            renamed, reduce(lambda one, other: one & other, conditions), "left"
        )
        numbers = [plan.updates.get(base_file.file_group) for base_file in self._files]
        of_file = F.element_at(F.lit(numbers).cast("array<int>"), F.col(FILE) + 1)
        return joined, F.when(F.col(FILE).isNull(), F.col("_new_target")).otherwise(of_file)
