"""Files of this package, read back by hudi-rs."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from hudi import HudiQueryType, HudiReadOptions, HudiTableBuilder

from airflow_provider.table.file_names import new_file_id, parse_base_file_name
from airflow_provider.table.files.base_file_reader import read_base_file
from airflow_provider.table.files.base_file_writer import BaseFileWriter
from airflow_provider.table.files.partition_metadata import write_partition_metadata
from airflow_provider.table.keys import partition_path, record_keys
from airflow_provider.table.properties import TableConfig, dump_properties
from airflow_provider.table.schema.arrow_avro import arrow_to_avro, avro_to_arrow
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.metadata import CommitMetadata, WriteStat, encode_commit_metadata

MOMENT = datetime.datetime(2024, 2, 3, 4, 5, 6, 789_012, tzinfo=datetime.UTC)

# hudi-rs 0.5.0 has no local timestamps (it panics on them), so there is none here.
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "region": pa.string(),
        "price": pa.decimal128(12, 3),
        "at": pa.timestamp("us", tz="UTC"),
        "at_millis": pa.timestamp("ms", tz="UTC"),
        "day": pa.date32(),
        "raw": pa.binary(),
        "ratio": pa.float32(),
        "ok": pa.bool_(),
        "tags": pa.list_(pa.field("element", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]))),
        "counts": pa.map_(pa.string(), pa.int64()),
        "point": pa.struct([("x", pa.float64()), ("note", pa.string())]),
    }
)


def _row(number: int, region: str) -> dict[str, object]:
    return {
        "id": number,
        "region": region,
        "price": Decimal(number).scaleb(-3),
        "at": MOMENT + datetime.timedelta(microseconds=number),
        "at_millis": MOMENT.replace(microsecond=5000),
        "day": MOMENT.date(),
        "raw": bytes([0, number]),
        "ratio": number / 2,
        "ok": number % 2 == 0,
        "tags": [{"a": number, "b": ["x", None]}, None],
        "counts": [("k", number), ("none", None)],
        "point": {"x": 1.5, "note": None},
    }


def _nulls(number: int, region: str) -> dict[str, object]:
    return dict.fromkeys(SCHEMA.names) | {"id": number, "region": region}


class HandMadeTable:
    """A table with only the part of a timeline that a reader needs."""

    def __init__(self, root: Path) -> None:
        self.storage = Storage(str(root))
        self.config = TableConfig(
            name="trips",
            record_key_fields=("id",),
            partition_fields=("region",),
            create_schema=arrow_to_avro(SCHEMA, "trips"),
        )
        self.schema = avro_to_arrow(self.config.create_schema or "")
        self.storage.put(".hoodie/hoodie.properties", dump_properties(self.config.to_properties()).encode())

    def write(self, instant: str, region: str, rows: pa.Table, older: WriteStat | None = None) -> WriteStat:
        folder = partition_path([region], self.config)
        write_partition_metadata(self.storage, folder, instant)
        with BaseFileWriter(
            self.storage,
            partition_path=folder,
            file_id=older.file_id if older else new_file_id(),
            write_token="0-1-1",
            instant=instant,
            schema=self.schema,
            table_name="trips",
        ) as writer:
            if older:
                stored = read_base_file(self.storage, older.path)
                untouched = pc.invert(pc.is_in(stored["id"], rows["id"]))
                writer.write_preserved(stored.filter(untouched))
            writer.write(rows, record_keys(rows, self.config))
            file = writer.close()
        parsed = parse_base_file_name(file.path.rpartition("/")[2])
        assert parsed is not None
        return WriteStat(parsed[0], folder, file.path, num_writes=file.rows, file_size=file.size)

    def commit(self, instant: str, completed: str, *stats: WriteStat) -> None:
        meta = CommitMetadata("UPSERT", stats, {}, {"schema": self.config.create_schema or ""})
        self.storage.put(
            f".hoodie/timeline/{instant}_{completed}.commit", encode_commit_metadata(meta, "commit")
        )

    def read(self, *filters: tuple[str, str, str], after: str | None = None) -> list[dict[str, object]]:
        table = HudiTableBuilder.from_base_uri(self.storage.root).build()
        options = HudiReadOptions(filters=list(filters))
        if after is not None:
            options = options.with_query_type(HudiQueryType.Incremental).with_start_timestamp(after)
        batches = table.read(options)
        found = [row for batch in batches for row in batch.to_pylist()]
        return sorted(
            ({name: row[name] for name in SCHEMA.names} for row in found), key=lambda row: str(row["id"])
        )


def test_hudi_rs_reads_what_we_write(tmp_path: Path) -> None:
    table = HandMadeTable(tmp_path)
    first, second = "20240101000000000", "20240102000000000"
    old = pa.Table.from_pylist([_row(1, "eu"), _nulls(2, "eu"), _row(3, "eu")], schema=SCHEMA)
    odd = pa.Table.from_pylist([_row(4, "a/b=c %")], schema=SCHEMA)
    written = table.write(first, "eu", old)
    table.commit(first, "20240101000001000", written, table.write(first, "a/b=c %", odd))
    assert table.read() == old.to_pylist() + odd.to_pylist()

    update = pa.Table.from_pylist([_row(2, "eu"), _row(5, "eu")], schema=SCHEMA)
    rewritten = table.write(second, "eu", update, older=written)
    assert table.read() == old.to_pylist() + odd.to_pylist(), "a file that no commit names is not visible"
    table.commit(second, "20240102000001000", rewritten)
    expected = [_row(1, "eu"), _row(2, "eu"), _row(3, "eu"), _row(4, "a/b=c %"), _row(5, "eu")]
    assert table.read() == expected
    assert table.read(("region", "=", "a/b=c %")) == expected[3:4]
    assert table.read(("region", "=", "eu")) == [row for row in expected if row["region"] == "eu"]
    # Rows that were only copied are not reported as changed.
    assert table.read(after="20240101000001000") == [expected[1], expected[4]]
