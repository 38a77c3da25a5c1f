"""The JSON behind the page, from a real API server: who may ask, and what a broken table does."""

from __future__ import annotations

import json
import os
import shutil
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider.concurrency import WriteSettings, begin_write
from airflow_provider.locks import default_lock
from airflow_provider.table.hudi_table import HudiTable
from tests.airflow.page_lake import as_task, make_lake, new_table, register
from tests.airflow.page_server import ApiServer
from tests.airflow.processes import until

TABLE = "metastore=lake&table=lake.flights"
ROUTES = {
    "/table-services/api/tables": "",
    "/table-services/api/timeline": TABLE,
    "/table-services/api/table": TABLE,
    "/table-services/api/upkeep": TABLE,
    "/table-services/api/held-back": TABLE,
    "/table-services/api/instant": f"{TABLE}&instant=20260101000000000",
    "/table-services/api/log": "",
    "/table-services/api/task": "dag_id=flights&run_id=one&task_id=ingest",
    "/table-services/static/any/page.js": "",
}
TABLES = 5


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lake")
    metastore = make_lake(folder, tables=TABLES, instants=60)
    yield metastore
    metastore.close()


@pytest.fixture(scope="module")
def flights(lake) -> HudiTable:
    return HudiTable.open(lake.get_table("lake", "flights").location)


@pytest.fixture(scope="module")
def server(lake, tmp_path_factory, new_airflow_database) -> Iterator[ApiServer]:
    running = ApiServer(
        tmp_path_factory.mktemp("api-server"),
        new_airflow_database,
        AIRFLOW_CONN_LAKE=json.dumps({"conn_type": "table_metastore", "extra": {"url": lake.url}}),
        AIRFLOW_CONN_NOBODY=json.dumps(
            {"conn_type": "table_metastore", "extra": {"url": "postgresql+psycopg://nobody@127.0.0.1:9/none"}}
        ),
        AIRFLOW_CONN_OTHER=json.dumps({"conn_type": "http", "host": "example.org"}),
    )
    try:
        running.wait()
        yield running
    finally:
        running.stop()


def rows(server: ApiServer) -> dict[str, dict]:
    """The list's rows, once all have been read that can be."""

    def all_read():
        found = server.get("/table-services/api/tables")["tables"]
        return found if all(row["state"] != "reading" for row in found) and found else None

    return {row["table"]: row for row in until(all_read, seconds=60, every=0.5)}


def test_no_route_without_a_login_that_may_see_plugins_and_none_but_get(server):
    from airflow_provider.plugins.app import create_app

    there = {f"/table-services{route.path}" for route in create_app().routes}
    assert there == {route.replace("any/page.js", "{version}/{name}") for route in ROUTES}
    for route, query in ROUTES.items():
        path = f"{route}?{query}"
        assert server.ask("GET", path, user=None)[0] == 401, route
        assert server.ask("GET", path, user="guest")[0] == 403, route
        assert server.ask("GET", path, user="viewer")[0] == 200, route
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            assert server.ask(method, path, user="viewer")[0] == 405, (method, route)


def test_a_row_says_who_wrote_who_writes_and_who_has_the_lock(server, flights):
    with as_task("flights_steady", "ingest", "manual__1", 2):
        lock = default_lock(flights)
        with begin_write(flights, operation="UPSERT") as writer, lock:
            row = until(lambda: (found := rows(server)["lake.flights"]["report"])["writers"] and found)
            writer.plan(())
    [writing] = row["writers"]
    assert (writing["instant"], writing["alive"], writing["lane"]) == (writer.instant, True, "ingestion")
    assert writing["phase"] == "commits"
    task = {"dag": "flights_steady", "task": "ingest", "run": "manual__1", "map_index": -1, "try_number": 2}
    process = writing["who"].pop("process")
    assert process.endswith(f":{os.getpid()}")
    assert writing["who"] == task
    [holder] = row["locks"]
    assert (holder["state"], holder["who"]) == ("held", {**task, "process": process})
    assert row["last_commit"]["who"]["dag"] in {"flights_steady", "flights_backfill", "flights_services"}
    assert row["day"]["rows_inserted"] == 50
    assert row["files"] > 0
    assert row["bytes"] > 0


def test_a_broken_and_a_hanging_table_and_metastore_say_so_and_the_others_answer(server, lake, tmp_path):
    broken, hangs = new_table(tmp_path, "broken"), new_table(tmp_path, "hangs")
    for table in (broken, hangs):
        register(lake, table, table.config.name)
    shutil.rmtree(broken.location)
    properties = Path(hangs.location, ".hoodie/hoodie.properties")
    properties.unlink()
    os.mkfifo(properties)  # who reads it waits for ever
    try:

        def told():
            answer = server.get("/table-services/api/tables")
            found = {row["table"]: row for row in answer["tables"]}
            named = {each["metastore"]: each for each in answer["metastores"]}
            slow = found.get("lake.hangs", {}).get("state") == "slow"
            return (found, named) if slow and named["nobody"]["state"] == "error" else None

        found, named = until(told, seconds=90, every=0.5)
        assert "no answer from its storage for" in found["lake.hangs"]["error"]
        assert found["lake.broken"]["state"] == "error"
        assert "is not a Hudi table" in found["lake.broken"]["error"]
        assert "MetastoreUnavailableError" in named["nobody"]["error"]
        assert set(named) == {"lake", "nobody"}
        others = [row for name, row in found.items() if name not in ("lake.hangs", "lake.broken")]
        assert len(others) == TABLES
        assert {row["state"] for row in others} == {"ok"}
    finally:
        lake.drop_table("lake", "broken")
        lake.drop_table("lake", "hangs")


def test_the_timeline_tells_how_each_instant_ended(server):
    told = server.get(f"/table-services/api/timeline?{TABLE}&last=60")
    assert told["state"] == "ok"
    by_state = {}
    for bar in told["timeline"]:
        by_state.setdefault(bar["state"], []).append(bar)
    lost = [bar for bar in by_state["rolled back"] if "lost a write conflict" in bar["reason"]]
    assert lost
    assert lost[0]["who"]["dag"] == "flights_services"
    assert lost[0]["lane"] == "table_service"
    assert {bar["lane"] for bar in by_state["done"]} == {
        "ingestion",
        "backfill",
        "table_service",
        "undoing",
    }
    assert all(bar["began"] <= bar["ended"] for bar in by_state["done"])
    instant = server.get(f"/table-services/api/instant?{TABLE}&instant={told['timeline'][0]['instant']}")[
        "instant"
    ]
    [partition] = instant["partitions"]
    assert (partition["partition"], partition["inserted"], partition["files"]) == ("day=mon", 10, 1)
    assert instant["who"]["task"] == "ingest"
    dead = server.get(f"/table-services/api/instant?{TABLE}&instant={lost[0]['instant']}")["instant"]
    assert dead["state"] == "rolled back"
    gone = server.get(f"/table-services/api/instant?{TABLE}&instant=20010101000000000")
    assert (gone["state"], "neither on the active timeline" in gone["error"]) == ("error", True)


def test_the_log_tells_who_is_behind_and_which_transactions_are_open(server, lake):
    lake.register_consumer("replica-1", event_id=0, if_not_exists=True)
    with as_task("flights_steady", "ingest", "manual__1"):
        from airflow_provider.locks.owner import describe_owner

        txn_id = lake.open_txn("airflow", "vm", agent=describe_owner())
    lake.allocate_table_write_id(txn_id, "lake", "flights")
    try:
        told = until(
            lambda: (
                (found := {m["metastore"]: m for m in server.get("/table-services/api/log")["metastores"]})
                and found["lake"]["log"]
                and found["lake"]["log"]["transactions"]
                and found
            ),
            every=0.5,
        )
    finally:
        lake.abort_txn(txn_id)
        lake.unregister_consumer("replica-1")
    log = told["lake"]["log"]
    [consumer] = log["consumers"]
    assert (consumer["consumer"], consumer["holds_back_retention"]) == ("replica-1", True)
    assert consumer["behind"] == log["head"]
    [txn] = log["transactions"]
    assert (txn["txn_id"], txn["who"]["task"], txn["writes"][0]["table"]) == (
        txn_id,
        "ingest",
        "lake.flights",
    )


def test_a_task_is_told_what_it_wrote_and_whom_it_waits_for(server, flights):
    from sqlalchemy import create_engine, text

    run = "manual__2026-01-01T00:00:00+00:00"
    with as_task("flights_steady", "ingest", run):
        writer = begin_write(flights, operation="UPSERT", settings=WriteSettings(50))
    with as_task("flights_backfill", "load", "one"):
        other = begin_write(flights, operation="UPSERT", settings=WriteSettings(300))
    engine = create_engine(f"sqlite:///{server.home}/airflow.db")
    with engine.begin() as connection:
        connection.execute(text("PRAGMA foreign_keys=OFF"))
        connection.execute(
            text(
                "INSERT INTO rendered_task_instance_fields "
                "(dag_id, task_id, run_id, map_index, rendered_fields) "
                "VALUES ('flights_steady', 'ingest', :run, -1, :fields)"
            ),
            {"run": run, "fields": json.dumps({"table": "lake.flights", "metastore_conn_id": "lake"})},
        )
    query = urllib.parse.urlencode({"dag_id": "flights_steady", "run_id": run, "task_id": "ingest"})
    try:
        told = server.get(f"/table-services/api/task?{query}")
    finally:
        writer.abort()
        other.abort()
    assert (told["metastore"], told["table"]) == ("lake", "lake.flights")
    [own] = told["report"]["instants"]
    assert (own["instant"], own["state"], own["phase"]) == (writer.instant, "running", "looks for its keys")
    assert [each["who"]["dag"] for each in told["report"]["waits_for"]] == ["flights_backfill"]
