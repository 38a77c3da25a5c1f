"""The page from a real API server, and in a real Chromium: permissions, and how a broken table is shown."""

from __future__ import annotations

import json
import os
import shutil
import urllib.parse
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from airflow_provider.concurrency import begin_write
from airflow_provider.locks import default_lock
from airflow_provider.metastore import Column, open_metastore
from airflow_provider.replication import ReplicationPolicy, Replicator, replication_lag
from airflow_provider.table.hudi_table import HudiTable
from tests.airflow.processes import until
from tests.airflow.reports.page_lake import as_task, make_lake, new_table, register
from tests.airflow.reports.page_server import ApiServer

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
def copy(lake, tmp_path_factory):
    """A metastore into which a database of the lake is replicated, with an event and an error since."""
    folder = tmp_path_factory.mktemp("copy")
    (folder / "ledger" / "entries").mkdir(parents=True)
    (folder / "ledger" / "entries" / "1.parquet").write_bytes(b"12345678")
    lake.create_database("ledger")
    lake.create_table(
        "ledger",
        "entries",
        location=f"{folder}/ledger/entries",
        schema=[Column("id", "bigint")],
        parameters={"spark.sql.sources.provider": "parquet"},
    )
    opened = open_metastore(f"sqlite:///{folder}/metastore.db")
    policy = ReplicationPolicy("dr", {"ledger": "ledger"}, {f"{folder}/ledger": f"{folder}/copied"})
    Replicator(policy, lake, opened).run()
    lake.alter_table("ledger", "entries", parameters={"spark.sql.sources.provider": "parquet", "a": "b"})
    opened.replication_target().note_error("dr", "ReplicationError: 2.parquet is gone")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def server(lake, copy, tmp_path_factory, airflow_database) -> Iterator[ApiServer]:
    running = ApiServer(
        tmp_path_factory.mktemp("api-server"),
        Path(os.environ["AIRFLOW_HOME"], "airflow.db"),
        AIRFLOW_CONN_LAKE=json.dumps({"conn_type": "table_metastore", "extra": {"url": lake.url}}),
        AIRFLOW_CONN_COPY=json.dumps({"conn_type": "table_metastore", "extra": {"url": copy.url}}),
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
    """The rows of the list, once every readable table has been read."""

    def all_read():
        found = server.get("/table-services/api/tables")["tables"]
        return found if all(row["state"] != "reading" for row in found) and found else None

    return {row["table"]: row for row in until(all_read, every=0.5)}


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
    os.mkfifo(properties)  # a read of this file waits for ever
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
        assert set(named) == {"copy", "lake", "nobody"}
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
    write_id = lake.allocate_table_write_id(txn_id, "lake", "flights")

    def write_ids() -> dict:
        return server.get(f"/table-services/api/upkeep?{TABLE}")["upkeep"]["write_ids"]

    try:
        [opened] = until(lambda: write_ids()["open"], every=0.5)
        assert (opened["write_id"], opened["txn_id"], opened["who"]["run"]) == (write_id, txn_id, "manual__1")
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
    assert until(lambda: write_ids()["aborted"], every=0.5) == [write_id]
    log = told["lake"]["log"]
    [consumer] = [each for each in log["consumers"] if each["consumer"] != "replication-dr"]
    assert (consumer["consumer"], consumer["holds_back_retention"]) == ("replica-1", True)
    assert consumer["behind"] == log["head"]
    [txn] = log["transactions"]
    assert (txn["txn_id"], txn["who"]["task"], txn["writes"][0]["table"]) == (
        txn_id,
        "ingest",
        "lake.flights",
    )


def test_the_log_tells_how_far_replications_are(server, lake, copy):
    def told() -> list[dict]:
        rows = {each["metastore"]: each for each in server.get("/table-services/api/log")["metastores"]}
        assert rows["lake"]["replications"] == []
        return rows["copy"]["replications"]

    # The page may still have an answer from before the test above ended.
    lag = replication_lag("dr", lake, copy)
    [found] = until(
        lambda: [each for each in told() if each["source_event_id"] == lag.source_event_id], every=0.5
    )
    assert found == {"source": "lake", **lag.to_dict(), "seconds": found["seconds"]}
    assert (found["events"] > 0, found["bytes_copied"], found["bytes_left"]) == (True, 8, 0)
    assert found["last_error"] == "ReplicationError: 2.parquet is gone"


@pytest.fixture(scope="module")
def run_of_alter(lake, server):
    """A run of a DAG that has added a column to a table of the lake."""
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    from airflow.sdk import DAG

    from airflow_provider.operators import AlterTableOperator

    with pytest.MonkeyPatch.context() as environment:
        given = {"conn_type": "table_metastore", "extra": {"url": lake.url}}
        environment.setenv("AIRFLOW_CONN_LAKE", json.dumps(given))
        with DAG("page_columns", schedule=None, start_date=datetime(2026, 1, 1)) as dag:
            AlterTableOperator(
                task_id="alter", table="lake.t001", metastore_conn_id="lake", add={"more": "bigint"}
            )
        bag = DagBag(dag_folder="/dev/null", bundle_name="dags-folder", collect_dags=False)
        bag.bag_dag(dag)
        sync_bag_to_db(bag, "dags-folder", None)
        return dag.test()


def test_a_task_is_told_what_it_wrote_and_its_links_lead_there(server, run_of_alter):
    asked = {"dag_id": "page_columns", "run_id": run_of_alter.run_id, "task_id": "alter"}
    told = server.get(f"/table-services/api/task?{urllib.parse.urlencode(asked)}")
    assert (told["metastore"], told["table"]) == ("lake", "lake.t001")
    [own] = told["report"]["instants"]
    assert (own["state"], own["operation"]) == ("done", "ALTER_SCHEMA")
    assert (own["who"]["dag"], own["who"]["run"]) == ("page_columns", run_of_alter.run_id)
    links = server.get(
        f"/api/v2/dags/page_columns/dagRuns/{urllib.parse.quote(run_of_alter.run_id)}/taskInstances/alter/links"
    )["extra_links"]
    page = "/plugin/table-services?metastore=lake&table=lake.t001"
    assert links["Table"].endswith(page)
    assert links["Instant"].endswith(f"{page}&instant={own['instant']}")


INK = """() => {
  const pen = document.createElement("canvas").getContext("2d");
  pen.fillStyle = getComputedStyle(document.querySelector(".ts-root")).color;
  pen.fillRect(0, 0, 1, 1);
  return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
}"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    found = shutil.which("chromium") or shutil.which("google-chrome")  # otherwise the Chromium of playwright
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(params=["light", "dark"])
def tab(chromium, server, request) -> Iterator[Page]:
    """A logged-in browser tab with Airflow's theme; a request to another host or an error fails the test."""
    context = chromium.new_context(viewport={"width": 1440, "height": 900}, color_scheme=request.param)
    context.add_cookies([{"name": "_token", "value": server.token("viewer"), "url": server.url}])
    context.add_init_script(f"localStorage.setItem('theme', '{request.param}')")
    context.set_default_timeout(60_000)
    page, wrong = context.new_page(), []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.on("request", lambda asked: None if asked.url.startswith(server.url) else wrong.append(asked.url))
    yield page
    context.close()
    assert [each for each in wrong if not each.startswith(("data:", "blob:"))] == []


def test_from_the_list_to_a_table_and_an_instant(tab, server, lake, request, tmp_path):
    tab.goto(f"{server.url}/plugins")
    tab.get_by_role("link", name="Tables").click()
    tab.locator("tr[data-table='lake.t002'] td:nth-child(2) a").first.wait_for()
    assert tab.locator("tr[data-table]").count() == TABLES
    light = request.node.callspec.params["tab"] == "light"
    assert (sum(tab.evaluate(INK)) < 3 * 128) is light
    tab.screenshot(path=tmp_path / "tables.png")
    search = tab.get_by_role("searchbox")
    search.fill("t003")
    expect(tab.locator("tr[data-table]")).to_have_count(1, timeout=60_000)
    search.fill("")
    tab.get_by_role("link", name="lake.flights", exact=True).click()
    tab.locator("rect[data-instant]").first.wait_for()
    drawn = tab.locator("rect[data-instant]").count()
    assert drawn > 60
    tab.get_by_role("button", name="done").click()
    lost = tab.locator("rect.ts-fill-rolled-back")
    until(lambda: tab.locator("rect[data-instant]").count() < drawn)
    instant = lost.last.get_attribute("data-instant")
    lost.last.click(force=True)
    drawer = tab.get_by_role("complementary", name="Instant")
    drawer.get_by_text("rolled back").first.wait_for()
    tab.screenshot(path=tmp_path / "instant.png")
    assert f"instant={instant}" in tab.url
    assert drawer.get_by_role("link").first.get_attribute("href").startswith(f"{server.url}/dags/flights_")
    tab.keyboard.press("Escape")
    assert not drawer.is_visible()
    tab.get_by_role("tab", name="Options").click()
    tab.get_by_text("hoodie.keep.max.commits").first.wait_for()
    # What is shown is in the address; and no column of the options is out of sight.
    assert "part=options" in tab.url
    tab.reload()
    options = tab.locator(".ts-card", has_text="Options that hold").locator(".ts-scroll")
    expect(options.get_by_text("hoodie.keep.max.commits")).to_be_visible(timeout=60_000)
    assert options.evaluate("box => box.scrollWidth <= box.clientWidth")
    # Moments are those of the zone that a person has chosen in Airflow, as Airflow writes them.
    tab.evaluate("localStorage.setItem('timezone', JSON.stringify('Asia/Tokyo'))")
    tab.get_by_role("tab", name="Timeline").click()
    shown = tab.get_by_text("instants from").inner_text()
    newest = datetime.fromisoformat(shown.partition(" to ")[2].partition(", ")[0]).replace(tzinfo=UTC)
    assert newest > datetime.now(UTC) + timedelta(hours=8)
    assert "Asia/Tokyo" in shown
    tab.evaluate("localStorage.removeItem('timezone')")
    tab.go_back()
    tab.locator("tr[data-table]").first.wait_for()
    tab.get_by_role("link", name="Notification log").click()
    tab.get_by_role("heading", name="lake").wait_for()
    tab.get_by_role("heading", name="Replications into this metastore").wait_for()
    tab.get_by_text("2.parquet is gone").wait_for()
    tab.screenshot(path=tmp_path / "log.png", full_page=True)
    tab.get_by_text("MetastoreUnavailableError").first.wait_for()


def test_the_tab_at_the_task_instance(tab, server, run_of_alter):
    run = urllib.parse.quote(run_of_alter.run_id)
    tab.goto(f"{server.url}/dags/page_columns/runs/{run}/tasks/alter")
    tab.get_by_role("link", name="Table", exact=True).first.click()
    tab.get_by_text("ALTER_SCHEMA").first.wait_for()
    tab.locator(".ts-card a.ts-link").first.click()
    tab.get_by_role("complementary", name="Instant").wait_for()
