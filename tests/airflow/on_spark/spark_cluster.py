"""A Spark cluster on this machine: Spark's own manager and one worker, from PySpark's jars."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import requests

from airflow_provider.spark.session import ensure_java
from tests.airflow.processes import until
from tests.processes.servers import free_port

_DEPLOY = "org.apache.spark.deploy"


class Cluster(NamedTuple):
    """The ports of the cluster, on 127.0.0.1."""

    port: int
    rest_port: int
    ui_port: int

    def state_of(self, driver: str) -> str:
        """The state of a driver, from the manager."""
        url = f"http://127.0.0.1:{self.rest_port}/v1/submissions/status/{driver}"
        return str(requests.get(url, timeout=30).json()["driverState"])


@contextmanager
def spark_cluster(folder: Path) -> Iterator[Cluster]:
    """Run the cluster.

    :param folder: the folder for its logs, and for the workers' folders.
    """
    ensure_java()
    spec = importlib.util.find_spec("pyspark")
    home = Path(spec.origin).parent
    cluster = Cluster(free_port(), free_port(), free_port())
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PATH": f"{os.environ.get('JAVA_HOME', '')}/bin:{os.environ['PATH']}",
    }

    def start(name: str, *arguments: str | int) -> subprocess.Popen:
        options = [f"-Dspark.master.rest.port={cluster.rest_port}", "-Dspark.master.rest.enabled=true"]
        jars = ("-cp", f"{home}/jars/*")
        with (folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                ["java", "-Xmx192m", *options, *jars, f"{_DEPLOY}.{name}", *map(str, arguments)],
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    host = ("--host", "127.0.0.1", "--webui-port")
    with ExitStack() as running:
        master = start("master.Master", *host, cluster.ui_port, "--port", cluster.port)
        running.callback(master.kill)
        place = (*host, free_port(), "--cores", 2, "--memory", "2g", "--work-dir", folder / "work")
        worker = start("worker.Worker", *place, f"spark://127.0.0.1:{cluster.port}")
        running.callback(worker.wait)
        running.callback(worker.terminate)  # the worker ends the drivers and executors that it has started
        until(lambda: _alive_workers(cluster, master, folder), every=0.5)
        yield cluster


def _alive_workers(cluster: Cluster, master: subprocess.Popen, folder: Path) -> int:
    assert master.poll() is None, (folder / "master.Master.log").read_text()[-3000:]
    try:
        told = requests.get(f"http://127.0.0.1:{cluster.ui_port}/json/", timeout=10).json()
    except requests.RequestException:  # the manager does not listen yet, or is slow
        return 0
    return int(told["aliveworkers"])
