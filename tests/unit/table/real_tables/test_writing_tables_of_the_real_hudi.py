"""Tables of version 9 by the JVM's Hudi take writes and table services, or refuse them by name.

After each step this package and hudi-rs show the expected rows. A refused step leaves every file as it was.
``make fixtures`` makes the tables; see :mod:`tests.real_hudi.fixtures`.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder

from airflow_provider.exceptions import TableServiceError
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.archival import archive
from airflow_provider.services.cleaning.clean_plan import CleaningPolicy, Retention
from airflow_provider.services.cleaning.cleaning import clean
from airflow_provider.services.clustering.clustering import cluster_in_process, schedule_clustering
from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
from airflow_provider.services.table_compaction import TableCompactionSettings, compact_table
from airflow_provider.services.table_options import change_options
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.metadata_table.partitions import MetadataPartition
from airflow_provider.table.reading import file_slices
from tests.sweep import share_of
from tests.unit.table.real_tables.test_tables_of_the_real_hudi import FIXTURES, NAMES

BUCKETS = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 2}
CONSISTENT = BUCKETS | {
    "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
    "hoodie.bucket.index.min.num.buckets": 1,
    "hoodie.bucket.index.max.num.buckets": 4,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "cow_buckets": BUCKETS,
    "mor_buckets": BUCKETS,
    "mor_consistent_buckets": CONSISTENT,
    "mor_resizing_planned": CONSISTENT,
    "mor_resized_while_written": CONSISTENT,
    "mor_at_once": BUCKETS | {"hoodie.bucket.index.num.buckets": 1},
}
"""Options of the JVM's writes, which the table does not tell."""

TRACES = re.compile(r"\.hoodie/(\.other_writers|commit_log/\d+\.json|timeline/\d+(_\d+)?\.rollback(\.\w+)?)")
"""What a refused write leaves: the rollback of its own instant."""

LEASES = ("locks", ".heartbeat")

STEPS = ("upsert", "delete", "index", "clustering", "compaction", "clean", "archival")
WRITES = ("upsert", "delete")
REWRITES = (*WRITES, "clustering")
OTHERS_WRITE = {("index",): "FilesystemLockProvider does not keep it out"}
OPTIONS_MISSING = {REWRITES: "the table's options do not say so; set hoodie.index.type=BUCKET"}
FOLDERS_OF_THEIRS = {STEPS: "its partition paths are not made here"}
NO_META_FIELDS = {STEPS: "the _hoodie_ columns are needed"}
PARTIAL_ROWS = {WRITES: r"\(hoodie.table.partial.update.mode\): such rows are not written to log files"}
CDC = {WRITES: "its CDC queries would miss the changes"}
UNFINISHED = {
    (*WRITES, "compaction"): "of another Hudi writer is pending without a heartbeat",
    **OTHERS_WRITE,
}
CLUSTERING_PLANNED = {WRITES: "CLUSTER .* by another Hudi writer, .* is requested", **OTHERS_WRITE}
SIMPLE_BUCKETS = {("clustering",): "has a simple bucket index"}

REFUSED: dict[str, dict[tuple[str, ...], str]] = {
    "cow_buckets": OPTIONS_MISSING,
    "cow_buckets with options": SIMPLE_BUCKETS,
    "cow_captures_changes": CDC,
    "cow_clustering_planned": CLUSTERING_PLANNED,
    "cow_custom_partitions": FOLDERS_OF_THEIRS,
    "cow_custom_partitions_of_time": FOLDERS_OF_THEIRS,
    "cow_dates_as_folders": FOLDERS_OF_THEIRS,
    "cow_expression_index": {STEPS: "index drop .* expr_index_by_day"},
    "cow_names": {WRITES: "column 'größe' cannot be stored"},
    "cow_no_key": {WRITES: "a table with a record key"},
    "cow_no_meta_fields": NO_META_FIELDS,
    "cow_no_partition_columns": {STEPS: "its files lack the partition columns"},
    "cow_one_failed": UNFINISHED,
    "cow_partitioned_record_index": {STEPS: "index drop .* record_index"},
    "cow_secondary_index": {STEPS: "index drop .* secondary_index_by_name"},
    "cow_timestamp_partitions": FOLDERS_OF_THEIRS,
    "mor_at_once": {WRITES: "is log files alone, in which an index of another Hudi writer finds its keys"},
    "mor_at_once with options": SIMPLE_BUCKETS,
    "mor_buckets": OPTIONS_MISSING,
    "mor_buckets with options": SIMPLE_BUCKETS,
    "mor_captures_changes": CDC,
    "mor_consistent_buckets": OPTIONS_MISSING,
    "mor_no_meta_fields": NO_META_FIELDS,
    "mor_non_defaults": PARTIAL_ROWS,
    "mor_one_failed_v9": UNFINISHED,
    "mor_partial_update": PARTIAL_ROWS,
    "mor_postgres": PARTIAL_ROWS,
    "mor_resized_while_written": OPTIONS_MISSING,
    "mor_resizing_planned": {**OPTIONS_MISSING, **OTHERS_WRITE},
    "mor_resizing_planned with options": CLUSTERING_PLANNED,
}
"""The steps that are refused, with what the error says; every other table takes every step."""


def of_version_9() -> list[str]:
    return [name for name in NAMES if json.loads((FIXTURES / f"{name}.json").read_text())["version"] == 9]


class Written:
    """A copy of a table, and the rows that it has to show.

    :param location: an empty folder.
    :param name: the table's name.
    """

    def __init__(self, location: Path, name: str) -> None:
        with zipfile.ZipFile(FIXTURES / f"{name}.zip") as archive_:
            archive_.extractall(location)
        self.location = str(location)
        self.rows = self.shown().to_pylist()
        self.is_read_by_hudi_rs = in_order(self.rows) == self.shown_by_hudi_rs()

    @property
    def table(self) -> HudiTable:
        return HudiTable.open(self.location)

    def shown(self) -> pa.Table:
        return snapshot(self.table).to_table()

    def shown_by_hudi_rs(self) -> list[str]:
        """The rows that hudi-rs shows; none where it does not read the table."""
        try:
            batches = HudiTableBuilder.from_base_uri(self.location).build().read()
            found = pa.Table.from_batches(batches).select(self.table.schema.names)
        except BaseException as error:  # its panics are no exceptions
            if isinstance(error, KeyboardInterrupt):
                raise
            return [str(error)]
        return in_order(found.to_pylist())

    def is_hidden_from_hudi_rs(self) -> bool:
        """Whether a file group is log files alone: hudi-rs 0.5.0 does not find it in the index ``files``."""
        alone = (each.base_path is None for each in file_slices(self.table))
        return "files" in self.table.config.metadata_partitions and any(alone)

    def files(self) -> dict[str, bytes]:
        root = Path(self.location)
        return {
            str(each.relative_to(root)): each.read_bytes()
            for each in root.rglob("*")
            if each.is_file() and each.parent.name not in LEASES
        }

    # --- the steps --------------------------------------------------------------------------------

    def upsert(self) -> None:
        """Change a row, and add one where a key can be made of text."""
        columns = self.shown().schema
        config = self.table.config
        fixed = {*config.record_key_fields, *config.partition_fields, *config.ordering_fields}
        column = next(each for each in ("name", "v", "n") if each in columns.names and each not in fixed)
        value = pa.scalar(77).cast(columns.field(column).type).as_py()
        changed = [self.rows[0] | {column: value}]
        if pa.types.is_string(columns.field("id").type):
            changed.append(self.rows[0] | {"id": "k99", column: value})
        ingest_arrow(self.location, pa.Table.from_pylist(changed, columns), "upsert")
        self.rows[:1] = changed

    def delete(self) -> None:
        """Delete a row. Without a value in an ordering column it would be refused; rows come in any order."""
        ordering = self.table.config.ordering_fields
        is_ordered = [all(row[field] is not None for field in ordering) for row in self.rows]
        at = len(self.rows) - 1 - is_ordered[::-1].index(True)
        ingest_arrow(self.location, pa.Table.from_pylist([self.rows[at]], self.shown().schema), "delete")
        del self.rows[at]

    def index(self) -> None:
        schedule_index(self.table, [MetadataPartition.COLUMN_STATS, MetadataPartition.BLOOM_FILTERS])
        run_index(self.table)

    def clustering(self) -> None:
        if schedule_clustering(self.table, ClusteringSettings()) is not None:
            cluster_in_process(self.table)

    def compaction(self) -> None:
        if self.table.is_merge_on_read:
            compact_table(self.table, TableCompactionSettings(delta_commits=1))
            are_left = any(each.log_paths for each in file_slices(self.table))
            assert not are_left or self.table.timeline().pending(), "only file groups of a plan of the JVM"

    def clean(self) -> None:
        clean(self.table, Retention(CleaningPolicy.KEEP_LATEST_FILE_VERSIONS, 1))

    def archival(self) -> None:
        archive(self.table, keep_min=1, keep_max=2)


def in_order(rows: list[dict[str, Any]]) -> list[str]:
    """Rows as texts, because maps and lists have no order."""
    return sorted(map(str, rows))


def refused_by(written: Written, step: Callable[[], None]) -> str:
    """The error of a step, which leaves everything as it was; empty where the step is done."""
    before = written.files()
    try:
        step()
    except TableServiceError as error:
        after = written.files()
        assert before == {path: after.get(path) for path in before}
        assert [path for path in after.keys() - before if not TRACES.fullmatch(path)] == []
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.mark.parametrize(
    "told_of", share_of([*of_version_9(), *(f"{name} with options" for name in OPTIONS)])
)
def test_a_table_takes_a_step_or_refuses_it_by_name(told_of: str, tmp_path: Path) -> None:
    name, _, options = told_of.partition(" ")
    written = Written(tmp_path / "t", name)
    if options:
        change_options(written.table, OPTIONS[name])
    refused: dict[str, str] = {}
    for step in STEPS:
        if not written.rows and step in ("upsert", "delete"):
            continue
        if error := refused_by(written, getattr(written, step)):
            refused[step] = error
        expected = in_order(written.rows)
        assert in_order(written.shown().to_pylist()) == expected, step
        if written.rows and written.is_read_by_hudi_rs and not written.is_hidden_from_hudi_rs():
            assert written.shown_by_hudi_rs() == expected, step
    wanted = {step: told for steps, told in REFUSED.get(told_of, {}).items() for step in steps}
    if not written.table.is_merge_on_read:
        wanted.pop("compaction", None)
    assert refused.keys() == wanted.keys(), refused
    for step, error in refused.items():
        assert re.search(wanted[step], error), error
