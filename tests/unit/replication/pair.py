"""Two metastores with two warehouses, the second one the target of the first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from hudi import HudiTableBuilder

from airflow_provider.metastore import AnyMetastore, Metastore, ValidWriteIdList
from airflow_provider.metastore.replication import mapped_txns
from airflow_provider.replication import Pass, ReplicationPolicy, ReplicationSettings, Replicator
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.file_groups import invisible_commits
from airflow_provider.table.timeline import newest_archived
from tests.unit.concurrency.transactions.transactional_lake import Lake, database_of_lake, rows_of

KINDS: dict[str, dict[str, Any]] = {
    "copy-on-write": {},
    "merge-on-read": {"table_type": "merge_on_read"},
    "non-blocking": {
        "table_type": "merge_on_read",
        "concurrency": "non_blocking",
        "ordering_field": "fare",
        "hudi_options": {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 2},
    },
    "consistent hashing": {
        "table_type": "merge_on_read",
        "hudi_options": {
            "hoodie.index.type": "BUCKET",
            "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
            "hoodie.bucket.index.num.buckets": 2,
            "hoodie.bucket.index.max.num.buckets": 16,
            "hoodie.parquet.max.file.size": 1,
            "hoodie.parquet.small.file.limit": 0,
        },
    },
}
"""The kinds of replicated tables: arguments of ``HudiTable.create``."""

META = ["_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key", "_hoodie_file_name"]


class Pair:
    """A source with tables ``lake.trips`` and ``lake.riders``, and its target ``lake_copy``."""

    def __init__(
        self, root: Path, source_url: str | None = None, target_url: str | None = None, **options: Any
    ) -> None:
        self.root = root
        (root / "source").mkdir()
        (root / "target").mkdir()
        self.lake = Lake(root / "source", source_url, **options)
        self.source = self.lake.metastore
        self.target: Metastore = database_of_lake(root / "target", target_url)
        self.policy = ReplicationPolicy("dr", {"lake": "lake_copy"}, {f"{root}/source": f"{root}/target"})

    @property
    def sides(self) -> tuple[AnyMetastore, AnyMetastore]:
        """Source and target, as arguments of replicators and failovers."""
        return self.source, self.target

    def replicator(
        self, step: Callable[[str], None] = lambda _: None, settings: ReplicationSettings | None = None
    ) -> Replicator:
        return Replicator(self.policy, *self.sides, step=step, settings=settings)

    def replicate(self, **options: Any) -> Pass:
        return self.replicator().run(**options)

    def copy_of(self, name: str) -> HudiTable:
        return HudiTable.open(self.target.get_table("lake_copy", name).location)

    def mapped(self) -> dict[int, int]:
        """The target's open transactions by those of the source."""
        return self.target.sql.read(lambda connection: mapped_txns(connection, "dr"))

    def bytes_at_target(self) -> int:
        """The bytes of the files of both tables at the target."""
        files = (each for each in (self.root / "target").rglob("*") if each.is_file())
        return sum(each.stat().st_size for each in files)

    def rows_of_target(self, name: str) -> dict[int, int]:
        """The rows of a target's table that readers without transactions see: this package and hudi-rs."""
        table = self.copy_of(name)
        ours = rows_of(snapshot(table).to_table())
        batches = HudiTableBuilder.from_base_uri(table.location).build().read()
        assert (rows_of(pa.Table.from_batches(batches)) if batches else {}) == ours
        return ours

    def write_ids(self, name: str) -> tuple[ValidWriteIdList, ValidWriteIdList]:
        """The write ids of a table, at the source and at the target."""
        return (
            self.source.valid_write_id_list("lake", name),
            self.target.valid_write_id_list("lake_copy", name),
        )

    def check_equal(self) -> None:
        """Check that present readers find source and target equal: catalog, write ids, rows, instants."""
        assert self.target.list_tables("lake_copy") == self.source.list_tables("lake")
        for name in self.source.list_tables("lake"):
            there, here = self.source.get_table("lake", name), self.target.get_table("lake_copy", name)
            assert (here.schema, here.partition_keys, here.parameters) == (
                there.schema,
                there.partition_keys,
                there.parameters,
            )
            assert [one.values for one in self.target.get_partitions("lake_copy", name)] == [
                one.values for one in self.source.get_partitions("lake", name)
            ]
            source, target = HudiTable.open(there.location), HudiTable.open(here.location)
            check_tables_equal(source, target, *self.write_ids(name))


def check_tables_equal(
    source: HudiTable, target: HudiTable, at_source: ValidWriteIdList, at_target: ValidWriteIdList
) -> None:
    """Check that readers with these snapshots, and without one, see the same rows with the same ids."""
    highest = max(at_source.high_watermark, at_target.high_watermark)
    for write_id in range(1, highest + 1):
        assert at_source.is_valid(write_id) == at_target.is_valid(write_id), (at_source, at_target)
    assert rows(target, at_target) == rows(source, at_source)
    # Each side archives its timeline by itself.
    archived = max(newest_archived(source.storage), newest_archived(target.storage))
    here = {i for i in instants(target) if i[0] > archived}
    there = {i for i in instants(source, at_source) if i[0] > archived}
    assert here == there, f"{target}: here alone {here - there}, there alone {there - here}"
    batches = HudiTableBuilder.from_base_uri(target.location).build().read()
    by_hudi = pa.Table.from_batches(batches).select([*META, *target.schema.names]) if batches else None
    assert sorted(by_hudi.to_pylist() if by_hudi else [], key=str) == _seen_by_hudi_rs(target)


def _seen_by_hudi_rs(table: HudiTable) -> list[dict[str, Any]]:
    """All rows that hudi-rs sees; with the index ``files`` it skips file groups of only log files (0.5.0)."""
    found = rows(table, None)
    if "files" not in table.config.metadata_partitions:
        return found
    view = table.view()
    unseen = {
        (each.partition_path, each.file_id)
        for partition in view.all_partitions()
        for each in view.log_files(partition)
        if view.base_file(each.file_group) is None
    }
    return [
        row for row in found if (f"city={row['city']}", row["_hoodie_file_name"].split("_")[0]) not in unseen
    ]


def rows(table: HudiTable, valid: ValidWriteIdList | None) -> list[dict[str, Any]]:
    found = snapshot(table, valid_write_ids=valid, meta_columns=True).to_table()
    return sorted(found.select([*META, *table.schema.names]).to_pylist(), key=str)


def instants(table: HudiTable, valid: ValidWriteIdList | None = None) -> list[tuple[str, str, str]]:
    """The commits that a reader sees, except empty ones that a target puts before others."""
    timeline, found = table.timeline(), []
    hidden = [] if valid is None else invisible_commits(table.storage, timeline, valid)
    unseen = {each.instant for each in hidden}
    for commit in timeline.commits():
        said = timeline.commit_metadata(commit)
        if commit not in unseen and (said.write_stats or said.replaced):
            found.append((commit.requested_time, str(commit.completion_time), str(commit.action)))
    return found
