"""This package adds, widens or renames columns, by a load and by a statement; the JVM reads and writes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.alter_table import Alteration, alter_table
from airflow_provider.services.clustering.clustering import cluster_in_process, schedule_clustering
from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
from airflow_provider.services.table_options import change_options
from airflow_provider.table import snapshot
from tests.real_hudi.in_turn.evolving import SCHEMA, Evolving, old
from tests.real_hudi.in_turn.readers import five_readers
from tests.real_hudi.jvm import Session


@pytest.fixture
def table(hudi: Session, location: Path) -> Evolving:
    return Evolving(hudi, location)


def by_a_load(table: Evolving) -> None:
    """A load adds columns at the top, inside a struct, in an array's elements, and in a map's values."""
    inner = pa.struct({"a": pa.int64(), "b": pa.string()})
    wider: dict[str, pa.DataType] = {column.name: column.type for column in SCHEMA} | {
        "v": pa.int64(),
        "f": pa.float64(),
        "nested": inner,
        "many": pa.list_(inner),
        "named": pa.map_(pa.string(), inner),
        "extra": pa.float64(),
    }
    most = {"a": 2**40, "b": "x"}
    changed = {**old(4), "v": 2**40, "f": 1e300, "nested": most, "many": [most], "named": {"new": most}}
    changed |= {"ts": 9, "extra": 0.25}
    result = ingest_arrow(table.location, pa.Table.from_pylist([changed], pa.schema(wider)))
    assert {each["column"] for each in result["schema_changes"]} >= {"v", "f", "nested.b", "extra"}
    for each in table.model.values():
        each |= {"nested": each["nested"] | {"b": None}, "extra": None}
        each["many"] = [inside | {"b": None} for inside in each["many"]]
        each["named"] = {name: inside | {"b": None} for name, inside in dict(each["named"]).items()}
    table.model["k0004"] = changed


def added(table: Evolving) -> None:
    alter_table(table.table, Alteration(add={"extra": "bigint", "nested.b": "string"}))
    for each in table.model.values():
        each |= {"extra": None, "nested": each["nested"] | {"b": None}}


def widened(table: Evolving) -> None:
    alter_table(table.table, Alteration(widen={"v": "bigint", "f": "double", "nested.a": "bigint"}))


def widened_to_texts(table: Evolving) -> None:
    alter_table(table.table, Alteration(widen={"v": "string", "f": "string"}))
    for each in table.model.values():
        each |= {"v": str(each["v"]), "f": str(each["f"])}


def renamed(table: Evolving) -> None:
    """From then on the table keeps ids of columns, which hudi-rs does not read."""
    table.on_read()
    table.read_by_hudi_rs = False
    change_options(table.table, {"hoodie.schema.on.read.enable": True})
    alter_table(table.table, Alteration(rename={"f": "g"}, comment={"v": "how many"}))
    for each in table.model.values():
        each["g"] = each.pop("f")


CHANGES = [by_a_load, added, widened, widened_to_texts, renamed]


@pytest.mark.parametrize("changes", CHANGES, ids=lambda changes: changes.__name__)
def test_columns_that_ours_changes(changes: Callable[[Evolving], None], table: Evolving) -> None:
    changes(table)
    table.both_go_on()
    assert schedule_clustering(table.table, ClusteringSettings(sort_by=("ts",)))
    cluster_in_process(table.table)
    table.check()


def test_the_past_has_the_columns_of_then(table: Evolving) -> None:
    [then] = table.table.timeline().commits()
    before: dict[str, dict[str, Any]] = {key: dict(each) for key, each in table.model.items()}
    by_a_load(table)
    assert snapshot(table.table, then.requested_time).schema.names == SCHEMA.names
    as_of = {"as_of": then.requested_time, "hudi_rs": False}  # it shows the present columns
    five_readers(table.hudi, table.location, before.values(), where=[], **as_of)
