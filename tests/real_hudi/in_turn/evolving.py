"""A table of this package with changing columns, and a model of its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from airflow_provider.ingestion import ingest_arrow
from airflow_provider.table import HudiTable
from tests.real_hudi.in_turn.readers import five_readers
from tests.real_hudi.jvm import Session

SCHEMA = pa.schema(
    {
        "id": pa.string(),
        "part": pa.string(),
        "v": pa.int32(),
        "f": pa.float32(),
        "nested": pa.struct({"a": pa.int32()}),
        "many": pa.list_(pa.struct({"a": pa.int32()})),
        "named": pa.map_(pa.string(), pa.struct({"a": pa.int32()})),
        "ts": pa.int64(),
    }
)
READ = {"hoodie.schema.on.read.enable": "true"}
TAKES_COLUMNS_AWAY = {
    "hoodie.datasource.write.reconcile.schema": "true",
    "hoodie.datasource.write.schema.allow.auto.evolution.column.drop": "true",
}
"""Options without which the JVM refuses its own change of a column's name."""

Model = dict[str, dict[str, Any]]


class Evolving:
    """A table of this package; one of the two engines changes its columns."""

    def __init__(self, hudi: Session, location: Path) -> None:
        self.hudi, self.location, self.name = hudi, str(location), location.name
        self.options: dict[str, str] = {}
        self.read_by_hudi_rs = True
        HudiTable.create(
            self.location,
            name=self.name,
            schema=SCHEMA,
            record_key=["id"],
            partition_by=["part"],
            ordering_field="ts",
        )
        self.model: Model = {}
        self.ours([old(number) for number in range(40)])

    def ours(self, changed: list[dict[str, Any]]) -> None:
        """Write rows with all columns of the table by this package; missing values are null."""
        schema = self.table.schema
        rows = [
            {column.name: _fitting(each.get(column.name), column) for column in schema} for each in changed
        ]
        ingest_arrow(self.location, pa.Table.from_pylist(rows, schema))
        self.model |= {each["id"]: each for each in pa.Table.from_pylist(rows, schema).to_pylist()}

    @property
    def table(self) -> HudiTable:
        """The table, opened again."""
        return HudiTable.open(self.location)

    def on_read(self) -> None:
        """A table whose columns Hudi's schema evolution on read changes."""
        self.options |= READ
        for name, value in (READ | TAKES_COLUMNS_AWAY).items():
            self.hudi.sql(f"set {name}={value}")

    def sql(self, text: str) -> None:
        self.hudi.sql(f"create table if not exists {self.name} using hudi location '{self.location}'")
        self.hudi.sql(f"refresh table {self.name}")
        self.hudi.sql(text.format(t=self.name))

    def check(self) -> None:
        rows, options = self.model.values(), self.options
        five_readers(self.hudi, self.location, rows, options=options, hudi_rs=self.read_by_hudi_rs)

    def both_go_on(self) -> None:
        self.check()
        self.ours([{**old(number), "v": number + 100, "ts": 5} for number in range(1, 40, 2)])
        self.check()
        self.sql("update {t} set ts = ts + 1 where id = 'k0002'")
        self.model["k0002"] = {**self.model["k0002"], "ts": self.model["k0002"]["ts"] + 1}
        self.check()


def old(number: int) -> dict[str, Any]:
    return {
        "id": f"k{number:04d}",
        "part": f"p{number % 3}",
        "v": number,
        "f": number + 0.5,
        "nested": {"a": number},
        "many": [{"a": number}, {"a": None}],
        "named": {"first": {"a": number}},
        "ts": 1,
    }


def _fitting(value: Any, column: pa.Field) -> Any:
    """The value as the column's type has it: a number becomes text in a column that has become text."""
    return str(value) if value is not None and pa.types.is_string(column.type) else value
