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

HOME = Path(__file__).parents[2] / "demo-home"
DAGS = Path(__file__).parents[1]

console = Console()


def main() -> None:
    """Set up, load, read back, tell."""
    started = time.monotonic()
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir()
    lake, landing, report = HOME / "lake", HOME / "landing", HOME / "runs.jsonl"
    lake.mkdir()

    console.rule("[bold]airflow-provider-table-services: flights of 2013")
    flights = read_flights()
    days, quarters = land(flights, landing)
    console.print(f"{flights.num_rows:,} flights landed: {len(days)} days, {len(quarters)} quarters")

    environment = airflow_environment(lake, landing)
    with console.status("a fresh Airflow ..."):
        _airflow(environment, "db", "migrate")
    with console.status("one Spark for all loads ..."), spark_connect_server(HOME / "spark.log") as port:
        environment |= {
            "FLIGHTS_STEADY_SPARK_CONN_ID": "spark_steady",
            "FLIGHTS_BACKFILL_SPARK_CONN_ID": "spark_backfill",
            "FLIGHTS_CLUSTERING_MIN_AGE_DAYS": "0",
            "AIRFLOW_CONN_SPARK_STEADY": _connection(port),
            "AIRFLOW_CONN_SPARK_BACKFILL": _connection(port),
        }
        console.print("[bold]flights_table[/]: create lake.flights")
        _wait({"flights_table": _start(environment, "flights_table", report, ["2013-01-01"])})
        console.print(
            "[bold]flights_steady[/]: December, day by day   [dim]|[/]   "
            "[bold]flights_backfill[/]: January to November, by quarter, in a second process"
        )
        console.print("[bold]flights_index[/]: the indexes are built meanwhile, in a third")
        its_spark = {
            "FLIGHTS_BACKFILL_SPARK_CONN_ID": "spark_index",
            "AIRFLOW_CONN_SPARK_INDEX": _connection(port),
        }
        # The backfill's newest quarter first, as a backfill usually wants it.
        _wait(
            {
                "flights_steady": _start(environment, "flights_steady", report, days),
                "flights_backfill": _start(environment, "flights_backfill", report, quarters[::-1]),
                "flights_index": _start(environment | its_spark, "flights_index", report, ["2013-12-31"]),
            }
        )
        console.print("[bold]flights_clustering[/]: by destination and carrier, along a z-order curve")
        _wait({"flights_clustering": _start(environment, "flights_clustering", report, ["2014-01-01"])})
    check_rows(console, lake / "flights", flights)
    print_summary(console, lake / "flights", report, HOME)
    console.print(f"[bold green]done[/] in {time.monotonic() - started:.0f} s; everything lies in {HOME}")


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


def _airflow(environment: dict[str, str], *command: str) -> None:
    with (HOME / "airflow.log").open("a") as log:
        done = subprocess.run(  # noqa: S603 - Airflow's own command
            [sys.executable, "-m", "airflow", *command],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        raise SystemExit(f"airflow {' '.join(command)} failed; see {HOME / 'airflow.log'}")


def _start(environment: dict[str, str], dag: str, report: Path, dates: list[str]) -> subprocess.Popen[bytes]:
    with (HOME / f"{dag}.log").open("w") as log:
        return subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", "dags_examples.demo.runs", dag, str(report), *dates],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def _wait(processes: dict[str, subprocess.Popen[bytes]]) -> None:
    failed = [dag for dag, process in processes.items() if process.wait()]
    if failed:
        raise SystemExit(f"{failed[0]} failed; see {HOME / f'{failed[0]}.log'}")


if __name__ == "__main__":
    main()
