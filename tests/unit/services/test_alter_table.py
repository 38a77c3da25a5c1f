"""Service, command and load add, widen, rename and comment columns, without writing a row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder
from typer.testing import CliRunner

from airflow_provider.cli import app
from airflow_provider.exceptions import (
    IncompatibleSchemaError,
    InvalidInputError,
    MissingColumnError,
)
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.alter_table import SCHEMA_ON_READ, Alteration, alter_table
from airflow_provider.services.clustering.clustering import cluster_in_process, schedule_clustering
from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
from airflow_provider.table import HudiTable, snapshot

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("v", pa.int32()), ("ts", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    made = HudiTable.create(
        str(tmp_path / "t"),
        name="t",
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["part"],
        ordering_field="ts",
    )
    ingest_arrow(made, rows("a", "b"), "insert")
    return made


def rows(*keys: str, v: int = 1, ts: int = 1) -> pa.Table:
    return pa.table(
        {"id": list(keys), "part": ["p"] * len(keys), "v": [v] * len(keys), "ts": [ts] * len(keys)}, SCHEMA
    )


def shown(table: HudiTable, moment: str | None = None) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in snapshot(HudiTable.open(table.location), moment).to_table().to_pylist()}


def by_hudi_rs(table: HudiTable, *columns: str) -> list[dict[str, Any]]:
    found = pa.Table.from_batches(HudiTableBuilder.from_base_uri(table.location).build().read())
    return found.select(["id", *columns]).sort_by("id").to_pylist()


def test_a_column_is_added_for_old_rows_and_new_ones(table: HudiTable) -> None:
    result = alter_table(table, Alteration(add={"gate": "string"}))
    assert result["instant"] is not None
    assert shown(table)["a"]["gate"] is None
    gate = pa.table({"id": ["a"], "part": ["p"], "v": [2], "ts": [2], "gate": ["B4"]})
    ingest_arrow(table.location, gate)
    assert {key: row["gate"] for key, row in shown(table).items()} == {"a": "B4", "b": None}
    assert by_hudi_rs(table, "gate") == [{"id": "a", "gate": "B4"}, {"id": "b", "gate": None}]


def test_done_again_it_changes_nothing(table: HudiTable) -> None:
    alter_table(table, Alteration(add={"gate": "string"}))
    again = alter_table(HudiTable.open(table.location), Alteration(add={"gate": "string"}))
    assert again["instant"] is None
    assert again["schema_changes"] == []


def test_a_column_is_widened_and_old_files_are_read_with_the_wider_type(table: HudiTable) -> None:
    alter_table(table, Alteration(widen={"v": "bigint"}))
    ingest_arrow(table.location, pa.table({"id": ["a"], "part": ["p"], "v": [2**40], "ts": [2]}))
    assert {key: row["v"] for key, row in shown(table).items()} == {"a": 2**40, "b": 1}
    assert by_hudi_rs(table, "v") == [{"id": "a", "v": 2**40}, {"id": "b", "v": 1}]


@pytest.mark.parametrize(
    ("alteration", "error", "said"),
    [
        (Alteration(widen={"v": "string"}), None, None),
        (Alteration(widen={"ts": "int"}), IncompatibleSchemaError, "ts"),
        (Alteration(widen={"nothing": "bigint"}), MissingColumnError, "nothing"),
        (Alteration(rename={"v": "w"}), InvalidInputError, SCHEMA_ON_READ),
    ],
    ids=["to text", "narrower", "no such column", "without schema on read"],
)
def test_what_cannot_be_is_refused_by_name(
    table: HudiTable, alteration: Alteration, error: type[Exception] | None, said: str | None
) -> None:
    before = table.timeline().instants
    if error is None:
        alter_table(table, alteration)
        assert shown(table)["a"]["v"] == "1"
        return
    with pytest.raises(error, match=said):
        alter_table(table, alteration)
    assert table.timeline().instants == before


def test_the_past_has_the_columns_of_then(table: HudiTable) -> None:
    [then] = table.timeline().commits()
    alter_table(table, Alteration(add={"gate": "string"}))
    assert "gate" not in shown(table, then.requested_time)["a"]
    assert "gate" in shown(table)["a"]


def test_a_load_under_way_meanwhile_keeps_the_new_column(table: HudiTable) -> None:
    from tests.ingestion_contract.interleaving import MeetingLock

    lock = MeetingLock(lambda: alter_table(table, Alteration(add={"gate": "string"})))
    ingest_arrow(table, rows("c"), lock=lock)
    assert shown(table)["c"]["gate"] is None
    assert HudiTable.open(table.location).schema.names[-1] == "gate"


def test_clustering_and_indexes_follow(table: HudiTable) -> None:
    alter_table(table, Alteration(widen={"v": "double"}, add={"gate": "string"}))
    more = pa.table({"id": ["c"], "part": ["q"], "v": [0.5], "ts": [2], "gate": ["B4"]})
    ingest_arrow(table.location, more)
    for step in ("before", "clustered"):
        opened = HudiTable.open(table.location)
        assert {key: row["v"] for key, row in shown(opened).items()} == {"a": 1.0, "b": 1.0, "c": 0.5}, step
        found = snapshot(opened, where=[("v", "<", 0.75)]).to_table().to_pylist()
        assert [row["id"] for row in found] == ["c"], step
        if step == "before":
            schedule_index(opened, ["column_stats"])
            run_index(HudiTable.open(table.location))
            opened = HudiTable.open(table.location)
            assert schedule_clustering(opened, ClusteringSettings(sort_by=("v",)))
            assert cluster_in_process(HudiTable.open(table.location))


def test_the_command(table: HudiTable) -> None:
    given = ["alter", table.location, "--add", "gate=string", "--widen", "v=bigint", "--json"]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert len(told["schema_changes"]) == 2
    assert HudiTable.open(table.location).schema.field("v").type == pa.int64()
    wrong = CliRunner().invoke(app, ["alter", table.location, "--add", "gate"])
    assert wrong.exit_code != 0
