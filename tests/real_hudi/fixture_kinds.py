"""The kinds of tables that are made by the real Hudi, each by a few writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from .jvm import Session

Row = dict[str, Any]
COLUMNS = "id string, part string, v bigint, name string, ts bigint"
KEY = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.datasource.write.hive_style_partitioning": "true",
}
BY_TIME = {"hoodie.table.ordering.fields": "ts", "hoodie.datasource.write.precombine.field": "ts"}
NO_INDEX = {"hoodie.metadata.enable": "false"}
ALL_INDEXES = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.partition.stats.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.global.record.level.index.enable": "true",
}
SMALL = {
    "hoodie.index.bloom.num_entries": "100",
    "hoodie.bloom.index.filter.type": "SIMPLE",
    "hoodie.embed.timeline.server": "false",
    "hoodie.metadata.record.index.min.filegroup.count": "1",
    "hoodie.metadata.record.index.max.filegroup.count": "1",
    "hoodie.metadata.global.record.level.index.min.filegroup.count": "1",
    "hoodie.metadata.global.record.level.index.max.filegroup.count": "1",
    "hoodie.metadata.index.column.stats.file.group.count": "1",
    "hoodie.upsert.shuffle.parallelism": "1",
    "hoodie.insert.shuffle.parallelism": "1",
    "hoodie.bulkinsert.shuffle.parallelism": "1",
}
MODELS = "org.apache.hudi.common.model."
GENERATOR = "hoodie.datasource.write.keygenerator.class"
GENERATORS = "org.apache.hudi.keygen."


@dataclass(frozen=True)
class Kind:
    """A kind of table.

    :param name: of its files.
    :param about: what it is about, for people.
    :param steps: what makes it.
    :param options: of every write.
    :param hudi: release that makes it.
    :param version: of the table.
    :param columns: as in DDL.
    :param where: conditions that are asked.
    """

    name: str
    about: str
    steps: Callable[[Making], None]
    options: Mapping[str, str] = field(default_factory=dict)
    hudi: str = "1.2.0"
    version: int = 9
    columns: str = COLUMNS
    where: Sequence[tuple[str, str, Any]] = (("id", "=", "k03"), ("part", "=", "p1"), ("v", ">", 4))
    key: Mapping[str, str] = field(default_factory=lambda: KEY)


class Making:
    """A table that is being made.

    :param hudi: a Spark session.
    :param location: of the table.
    :param kind: of it.
    """

    def __init__(self, hudi: Session, location: Path, kind: Kind) -> None:
        self.hudi, self.location, self.kind = hudi, location, kind
        self._is_new = True

    def write(
        self, rows: Sequence[Row], operation: str = "upsert", columns: str | None = None, **more: str
    ) -> None:
        """By the data source; options have ``__`` for dots."""
        options = {
            "hoodie.table.name": "t",
            "hoodie.datasource.write.operation": operation,
            "hoodie.write.table.version": str(self.kind.version),
            "hoodie.write.auto.upgrade": "false",
            "hoodie.clean.automatic": "false",
            "hoodie.archive.automatic": "false",
            **NO_INDEX,
            **SMALL,
            **self.kind.key,
            **BY_TIME,
            **self.kind.options,
            **{name.replace("__", "."): value for name, value in more.items()},
        }
        mode = "overwrite" if self._is_new else "append"
        given = {name: value for name, value in options.items() if value}
        self.hudi.write(str(self.location), rows, columns or self.kind.columns, given, mode)
        self._is_new = False

    def sql(self, text: str) -> None:
        """A statement; ``{t}`` is the table."""
        self.hudi.sql(f"create table if not exists {self.kind.name} using hudi location '{self.location}'")
        self.hudi.sql(f"refresh table {self.kind.name}")
        self.hudi.sql(text.format(t=self.kind.name))

    def set(self, **options: str) -> None:
        """For statements; options have ``__`` for dots."""
        for name, value in options.items():
            self.hudi.sql(f"set {name.replace('__', '.')}={value}")

    def fail_newest(self) -> None:
        """Make the newest commit one that never completed."""
        folder = self.location / (".hoodie" if self.kind.version == 6 else ".hoodie/timeline")
        newest = max(folder.glob("*.deltacommit"), key=lambda path: path.name)
        newest.unlink()
        for checksum in folder.glob(f".{newest.name}.crc"):
            checksum.unlink()

    def read(self, options: Mapping[str, str] | None = None, where: str | None = None) -> list[Row]:
        """What the JVM shows."""
        return self.hudi.read(str(self.location), options, where=where)


def row(number: int, v: float = 0, ts: int = 10, **more: Any) -> Row:
    return {"id": f"k{number:02d}", "part": f"p{number % 3}", "v": v, "name": f"n{number}", "ts": ts} | more


def rows(numbers: range, v: int = 0, ts: int = 10, **more: Any) -> list[Row]:
    return [row(number, v + number, ts, **more) for number in numbers]


# --- steps ---------------------------------------------------------------------------------


def usual(t: Making) -> None:
    """Insert, upsert, delete, insert again."""
    t.write(rows(range(9)), "insert")
    t.write([*rows(range(2, 5), 100, 20), row(9, 9)])
    t.write(rows(range(5, 6)), "delete")
    t.write(rows(range(10, 12)), "insert")


def overwriting(t: Making) -> None:
    t.write(rows(range(9)), "bulk_insert")
    t.write([row(3, 300), row(12, 1)], "insert_overwrite")
    t.write(rows(range(2)), "insert")
    t.write([row(4, 4)], "insert_overwrite_table")


def by_versions(t: Making) -> None:
    """Older, equal and newer versions of records, also twice in a batch."""
    t.write(rows(range(9)), "insert")
    t.write([row(0, 1, 5), row(1, 1, 10), row(2, 1, 20), row(3, 1, 30, name=None), row(9, 1, 1)])
    t.write([row(4, 1, 30), row(4, 2, 20), row(5, 3, 5), row(5, 4, 15)])


def clustered(t: Making) -> None:
    usual(t)
    t.sql("call run_clustering(table => '{t}', op => 'scheduleAndExecute', order => 'v')")
    t.write([row(1, 77, 50)])


def clustering_planned(t: Making) -> None:
    usual(t)
    t.sql("call run_clustering(table => '{t}', op => 'schedule', order => 'v')")


def restored(t: Making) -> None:
    usual(t)
    commits = sorted({each["_hoodie_commit_time"] for each in t.read()})
    t.sql(f"call create_savepoint(table => '{{t}}', commit_time => '{commits[-1]}')")
    t.write([row(1, 999, 99)])
    t.sql(f"call rollback_to_savepoint(table => '{{t}}', instant_time => '{commits[-1]}')")
    t.write([row(2, 55, 60)])


def archived(t: Making) -> None:
    soon = {"hoodie__keep__min__commits": "3", "hoodie__keep__max__commits": "4"}
    cleans = {"hoodie__clean__automatic": "true", "hoodie__clean__commits__retained": "2"}
    for turn in range(9):
        t.write(
            [*rows(range(4), turn, 10 + turn), row(10 + turn)],
            hoodie__archive__automatic="true",
            **soon,
            **cleans,
        )


def columns_added(t: Making) -> None:
    t.write(rows(range(6)), "insert")
    t.sql("alter table {t} add columns (extra bigint)")
    t.sql("update {t} set extra = v * 2 where id in ('k01', 'k02')")
    wider = "id string, part string, v double, name string, ts bigint, extra bigint"
    t.write([row(4, 4.25, 20, extra=8)], columns=wider)


def schema_on_read(t: Making) -> None:
    t.write(rows(range(6)), "insert")
    t.set(
        hoodie__schema__on__read__enable="true",
        hoodie__datasource__write__reconcile__schema="true",
        hoodie__datasource__write__schema__allow__auto__evolution__column__drop="true",
    )
    t.sql("alter table {t} rename column name to title")
    t.sql("alter table {t} alter column v type double")
    t.sql("alter table {t} add columns (extra string)")
    t.sql("update {t} set title = 'new', v = 0.5, extra = 'x' where id = 'k02'")


def deleted_by_a_column(t: Making) -> None:
    t.write(rows(range(6), _hoodie_is_deleted=False), "insert")
    gone = [row(1, 1, 20, _hoodie_is_deleted=True), row(2, 1, 5, _hoodie_is_deleted=True)]
    t.write([*gone, row(3, 1, 20, _hoodie_is_deleted=False)])


def deleted_by_a_marker(t: Making) -> None:
    column = t.kind.columns.split()[-2]  # AWS DMS calls it Op
    t.write(rows(range(6), **{column: "I"}), "insert")
    t.write([row(number, 1, 20, **{column: how}) for number, how in ((1, "D"), (2, "U"), (9, "D"))])


def all_types(t: Making) -> None:
    at = datetime(2026, 3, 4, 5, 6, 7, 89000, UTC)
    more = {
        "i": -1,
        "f": 0.5,
        "d": 1e300,
        "b": b"\x00\xff",
        "yes": True,
        "price": Decimal("12.340"),
        "day": date(2026, 1, 2),
        "at": at,
        "many": [1, 2],
        "named": {"a": 1},
        "nested": {"x": 1, "y": {"z": "ü"}},
    }
    nothing = dict.fromkeys(more)
    t.write([row(1, **more), row(2, **nothing), row(3, **{**more, "many": [], "named": {}})], "insert")
    t.write([row(2, 5, 20, **more)])


def compacted(t: Making) -> None:
    usual(t)
    t.sql("call run_compaction(table => '{t}', op => 'scheduleAndExecute')")
    t.write([row(1, 77, 50)])


def compaction_planned(t: Making) -> None:
    usual(t)
    t.sql("call run_compaction(table => '{t}', op => 'schedule')")
    t.write([row(1, 77, 50)])


def log_compacted(t: Making) -> None:
    often = {
        "hoodie__log__compaction__enable": "true",
        "hoodie__log__compaction__inline": "true",
        "hoodie__log__compaction__blocks__threshold": "2",
    }
    t.write(rows(range(9)), "insert")
    for number in range(1, 6):
        t.write([*rows(range(number, number + 3), 100 * number, 10 + number)], **often)
    t.write(rows(range(5, 7)), "delete")


def merged_into(t: Making) -> None:
    """Partial updates: a log block has only those columns that MERGE INTO sets."""
    t.write(rows(range(8)), "insert")
    t.sql(
        "merge into {t} t using "
        "(select 'k01' as id, 'm1' as name, 20L as ts union all select 'k02', 'm2', 20L) s "
        "on t.id = s.id when matched then update set name = s.name, ts = s.ts"
    )
    t.sql(
        "merge into {t} t using (select 'k01' as id, 99L as v, 30L as ts union all select 'k03', 98L, 5L) s "
        "on t.id = s.id when matched then update set v = s.v, ts = s.ts"
    )
    t.sql("update {t} set name = 'u4' where id = 'k04'")
    t.sql("delete from {t} where id in ('k05', 'k06')")


def one_failed(t: Making) -> None:
    """A write that never completed, and was rolled back; another one that is still in flight."""
    t.write(rows(range(8)), "insert")
    t.write([row(1, 100, 20), row(2, 100, 20)])
    t.write([row(1, 200, 30), row(3, 200, 30), row(9, 200, 30)])
    t.fail_newest()
    t.write([row(4, 300, 40)])
    t.write([row(4, 400, 50), row(11, 400, 50)])
    t.fail_newest()


def late_deletes(t: Making) -> None:
    """Deletes with and without a larger ordering value than the row's, and rows that come late after them."""
    by_versions(t)
    t.write([row(4, 0, 5), row(5, 0, 50)], "delete")
    t.write([row(5, 7, 40), row(6, 7, 40)])
    t.write([row(6, 8, 60)])


def secondary_index(t: Making) -> None:
    usual(t)
    t.set(hoodie__write__lock__provider="org.apache.hudi.client.transaction.lock.InProcessLockProvider")
    t.sql("create index by_name on {t} (name)")


def changes_captured(t: Making) -> None:
    usual(t)


# --- kinds ---------------------------------------------------------------------------------

MOR = {"hoodie.datasource.write.table.type": "MERGE_ON_READ", "hoodie.compact.inline": "false"}
ORDERING = "hoodie.table.ordering.fields"


def payload(name: str) -> dict[str, str]:
    return {"hoodie.datasource.write.payload.class": MODELS + name}


def by(name: str, **more: str) -> dict[str, str]:
    return {GENERATOR: GENERATORS + name, **{key.replace("__", "."): value for key, value in more.items()}}


EPOCH = {
    "hoodie__keygen__timebased__timestamp__type": "EPOCHMILLISECONDS",
    "hoodie__keygen__timebased__output__dateformat": "yyyy-MM-dd",
}
OP = f"{COLUMNS}, op string"
TYPES = (
    f"{COLUMNS}, i int, f float, d double, b binary, yes boolean, price decimal(10,3), day date, "
    "at timestamp, many array<int>, named map<string,int>, nested struct<x:int,y:struct<z:string>>"
)
DELETE = {"hoodie.payload.delete.field": "op", "hoodie.payload.delete.marker": "D"}


def _columnar(version: int, hudi: str = "1.2.0") -> list[Kind]:
    end = f"v{version}" if hudi == "1.2.0" else f"v{version}_by_{hudi.replace('.', '_')}"
    return [
        Kind(f"cow_{end}", "inserts, upserts and deletes", usual, {}, hudi, version),
        Kind(
            f"cow_overwritten_{end}",
            "insert_overwrite of partitions and table",
            overwriting,
            {},
            hudi,
            version,
        ),
        Kind(f"cow_clustered_{end}", "a clustering", clustered, {}, hudi, version),
        Kind(f"cow_restored_{end}", "a savepoint, and a restore to it", restored, {}, hudi, version),
        Kind(f"cow_archived_{end}", "archived and cleaned instants", archived, {}, hudi, version),
        Kind(f"mor_{end}", "log files with deletes", usual, MOR, hudi, version),
        Kind(f"mor_compacted_{end}", "log files, compacted", compacted, MOR, hudi, version),
        Kind(f"mor_to_be_compacted_{end}", "a compaction is planned", compaction_planned, MOR, hudi, version),
    ]


KINDS = [
    *_columnar(9),
    *_columnar(8),
    *_columnar(6),
    *_columnar(9, "1.1.1"),
    *_columnar(8, "1.0.2"),
    Kind("cow_indexed", "files, column and partition statistics, record index", usual, ALL_INDEXES),
    Kind("cow_secondary_index", "a secondary index", secondary_index, ALL_INDEXES),
    Kind(
        "cow_bloom_index",
        "bloom filters in the metadata table",
        usual,
        ALL_INDEXES | {"hoodie.metadata.index.bloom.filter.enable": "true"},
    ),
    Kind("cow_clustering_planned", "a clustering is planned", clustering_planned),
    Kind(
        "cow_buckets",
        "a bucket index",
        usual,
        {
            "hoodie.index.type": "BUCKET",
            "hoodie.bucket.index.num.buckets": "2",
            "hoodie.bucket.index.hash.field": "id",
        },
    ),
    Kind(
        "cow_commit_time",
        "COMMIT_TIME_ORDERING with an ordering field",
        by_versions,
        {"hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING"},
    ),
    Kind("cow_event_time", "EVENT_TIME_ORDERING", by_versions),
    Kind(
        "cow_no_ordering",
        "no ordering field",
        by_versions,
        {ORDERING: "", "hoodie.datasource.write.precombine.field": ""},
    ),
    Kind(
        "cow_two_ordering_fields",
        "two ordering fields",
        by_versions,
        {ORDERING: "ts,v", "hoodie.datasource.write.precombine.field": ""},
    ),
    Kind("cow_partial_update", "PartialUpdateAvroPayload", by_versions, payload("PartialUpdateAvroPayload")),
    Kind(
        "cow_non_defaults",
        "OverwriteNonDefaultsWithLatestAvroPayload",
        by_versions,
        payload("OverwriteNonDefaultsWithLatestAvroPayload"),
    ),
    Kind("cow_event_time_payload", "EventTimeAvroPayload", by_versions, payload("EventTimeAvroPayload")),
    Kind(
        "cow_delete_marker",
        "a delete marker",
        deleted_by_a_marker,
        payload("DefaultHoodieRecordPayload") | DELETE,
        columns=OP,
    ),
    Kind(
        "cow_dms",
        "AWSDmsAvroPayload",
        deleted_by_a_marker,
        payload("AWSDmsAvroPayload"),
        columns=f"{COLUMNS}, Op string",
    ),
    Kind(
        "cow_is_deleted",
        "_hoodie_is_deleted",
        deleted_by_a_column,
        columns=f"{COLUMNS}, _hoodie_is_deleted boolean",
    ),
    Kind("cow_columns_added", "columns added, and widened by a write", columns_added),
    Kind("cow_schema_on_read", "columns renamed, retyped and added by schema on read", schema_on_read),
    Kind("cow_types", "columns of all types", all_types, columns=TYPES),
    Kind(
        "cow_not_hive_style",
        "folders by values alone",
        usual,
        {"hoodie.datasource.write.hive_style_partitioning": "false"},
    ),
    Kind(
        "cow_two_levels",
        "partitions of two levels",
        usual,
        {"hoodie.datasource.write.partitionpath.field": "part,name"} | by("ComplexKeyGenerator"),
    ),
    Kind(
        "cow_not_partitioned",
        "no partitions",
        usual,
        {"hoodie.datasource.write.partitionpath.field": ""} | by("NonpartitionedKeyGenerator"),
    ),
    Kind(
        "cow_complex_key",
        "a key of two columns",
        usual,
        {"hoodie.datasource.write.recordkey.field": "id,part"} | by("ComplexKeyGenerator"),
    ),
    Kind(
        "cow_timestamp_partitions",
        "TimestampBasedKeyGenerator",
        usual,
        {"hoodie.datasource.write.partitionpath.field": "ts"} | by("TimestampBasedKeyGenerator", **EPOCH),
    ),
    Kind(
        "cow_custom_partitions",
        "CustomKeyGenerator",
        usual,
        {"hoodie.datasource.write.partitionpath.field": "part:SIMPLE"} | by("CustomKeyGenerator"),
    ),
    Kind(
        "cow_no_key",
        "no record key",
        overwriting,
        {
            "hoodie.datasource.write.recordkey.field": "",
            ORDERING: "",
            "hoodie.datasource.write.precombine.field": "",
        },
    ),
    Kind("cow_no_meta_fields", "no meta fields", overwriting, {"hoodie.populate.meta.fields": "false"}),
    Kind(
        "cow_no_partition_columns",
        "partition columns are not in the files",
        usual,
        {"hoodie.datasource.write.drop.partition.columns": "true"},
    ),
    Kind(
        "cow_base_metafile",
        "partition metadata in Parquet",
        usual,
        {"hoodie.partition.metafile.use.base.format": "true"},
    ),
    Kind(
        "cow_captures_changes", "change data capture", changes_captured, {"hoodie.table.cdc.enabled": "true"}
    ),
    Kind("mor_indexed", "log files, and all indexes", usual, MOR | ALL_INDEXES),
    Kind(
        "mor_parquet_logs",
        "Parquet log blocks",
        by_versions,
        MOR | {"hoodie.logfile.data.block.format": "parquet"},
    ),
    Kind(
        "mor_hfile_logs", "HFile log blocks", by_versions, MOR | {"hoodie.logfile.data.block.format": "hfile"}
    ),
    Kind(
        "mor_commit_time",
        "log files by COMMIT_TIME_ORDERING",
        by_versions,
        MOR | {"hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING"},
    ),
    Kind("mor_late_deletes", "deletes by EVENT_TIME_ORDERING", late_deletes, MOR),
    Kind(
        "mor_two_ordering_fields",
        "log files with two ordering fields",
        late_deletes,
        MOR | {ORDERING: "ts,v", "hoodie.datasource.write.precombine.field": ""},
    ),
    Kind(
        "mor_partial_update",
        "log files by PartialUpdateAvroPayload",
        by_versions,
        MOR | payload("PartialUpdateAvroPayload"),
    ),
    Kind(
        "mor_non_defaults",
        "log files by OverwriteNonDefaultsWithLatestAvroPayload",
        by_versions,
        MOR | payload("OverwriteNonDefaultsWithLatestAvroPayload"),
    ),
    Kind(
        "mor_delete_marker",
        "a delete marker in log files",
        deleted_by_a_marker,
        MOR | payload("DefaultHoodieRecordPayload") | DELETE,
        columns=OP,
    ),
    Kind(
        "mor_is_deleted",
        "_hoodie_is_deleted in log files",
        deleted_by_a_column,
        MOR,
        columns=f"{COLUMNS}, _hoodie_is_deleted boolean",
    ),
    Kind("mor_types", "columns of all types in log files", all_types, MOR, columns=TYPES),
    Kind(
        "mor_types_parquet",
        "columns of all types in Parquet log blocks",
        all_types,
        MOR | {"hoodie.logfile.data.block.format": "parquet"},
        columns=TYPES,
    ),
    Kind("mor_columns_added", "log files before and after columns were added", columns_added, MOR),
    Kind("mor_schema_on_read", "log files of a table with schema on read", schema_on_read, MOR),
    Kind(
        "mor_no_meta_fields",
        "log files without meta fields",
        usual,
        MOR | {"hoodie.populate.meta.fields": "false"},
    ),
    Kind(
        "mor_buckets",
        "file groups of log files alone, by a bucket index",
        usual,
        MOR
        | {
            "hoodie.index.type": "BUCKET",
            "hoodie.bucket.index.num.buckets": "2",
            "hoodie.bucket.index.hash.field": "id",
        },
    ),
    Kind("mor_log_compacted", "a log compaction", log_compacted, MOR),
    Kind("mor_merged_into", "partial updates by MERGE INTO", merged_into, MOR),
    Kind("mor_one_failed_v9", "a write that was rolled back, another one in flight", one_failed, MOR),
    Kind("mor_one_failed_v6", "rollback blocks, a write in flight", one_failed, MOR, version=6),
    Kind("mor_restored", "a savepoint, and a restore to it", restored, MOR),
    Kind("mor_clustered", "a clustering of log files", clustered, MOR),
    Kind("mor_captures_changes", "change data capture", usual, MOR | {"hoodie.table.cdc.enabled": "true"}),
]
