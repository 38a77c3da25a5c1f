"""The command line's lists of a metastore, on a terminal of 100 columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from airflow_provider.cli import app
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.metastore import Column, Metastore, open_metastore
from airflow_provider.table import HudiTable

ROWS = pa.table({"id": [1, 2], "year": [2013, 2013], "month": ["january", "a month with a long name"]})
OWNER = "flights.load/manual__1/0123456789ab"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/metastore.db"


@pytest.fixture
def metastore(url: str) -> Metastore:
    opened = open_metastore(url)
    assert isinstance(opened, Metastore)
    opened.create_database("lake")
    return opened


@pytest.fixture
def table(tmp_path: Path, metastore: Metastore) -> HudiTable:
    made = HudiTable.create(
        str(tmp_path / "flights"),
        name="flights",
        schema=ROWS.schema,
        record_key=["id"],
        partition_by=["year", "month"],
    )
    keys = [Column("year", "bigint"), Column("month", "string")]
    metastore.create_table(
        "lake", "flights", location=made.location, schema=[Column("id", "bigint")], partition_keys=keys
    )
    ingest_arrow("lake.flights", ROWS, metastore=metastore)
    return made


def listed(*arguments: str) -> Any:
    done = CliRunner().invoke(app, ["metastore", *arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


def test_tables_events_transactions_and_write_ids(url: str, metastore: Metastore, table: HudiTable) -> None:
    assert listed("tables", "--db", url) == [{"table": "lake.flights", "location": table.location}]
    txn_id = metastore.open_txn(user="me", host="here", agent=OWNER)
    write_id = metastore.allocate_table_write_id(txn_id, "lake", "flights")
    [opened] = listed("transactions", "--db", url)
    assert (opened["txn_id"], opened["writes"]) == (txn_id, [f"lake.flights {write_id}"])
    told = listed("write-ids", "lake.flights", "--db", url)
    assert [each["write_id"] for each in told["open"]] == [write_id]
    assert told["high_watermark"] == write_id
    inserts = listed("events", "--db", url, "--type", "INSERT", "--table", "lake.flights")
    assert [each["of"] for each in inserts] == ["lake.flights"] * 2
    assert all(each["message"]["files"] for each in inserts)
    newest = listed("events", "--db", url, "--last", "2")
    assert [each["event_id"] for each in newest] == [
        metastore.current_event_id() - 1,
        metastore.current_event_id(),
    ]


def test_the_newest_events_of_a_log_that_retention_has_cut(url: str, metastore: Metastore) -> None:
    for number in range(700):
        metastore.create_database(f"d{number}")
    head = metastore.current_event_id()
    metastore.purge_events(0)
    metastore.create_database("late")
    assert [each["event_id"] for each in listed("events", "--db", url, "--last", "1000")][-1] == head + 1


@pytest.mark.parametrize("command", ["files", "options"])
def test_a_line_has_100_characters_and_no_name_is_cut(
    table: HudiTable, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("airflow_provider.cli.output.console._width", 100)
    shown = CliRunner().invoke(app, [command, table.location]).output
    assert max(map(len, shown.splitlines())) <= 100
    told = json.loads(CliRunner().invoke(app, [command, table.location, "--json"]).output)
    words = shown.split()
    assert {row["file_id" if command == "files" else "option"] for row in told} <= set(words)
