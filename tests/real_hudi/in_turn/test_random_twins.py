"""This package and the JVM's Hudi write random batches into two copies of a table that the JVM has made.

Keys come several times in a batch, ordering values are late, equal and new, values are null or unavailable,
and rows delete their record. After every batch the copies are equal.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.ingestion import ingest_arrow
from airflow_provider.table import HudiTable
from tests.real_hudi.in_turn.readers import Row, difference
from tests.real_hudi.jvm import Session

PAYLOADS = "org.apache.hudi.common.model."
PAYLOAD = "hoodie.datasource.write.payload.class"
ORDERING = "hoodie.table.ordering.fields"
BY_TIME = {ORDERING: "ts"}
UNAVAILABLE = "__debezium_unavailable_value"  # Hudi's DebeziumConstants

COLUMNS = (
    "id string, part string, v bigint, name string, raw binary, ts bigint, seq int, op string, "
    "_hoodie_is_deleted boolean"
)
DEBEZIUM = (
    "id string, part string, v bigint, name string, raw binary, _event_lsn bigint, "
    "_event_bin_file string, _event_pos bigint, _change_operation_type string"
)

# All rows are in one partition, so that they reach the merge in the given order.
WRITE = """
frame = spark.createDataFrame(rows, columns).coalesce(1)
frame.write.format("hudi").options(**options).mode(mode).save(location)
"""


@dataclass(frozen=True)
class Kind:
    """A kind of table.

    :param name: the test's name.
    :param options: options of all writes of the JVM.
    :param columns: the columns as in DDL.
    """

    name: str
    options: dict[str, str]
    columns: str = COLUMNS

    @property
    def names(self) -> list[str]:
        return [column.split()[0] for column in self.columns.split(", ")]

    def row(self, drawn: random.Random, number: int, first: bool) -> Row:
        """A row of a key; the rows of the first load all have the same ordering value, and delete nothing."""
        texts, is_unavailable = [None, "", "x", "y"], drawn.random() < 0.3 and not first
        found: dict[str, Any] = {
            "id": f"k{number:02d}",
            "part": "abc"[number % 3],
            "v": drawn.choice([None, drawn.randrange(100)]),
            "name": UNAVAILABLE if is_unavailable else drawn.choice(texts),
            "raw": UNAVAILABLE.encode() if is_unavailable else drawn.choice([None, b"r"]),
            "ts": 5 if first else drawn.randrange(11),
            "seq": 5 if first else drawn.randrange(8),
            "op": "I" if first else drawn.choice(["D", "U", "U", None]),
            "_hoodie_is_deleted": not first and drawn.choice([None, False, False, True]),
            "_event_lsn": 5 if first else drawn.randrange(11),
            "_event_bin_file": f"bin.{5 if first else drawn.randrange(3, 8):06d}",
            "_event_pos": 5 if first else drawn.randrange(10),
            "_change_operation_type": "c" if first else drawn.choice(["u", "u", "d", None]),
        }
        return {name: found[name] for name in self.names}


def payload(name: str) -> dict[str, str]:
    return BY_TIME | {PAYLOAD: PAYLOADS + name}


def marker(column: str, value: str) -> dict[str, str]:
    return {"hoodie.payload.delete.field": column, "hoodie.payload.delete.marker": value}


KINDS = [
    Kind("commit time without ordering fields", {}),
    Kind("commit time", BY_TIME | {"hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING"}),
    Kind("event time", BY_TIME),
    Kind("two ordering fields", {ORDERING: "ts,seq"}),
    Kind("delete marker", payload("DefaultHoodieRecordPayload") | marker("op", "D")),
    Kind("delete marker of integers", payload("DefaultHoodieRecordPayload") | marker("seq", "3")),
    Kind("partial update by event time", payload("PartialUpdateAvroPayload")),
    Kind("partial update by commit time", payload("OverwriteNonDefaultsWithLatestAvroPayload")),
    Kind("PostgreSQL", {PAYLOAD: f"{PAYLOADS}debezium.PostgresDebeziumAvroPayload"}, DEBEZIUM),
    Kind("MySQL", {PAYLOAD: f"{PAYLOADS}debezium.MySqlDebeziumAvroPayload"}, DEBEZIUM),
]


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.name.replace(" ", "_")) for kind in KINDS])
def test_random_batches(kind: Kind, hudi: Session, location: Path) -> None:
    mine, twin, drawn = str(location), f"{location}_of_the_jvm", random.Random(kind.name)
    first = [kind.row(drawn, number, True) for number in range(20)]
    theirs(hudi, mine, kind, first, "insert", "overwrite")
    shutil.copytree(mine, twin)
    for operation in ("upsert", "insert", "upsert", "upsert"):
        # If a key exists twice, the JVM's upsert changes only one row.
        keys = range(50, 54) if operation == "insert" else [drawn.randrange(26) for _ in range(14)]
        batch = [kind.row(drawn, number, False) for number in keys]
        table = HudiTable.open(mine)
        ingest_arrow(table, pa.Table.from_pylist(batch, table.schema), operation)
        theirs(hudi, twin, kind, batch, operation)
        found = difference(rows_of(hudi, mine), rows_of(hudi, twin), kind.names)
        assert not found, f"after {operation} of {batch}: {found}"


def theirs(
    hudi: Session, location: str, kind: Kind, batch: list[Row], operation: str, mode: str = "append"
) -> None:
    options = {
        "hoodie.table.name": "twin",
        "hoodie.metadata.enable": "false",
        "hoodie.datasource.write.operation": operation,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.upsert.shuffle.parallelism": "1",
        **kind.options,
    }
    rows = [tuple(row[name] for name in kind.names) for row in batch]
    hudi.run(WRITE, rows=rows, columns=kind.columns, options=options, mode=mode, location=location)


def rows_of(hudi: Session, location: str) -> list[Row]:
    return hudi.read(location, metadata=False)
