"""A table that this package and the JVM's Hudi write, and a model of its rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from airflow_provider.indexing.run import IndexRunSettings, run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.table import HudiTable
from tests.real_hudi.in_turn.readers import Row, five_readers
from tests.real_hudi.jvm import Session

SCHEMA = pa.schema(
    {
        "id": pa.string(),
        "part": pa.string(),
        "v": pa.int64(),
        "name": pa.string(),
        "amount": pa.float64(),
        "ts": pa.int64(),
    }
)
COLUMNS = "id string, part string, v bigint, name string, amount double, ts bigint"

ALL_INDEXES = ("files", "column_stats", "partition_stats", "bloom_filters", "record_index")

ALL_INDEXES_OF_THE_JVM = {
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.partition.stats.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.metadata.global.record.level.index.enable": "true",
    # The JVM makes ten file groups, whatever the number of keys.
    "hoodie.metadata.global.record.level.index.min.filegroup.count": "2",
}
"""Options with which a write of the JVM keeps all indexes; without them it drops all but its default ones."""


def row(number: int, v: int, ts: int = 1, part: str | None = None) -> dict[str, Any]:
    """A row; its key and its partition follow from the number."""
    return {
        "id": f"k{number:04d}",
        "part": part or f"p{number % 3}",
        "v": v,
        "name": f"n{number}-{v}",
        "amount": number * 1.5 + v,
        "ts": ts,
    }


def rows(numbers: Iterable[int], v: int, ts: int = 1) -> list[dict[str, Any]]:
    """Rows of these numbers, each with a value of its own."""
    return [row(number, v + number, ts) for number in numbers]


class SharedTable:
    """A table, and a model with the row of each key. A method changes both, or neither if it fails.

    :param hudi: the JVM's session.
    :param location: the table's location.
    :param options: options of every write of the JVM.
    """

    of_its_keys: ClassVar[Mapping[str, str]] = {
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.table.ordering.fields": "ts",
    }
    """The options of the JVM's writes that name the columns of key and order."""

    def __init__(self, hudi: Session, location: Path | str, options: Mapping[str, str] | None = None) -> None:
        self.hudi, self.location = hudi, str(location)
        self.name = Path(location).name
        self.options = dict(options or {})
        self.model: dict[str, Row] = {}

    @property
    def table(self) -> HudiTable:
        """The table, opened again."""
        return HudiTable.open(self.location)

    # --- made by ---------------------------------------------------------------------------------

    @classmethod
    def of_ours(
        cls,
        hudi: Session,
        location: Path | str,
        first: Sequence[Row],
        indexes: Sequence[str] = (),
        **more: Any,
    ) -> SharedTable:
        """A table that this package has made and filled, with indexes that it has built.

        :param more: arguments of :meth:`HudiTable.create`.
        """
        shared = cls(hudi, location)
        settings = {"record_key": ["id"], "partition_by": ["part"], "ordering_field": "ts", **more}
        HudiTable.create(shared.location, name=shared.name, schema=SCHEMA, **settings)
        shared.ours(first)
        if indexes:
            shared.build(indexes)
        return shared

    @classmethod
    def of_the_jvm(
        cls,
        hudi: Session,
        location: Path | str,
        first: Sequence[Row],
        options: Mapping[str, str] | None = None,
    ) -> SharedTable:
        """A table that the JVM has made and filled.

        :param options: options of every write of the JVM, including the first one.
        """
        shared = cls(hudi, location, options)
        shared.theirs(first, mode="overwrite")
        return shared

    # --- ours ------------------------------------------------------------------------------------

    def ours(self, changed: Sequence[Row], operation: str = "upsert", **settings: Any) -> dict[str, Any]:
        """Write by this package; return the result."""
        result = ingest_arrow(self.table, pa.Table.from_pylist(list(changed), SCHEMA), operation, **settings)
        self.add(changed, operation)
        return result

    def ours_deletes(self, keys: Sequence[str]) -> None:
        """Delete by this package."""
        gone = [{"id": key, "part": self.model[key]["part"]} for key in keys]
        ingest_arrow(self.table, pa.Table.from_pylist(gone), "delete")
        self.drop(keys)

    def build(self, indexes: Sequence[str] = ALL_INDEXES) -> None:
        """Build indexes by this package."""
        schedule_index(self.table, list(indexes))
        assert run_index(self.table, settings=IndexRunSettings(poll_seconds=0.05)) is not None

    # --- the JVM's -------------------------------------------------------------------------------

    def theirs(
        self,
        changed: Sequence[Row],
        operation: str = "upsert",
        options: Mapping[str, str] | None = None,
        mode: str = "append",
    ) -> None:
        """Write by the JVM's data source."""
        written = {
            "hoodie.table.name": self.name,
            "hoodie.datasource.write.operation": operation,
            "hoodie.datasource.write.partitionpath.field": "part",
            **self.of_its_keys,
            "hoodie.datasource.write.hive_style_partitioning": "true",
            "hoodie.datasource.write.partitionpath.urlencode": "true",
            **self.options,
            **(options or {}),
        }
        self.hudi.write(self.location, changed, COLUMNS, written, mode)
        self.add(changed, operation)

    def sql(self, text: str) -> list[dict[str, Any]]:
        """Run a statement of the JVM, in which ``{t}`` is the table; the caller changes the model."""
        self.hudi.sql(f"create table if not exists {self.name} using hudi location '{self.location}'")
        self.hudi.sql(f"refresh table {self.name}")
        return self.hudi.sql(text.format(t=self.name))

    def always(self, options: Mapping[str, str]) -> None:
        """Set options of every later write of the JVM, by its data source and by SQL."""
        self.options |= options
        for name, value in options.items():
            self.hudi.sql(f"set {name}={value}")

    # --- the model -------------------------------------------------------------------------------

    def check(self, **reading: Any) -> None:
        """Check that all five readers show the model's rows; see :func:`five_readers`."""
        five_readers(self.hudi, self.location, self.model.values(), columns=SCHEMA.names, **reading)

    def add(self, changed: Iterable[Row], operation: str = "insert") -> None:
        """Write these rows into the model only."""
        if operation == "insert_overwrite":
            self.drop_partitions({each["part"] for each in changed})
        if operation == "insert_overwrite_table":
            self.model.clear()
        for each in changed:
            there = self.model.get(each["id"])
            if there is None or operation != "upsert" or (each["ts"] or 0) >= (there["ts"] or 0):
                self.model[each["id"]] = each

    def change(self, keys: Iterable[str], **values: Any) -> None:
        """Change values in the rows of these keys, in the model only."""
        for key in keys:
            self.model[key] = {**self.model[key], **values}

    def drop(self, keys: Iterable[str]) -> None:
        """Remove these keys from the model only."""
        for key in list(keys):
            del self.model[key]

    def drop_partitions(self, parts: Collection[str]) -> None:
        """Remove the rows of these partitions from the model only."""
        self.drop(key for key, each in self.model.items() if each["part"] in parts)
