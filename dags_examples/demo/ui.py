"""The demo's Airflow in a browser, with the page of its tables. Run by ``make demo-ui``."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

from rich.console import Console

from dags_examples.demo.__main__ import HOME, airflow_environment

HOST, PORT = "127.0.0.1", 8080

console = Console()


def main() -> None:
    """Start the API server on what the demo has left, and say where the page is, until Ctrl+C."""
    if not (HOME / "airflow" / "airflow.db").exists():
        raise SystemExit(f"{HOME} has no Airflow; run `make demo` first")
    port = _free_port()
    url = f"http://{HOST}:{port}"
    environment = airflow_environment(HOME / "lake", HOME / "landing") | {
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__API__HOST": HOST,
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__API__WORKERS": "1",
    }
    page = f"{url}/plugin/table-services"
    console.print(f"[bold]Tables[/]   {page}")
    console.print(
        f"[bold]a table[/]  {page}?metastore=table_metastore_default&table=lake.flights", soft_wrap=True
    )
    console.print(f"[bold]Airflow[/]  {url}\n[dim]It answers in some seconds; Ctrl+C ends it.[/]")
    with (HOME / "api-server.log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "airflow", "api-server"],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        code = server.wait()
    except KeyboardInterrupt:
        os.killpg(server.pid, signal.SIGTERM)
        return
    raise SystemExit(f"the API server ended with {code}; see {HOME / 'api-server.log'}")


def _free_port() -> int:
    """The usual port, or any other where somebody has that."""
    for port in (PORT, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise SystemExit("no port is free")


if __name__ == "__main__":
    main()
