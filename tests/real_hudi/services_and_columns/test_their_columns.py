"""The JVM's Hudi adds or widens columns, beside writes of this package that have not seen them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.exceptions import MissingColumnError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.table import snapshot
from tests.real_hudi.in_turn.evolving import SCHEMA, Evolving, old
from tests.real_hudi.in_turn.readers import five_readers
from tests.real_hudi.jvm import Session


@pytest.fixture
def table(hudi: Session, location: Path) -> Evolving:
    return Evolving(hudi, location)


@pytest.mark.parametrize("on_read", [False, True], ids=["", "schema on read"])
@pytest.mark.parametrize("metadata", [True, False], ids=["metadata table", "no metadata table"])
def test_a_column_that_the_jvm_adds(on_read: bool, metadata: bool, table: Evolving) -> None:
    table.hudi.sql(f"set hoodie.metadata.enable={str(metadata).lower()}")
    if on_read:
        table.on_read()
    table.sql("alter table {t} add columns (extra bigint)")
    table.sql("update {t} set extra = v * 2 where cast(substr(id, 2) as int) % 2 = 0")
    for each in table.model.values():
        each["extra"] = each["v"] * 2 if each["v"] % 2 == 0 else None
    table.both_go_on()


def widens(table: Evolving, alter: str, assignment: str, **values: Any) -> None:
    table.on_read()
    table.sql(f"alter table {{t}} {alter}")
    table.sql(f"update {{t}} set {assignment} where id = 'k0004'")
    table.model["k0004"] |= values


def int_to_bigint(table: Evolving) -> None:
    widens(table, "change column v v bigint", f"v = {2**40}", v=2**40)


def float_to_double(table: Evolving) -> None:
    widens(table, "change column f f double", "f = 1e300", f=1e300)


def nested_column(table: Evolving) -> None:
    for each in table.model.values():
        each["nested"] = {**each["nested"], "b": None}
    nested = {"a": 4, "b": "x"}
    widens(table, "add columns (nested.b string)", "nested = named_struct('a', 4, 'b', 'x')", nested=nested)


def renamed(table: Evolving) -> None:
    table.on_read()
    table.sql("alter table {t} rename column f to g")
    table.read_by_hudi_rs = False  # hudi-rs matches columns by name only
    for each in table.model.values():
        each["g"] = each.pop("f")


def dropped(table: Evolving) -> None:
    table.on_read()
    table.sql("alter table {t} drop column f")
    for each in table.model.values():
        del each["f"]


def by_a_data_frame(table: Evolving) -> None:
    """A data frame with wider types and a new column changes the table, without a statement."""
    columns = (
        "id string, part string, v bigint, f double, nested struct<a:int>, many array<struct<a:int>>, "
        "named map<string,struct<a:int>>, ts bigint, extra string"
    )
    changed = {**old(4), "v": 2**40, "f": 1e300, "ts": 9, "extra": "new"}
    options = {
        "hoodie.table.name": table.name,
        "hoodie.datasource.write.operation": "upsert",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.datasource.write.hive_style_partitioning": "true",
    }
    table.hudi.write(table.location, [changed], columns, options)
    for each in table.model.values():
        each["extra"] = None
    table.model["k0004"] = changed


@pytest.mark.parametrize(
    "changes",
    [
        int_to_bigint,
        float_to_double,
        nested_column,
        renamed,
        dropped,
        by_a_data_frame,
    ],
    ids=lambda changes: changes.__name__,
)
def test_columns_that_the_jvm_changes(changes: Callable[[Evolving], None], table: Evolving) -> None:
    changes(table)
    table.both_go_on()


def test_rows_that_lack_a_column_of_the_jvms_are_refused_and_filled_on_demand(table: Evolving) -> None:
    table.sql("alter table {t} add columns (extra bigint)")
    rows = pa.Table.from_pylist([{**old(1), "v": 7, "ts": 9}], SCHEMA)
    with pytest.raises(MissingColumnError, match="'extra'"):
        ingest_arrow(table.location, rows)
    ingest_arrow(table.location, rows, set_null_for_missing_columns=True)
    for each in table.model.values():
        each["extra"] = None
    table.model["k0001"] |= {"v": 7, "ts": 9}
    table.check()


def test_the_past_has_the_columns_of_then(table: Evolving) -> None:
    [then] = table.table.timeline().commits()
    before = {key: dict(each) for key, each in table.model.items()}
    table.sql("alter table {t} add columns (extra bigint)")
    table.sql("update {t} set extra = 1 where id = 'k0004'")
    assert "extra" in snapshot(table.table).schema.names
    assert snapshot(table.table, then.requested_time).schema.names == SCHEMA.names
    table.model = before
    five_readers(table.hudi, table.location, before.values(), as_of=then.requested_time, where=[])
