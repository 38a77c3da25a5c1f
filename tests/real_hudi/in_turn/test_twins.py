"""This package and the JVM's Hudi write the same batch into two copies of a table that the JVM has made.

Afterwards the copies are equal, or this package refuses with an error that names the reason, and changes
nothing.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.exceptions import TableServiceError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.table import HudiTable
from tests.real_hudi.in_turn.readers import Row, difference, five_readers
from tests.real_hudi.jvm import Session

KEY = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.datasource.write.hive_style_partitioning": "true",
}
BY_TIME = {"hoodie.table.ordering.fields": "ts"}
COLUMNS = "id string, part string, v bigint, name string, ts bigint, seq bigint"

PAYLOADS = "org.apache.hudi.common.model."
GENERATORS = "org.apache.hudi.keygen."

LETTERS = ("a", "b", "c")

# Number: time, second ordering field, name. In the table all have 10, 5 and "n<number>".
BATCH = {
    0: (5, 5, "older"),
    1: (10, 5, "equal"),
    2: (10, 1, "older by the second field"),
    3: (10, 9, "newer by the second field"),
    4: (20, 5, "newer"),
    6: (20, 1, None),
    7: (5, 9, None),
    8: (30, 5, "larger"),
    40: (1, 1, "new"),
}


@dataclass(frozen=True)
class Kind:
    """A kind of table.

    :param name: the test's name.
    :param options: options of all writes of the JVM.
    :param parts: values of the partition column.
    :param more: a column besides the usual ones, as in DDL.
    :param value: that column's value of a number, in the table and in the batch.
    :param refused: a pattern of this package's error, if it does not write such tables.
    :param hudi_rs: whether hudi-rs reads such tables.
    :param xfail: the reason why this package neither writes the same rows nor refuses yet.
    """

    name: str
    options: dict[str, str] = field(default_factory=dict)
    parts: tuple[str, ...] = LETTERS
    more: str = ""
    value: Callable[[int, bool], Any] = lambda number, in_batch: None
    refused: str | None = None
    hudi_rs: bool = True
    xfail: str | None = None

    def rows(self, numbers: dict[int, tuple[int, int, str | None]], v: int) -> list[Row]:
        return [
            {
                "id": f"k{number:02d}",
                "part": self.parts[number % len(self.parts)],
                "v": v + number,
                "name": name,
                "ts": ts,
                "seq": seq,
            }
            | ({self.more.split()[0]: self.value(number, v > 0)} if self.more else {})
            for number, (ts, seq, name) in numbers.items()
        ]

    @property
    def columns(self) -> str:
        return f"{COLUMNS}, {self.more}" if self.more else COLUMNS


def payload(name: str) -> dict[str, str]:
    return BY_TIME | {"hoodie.datasource.write.payload.class": PAYLOADS + name}


def generator(name: str, **options: str) -> dict[str, str]:
    return BY_TIME | {"hoodie.datasource.write.keygenerator.class": GENERATORS + name}


def deleted(number: int, in_batch: bool) -> bool:
    return in_batch and number in (0, 4, 40)


def operation(number: int, in_batch: bool) -> str:
    return ("D" if number in (4, 40) else "U") if in_batch else "I"


KINDS = [
    Kind("no ordering field"),
    Kind("event time", BY_TIME),
    Kind("commit time", BY_TIME | {"hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING"}),
    Kind("two ordering fields", {"hoodie.table.ordering.fields": "ts,seq"}, hudi_rs=False),
    Kind("is deleted", BY_TIME, more="_hoodie_is_deleted boolean", value=deleted),
    Kind(
        "delete marker",
        payload("DefaultHoodieRecordPayload")
        | {"hoodie.payload.delete.field": "Op", "hoodie.payload.delete.marker": "D"},
        more="Op string",
        value=operation,
    ),
    Kind("partial update", payload("PartialUpdateAvroPayload")),
    Kind("non-defaults", payload("OverwriteNonDefaultsWithLatestAvroPayload")),
    Kind("latest", payload("OverwriteWithLatestAvroPayload")),
    Kind("event time payload", payload("EventTimeAvroPayload")),
    Kind("AWS DMS", payload("AWSDmsAvroPayload"), more="Op string", value=operation),
    Kind(
        "custom merger",
        BY_TIME
        | {
            "hoodie.write.record.merge.mode": "CUSTOM",
            "hoodie.write.record.merge.strategy.id": "1897ef5f-18bc-4557-939c-9d6a8afd1519",
        },
        refused="hoodie.record.merge.mode=CUSTOM",
    ),
    Kind(
        "payload class of its own",
        payload("ReverseOrderHoodieRecordPayload"),
        refused="hoodie.record.merge.mode=CUSTOM.*ReverseOrderHoodieRecordPayload",
    ),
    Kind(
        "bucket index",
        BY_TIME | {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"},
        refused="hoodie.index.type=BUCKET",
    ),
    Kind("change data capture", BY_TIME | {"hoodie.table.cdc.enabled": "true"}, refused="cdc"),
    Kind(
        "dropped partition columns",
        BY_TIME | {"hoodie.datasource.write.drop.partition.columns": "true"},
        refused="drop.partition.columns",
    ),
    Kind(
        "no meta fields", BY_TIME | {"hoodie.populate.meta.fields": "false"}, refused="populate.meta.fields"
    ),
    Kind("no record key", {"hoodie.datasource.write.recordkey.field": ""}, refused="key"),
    Kind(
        "timestamps as partitions",
        generator("TimestampBasedKeyGenerator")
        | {
            "hoodie.keygen.timebased.timestamp.type": "DATE_STRING",
            "hoodie.keygen.timebased.input.dateformat": "yyyy-MM-dd",
            "hoodie.keygen.timebased.output.dateformat": "yyyy/MM",
        },
        parts=("2024-01-31", "2024-02-29", "2025-03-31"),
        refused="TimestampBasedKeyGenerator",
    ),
    Kind(
        "custom key generator",
        generator("CustomKeyGenerator") | {"hoodie.datasource.write.partitionpath.field": "part:SIMPLE"},
        refused="CustomKeyGenerator",
    ),
    Kind("complex keys of one field", generator("ComplexKeyGenerator")),
    Kind("complex keys", BY_TIME | {"hoodie.datasource.write.recordkey.field": "id,seq"}),
    Kind("plain folders", BY_TIME | {"hoodie.datasource.write.hive_style_partitioning": "false"}),
    Kind(
        "encoded folders",
        BY_TIME | {"hoodie.datasource.write.partitionpath.urlencode": "true"},
        parts=("a/b", "x y%", "ü=1"),
    ),
    Kind("unusual folders", BY_TIME, parts=("x y", "ü1", "p.q")),
    Kind(
        "no partitions",
        generator("NonpartitionedKeyGenerator") | {"hoodie.datasource.write.partitionpath.field": ""},
    ),
    Kind("partition metadata in Parquet", BY_TIME | {"hoodie.partition.metafile.use.base.format": "true"}),
    Kind(
        "names that are not ASCII",
        BY_TIME,
        more="`größe` string",
        value=lambda number, _: str(number),
        refused="größe",
    ),
    Kind("metadata table", BY_TIME | {"hoodie.metadata.enable": "true"}),
]


def marked(kind: Kind) -> Any:
    marks = [pytest.mark.xfail(strict=True, reason=kind.xfail)] if kind.xfail else []
    return pytest.param(kind, id=kind.name.replace(" ", "_"), marks=marks)


@pytest.mark.parametrize("kind", map(marked, KINDS))
def test_the_same_batches(kind: Kind, hudi: Session, location: Path) -> None:
    mine, twin = str(location), f"{location}_of_the_jvm"
    first, batch = (
        kind.rows({number: (10, 5, f"n{number}") for number in range(24)}, 0),
        kind.rows(BATCH, 1000),
    )
    theirs(hudi, mine, first, kind, "insert", "overwrite")
    shutil.copytree(mine, twin)
    names = [column.split()[0].strip("`") for column in kind.columns.split(", ")]
    if kind.refused is not None:
        with pytest.raises(TableServiceError, match=re.compile(kind.refused, re.IGNORECASE)):
            ours(mine, batch)
        assert not difference(rows_of(hudi, mine), rows_of(hudi, twin), names)
        return
    five_readers(hudi, mine, rows_of(hudi, twin), columns=names, where=[], hudi_rs=kind.hudi_rs)
    ours(mine, batch)
    theirs(hudi, twin, batch, kind)
    five_readers(hudi, mine, rows_of(hudi, twin), columns=names, where=[], hudi_rs=kind.hudi_rs)
    gone = [each for each in first if each["id"] == "k10"]
    ours(mine, gone, "delete")
    theirs(hudi, twin, gone, kind, "delete")
    again = [{**each, "v": each["v"] + 5000, "name": "again", "ts": 99} for each in batch[:6]]
    theirs(hudi, mine, again, kind)
    theirs(hudi, twin, again, kind)
    five_readers(hudi, mine, rows_of(hudi, twin), columns=names, hudi_rs=kind.hudi_rs)


def ours(location: str, batch: list[Row], operation: str = "upsert") -> None:
    table = HudiTable.open(location)
    ingest_arrow(table, pa.Table.from_pylist(batch, table.schema), operation)


def theirs(
    hudi: Session,
    location: str,
    batch: list[Row],
    kind: Kind,
    operation: str = "upsert",
    mode: str = "append",
) -> None:
    """Write by the JVM without a metadata table, which would take most of the time."""
    options = {
        "hoodie.table.name": "twin",
        "hoodie.datasource.write.operation": operation,
        "hoodie.metadata.enable": "false",
        **KEY,
        **kind.options,
    }
    hudi.write(location, batch, kind.columns, {name: value for name, value in options.items() if value}, mode)


def rows_of(hudi: Session, location: str) -> list[Row]:
    return hudi.read(location, metadata=False)
