"""The product's main job on real data, with embedded parts only. Run by ``make demo``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path

from rich.console import Console

from dags_examples.demo.flights import land, read_flights
from dags_examples.demo.spark_server import spark_connect_server
from dags_examples.demo.summary import check_rows, print_summary

HOME = Path(os.environ.get("DEMO_HOME") or Path(__file__).parents[2] / "demo-home")
DAGS = Path(__file__).parents[1]
FIRST_DAY = 17  # of December, on which the steady loads begin

console = Console()


def main() -> None:
    """Set up, load, read back, tell."""
    started = time.monotonic()
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir()
    lake, landing, report = HOME / "lake", HOME / "landing", HOME / "runs.jsonl"
    lake.mkdir()

    console.rule("[bold]airflow-provider-table-services: flights of 2013")
    environment = airflow_environment(lake, landing)
    # Airflow and Spark take long to begin with, and both cores are idle meanwhile.
    migration = _start(environment, "airflow", "airflow", "db", "migrate")
    flights = read_flights()
    days, quarters = land(flights, landing, FIRST_DAY)
    console.print(f"{flights.num_rows:,} flights landed: {len(days)} days, {len(quarters)} quarters")
    with (
        console.status("a fresh Airflow, one Spark for all loads ..."),
        spark_connect_server(HOME / "spark.log") as port,
    ):
        _wait({"airflow": migration})
        console.print(
            "[bold]flights_table[/]: create lake.flights\n"
            f"[bold]flights_steady[/]: December, from day {FIRST_DAY} on day by day   [dim]|[/]   "
            "[bold]flights_backfill[/]: January to November, by quarter, in a second process\n"
            "[bold]flights_index[/]: the indexes are built beside the loads\n"
            "[bold]flights_clustering[/]: by destination and carrier, along a z-order curve"
        )
        environment |= {
            "FLIGHTS_STEADY_SPARK_CONN_ID": "spark_steady",
            "FLIGHTS_BACKFILL_SPARK_CONN_ID": "spark_backfill",
            "FLIGHTS_CLUSTERING_MIN_AGE_DAYS": "0",
            "AIRFLOW_CONN_SPARK_STEADY": _connection(port),
            "AIRFLOW_CONN_SPARK_BACKFILL": _connection(port),
        }
        # The indexes are built when some days are there, while the backfill goes on.
        first, later = ",".join(days[:5]), ",".join(days[5:])
        steady = ["flights_table=2013-01-01", f"flights_steady={first}"]
        steady += ["flights_index=2013-12-31", f"flights_steady={later}"]
        own_spark = {"FLIGHTS_BACKFILL_SPARK_CONN_ID": "spark_steady"}
        # The backfill's newest quarter first, as a backfill usually wants it.
        backfill = ["after=flights_table,1", f"flights_backfill={','.join(quarters[::-1])}"]
        clustering = [f"after=flights_steady,{len(days)}", "flights_clustering=2014-01-01"]
        runs = ["dags_examples.demo.runs", str(report)]
        _wait(
            {
                "flights_steady": _start(environment | own_spark, "flights_steady", *runs, *steady),
                "flights_backfill": _start(environment, "flights_backfill", *runs, *backfill, *clustering),
            }
        )
    check_rows(console, lake / "flights", flights)
    print_summary(console, lake / "flights", report, HOME)
    console.print(f"[bold green]done[/] in {time.monotonic() - started:.0f} s; everything lies in {HOME}")
    console.print(
        "[bold]make demo-ui[/] opens its Airflow: the page Tables shows what each run did, and when"
    )


def airflow_environment(lake: Path, landing: Path) -> dict[str, str]:
    """The environment of an Airflow of its own in the demo's folder."""
    scripts = str(Path(sys.executable).parent)
    return {
        **os.environ,
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(DAGS.parent),
        "AIRFLOW_HOME": str(HOME / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
        "AIRFLOW_VAR_LAKE": str(lake),
        "AIRFLOW_VAR_FLIGHTS_LANDING": str(landing),
    }


def _connection(port: int) -> str:
    # Each DAG has a session of its own, which its runs share one after the other.
    session = {"session_id": str(uuid.uuid4())}
    return json.dumps(
        {"conn_type": "spark_connect", "host": "sc://127.0.0.1", "port": port, "extra": session}
    )


def _start(environment: dict[str, str], log: str, *module: str) -> subprocess.Popen[bytes]:
    with (HOME / f"{log}.log").open("w") as output:
        return subprocess.Popen(  # noqa: S603 - our own modules, and Airflow
            [sys.executable, "-m", *module], env=environment, stdout=output, stderr=subprocess.STDOUT
        )


def _wait(processes: dict[str, subprocess.Popen[bytes]]) -> None:
    """Wait for all to end; one that fails ends the others, which may wait for it."""
    running = dict(processes)
    while running:
        time.sleep(0.05)
        ended = {log: process for log, process in running.items() if process.poll() is not None}
        running = {log: process for log, process in running.items() if log not in ended}
        failed = [log for log, process in ended.items() if process.returncode]
        if failed:
            for process in running.values():
                process.terminate()
            raise SystemExit(f"{failed[0]} failed; see {HOME / f'{failed[0]}.log'}")


if __name__ == "__main__":
    main()
